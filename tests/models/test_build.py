from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import nn

import normlab as nl
from normlab.errors import DataError
from normlab.losses import cross_entropy, probe

SMALL = {"depth": 2, "width": 8, "heads": 2, "vocab": 11, "context": 9}


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().double().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("init", ["xavier", "orthogonal"])
def test_the_seed_alone_decides_the_bits(init: str) -> None:
    spec = nl.ModelSpec(**SMALL, init=init, position="learned")
    first = weights(nl.build(spec, seed=3))
    torch.manual_seed(1)
    state = torch.get_rng_state()
    assert torch.equal(weights(nl.build(spec, seed=3)), first)
    assert torch.equal(torch.get_rng_state(), state), "building moved the global generator"
    assert not torch.equal(weights(nl.build(spec, seed=4)), first)


def test_other_dtypes_start_from_the_same_weights() -> None:
    spec = nl.ModelSpec(**SMALL)
    narrow = weights(nl.build(spec, dtype=torch.float32))
    assert torch.equal(weights(nl.build(spec, dtype=torch.float64)), narrow)
    assert torch.equal(weights(nl.build(spec, dtype=torch.bfloat16)), narrow.bfloat16().double())


def test_a_model_is_built_in_train_mode_and_its_loss_is_a_scalar(batch: Any) -> None:
    model = nl.build(nl.ModelSpec(**SMALL))
    assert model.training and model.loss(*batch).shape == ()
    log_odds = torch.log_softmax(model(batch[0]).double(), dim=-1)
    expected = -log_odds.gather(2, batch[1][..., None]).mean()
    assert torch.isclose(cross_entropy(model, *batch).double(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    "fields",
    [
        {"attention": attention, "placement": placement, "position": position}
        for attention, placement, position in product(
            ["softmax", "uniform"], ["pre", "post", "residual"], ["none", "learned"]
        )
    ]
    + [{"position": "rope"}, {"parallel": True}, {"placement": "hybridnorm"}],
    ids=str,
)
def test_a_decoder_is_causal_and_an_encoder_is_not(fields: dict[str, Any], make: Callable[..., nn.Module]) -> None:
    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    for kind in ("decoder", "encoder"):
        stack = make(kind=kind, **fields).stacks[kind]
        x = stack.embedding(tokens).detach().requires_grad_()
        (gradient,) = torch.autograd.grad(stack.run(x, None)[0, 2].sum(), x)
        sizes = gradient[0].abs().sum(-1)
        assert (sizes[:3] > 0).all()
        assert (sizes[3:] == 0).all() if kind == "decoder" else (sizes[3:] > 0).all()


def test_without_attention_no_position_sees_another(make: Callable[..., nn.Module]) -> None:
    stack = make(attention="none").stacks["decoder"]
    x = torch.randn(1, 5, 8, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(stack.run(x, None)[0, 2].sum(), x)
    assert (gradient[0].abs().sum(-1) > 0).tolist() == [False, False, True, False, False]


def test_an_encoder_decoder_reads_all_of_the_source_and_earlier_targets(make: Callable[..., nn.Module]) -> None:
    model = make(kind="encoder-decoder")
    source, targets = torch.tensor([[3, 1, 4, 1]]), torch.tensor([[5, 9, 2, 6]])
    given = model(source, targets)
    later = model(source, torch.tensor([[5, 9, 7, 8]]))
    assert torch.equal(given[:, :3], later[:, :3]) and not torch.equal(given[:, 3], later[:, 3])
    other = model(torch.tensor([[3, 1, 4, 2]]), targets)
    assert (given != other).any(-1).all()
    with pytest.raises(DataError, match="an encoder-decoder also decodes: call it with tokens and targets"):
        model(source)


def test_dropout_acts_in_train_mode_only(batch: Any) -> None:
    model = nl.build(nl.ModelSpec(**SMALL, dropout=0.5))
    torch.manual_seed(0)
    assert not torch.equal(model(batch[0]), model(batch[0]))
    model.eval()
    assert torch.equal(model(batch[0]), model(batch[0]))


@pytest.mark.parametrize(
    "tokens, sentence",
    [
        (torch.tensor([[0, 11]]), "tokens run from 0 to 11: the vocabulary allows 0 to 10"),
        (torch.tensor([[-1, 2]]), "tokens run from -1 to 2"),
        (torch.zeros(1, 10, dtype=torch.long), "a sequence has 10 tokens: the context allows 9"),
    ],
)
def test_tokens_that_do_not_fit_are_refused(tokens: torch.Tensor, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        nl.build(nl.ModelSpec(**SMALL))(tokens)


def test_targets_have_the_shape_of_the_tokens(batch: Any) -> None:
    with pytest.raises(DataError, match="give equal shapes"):
        nl.build(nl.ModelSpec(**SMALL)).loss(batch[0], batch[1][:, 1:])


@pytest.mark.parametrize("coherent", [False, True])
def test_the_probes_gradient_is_the_probe(coherent: bool, make: Callable[..., nn.Module], batch: Any) -> None:
    model = make(width=64)
    seen: list[torch.Tensor] = []
    model.stacks["decoder"].final_norm.register_forward_hook(lambda *given: seen.append(given[2]))
    loss = probe(coherent, seed=5)(model, *batch)
    (r,) = torch.autograd.grad(loss, seen[0])
    r = r * batch[0].numel()
    assert torch.isclose(loss, (r * seen[0]).sum() / batch[0].numel(), rtol=1e-12)
    assert abs(float((r**2).sum(-1).mean()) - 1) < 4 * (2 / 64 / (1 if coherent else 10)) ** 0.5
    assert torch.equal(r[0, 0], r[1, 3]) is coherent
    assert torch.equal(loss, probe(coherent, seed=5)(model, *batch))
    assert not torch.equal(loss, probe(coherent, seed=6)(model, *batch))
