"""Parts of models of the zoo, by the chain rule and by an ordinary backward pass."""

import pytest
import torch
from torch import Tensor, nn

import normlab as nl
from normlab.jacobian import JacobianError, NonFiniteJacobian, dense, examine, parts
from normlab.norms import NORMS, frozen_statistics
from normlab.placements import PLACEMENTS
from normlab.recording import Address, Observed, Port, SitePlan

BATCH = {"batch": 2, "tokens": 4}
WIDTH = 8
ENTRIES = 2 * 4 * WIDTH


def built(placement: str = "pre", **fields: object) -> nn.Module:
    return nl.build(nl.ModelSpec(placement=placement, depth=3, width=WIDTH, heads=2, **fields), seed=0)


def parts_of(placement: str = "pre", **fields: object) -> nl.jacobian.Parts:
    return parts(built(placement, **fields), nl.data.random_batch(**BATCH, seed=1))


def jacobian(part: nl.jacobian.Part) -> Tensor:
    return dense(part, part.point)


def close(one: Tensor, two: Tensor) -> None:
    assert float(torch.linalg.norm(one - two)) < 1e-11 * float(torch.linalg.norm(two))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_blocks_are_the_product_of_their_sub_layers(placement: str) -> None:
    found = parts_of(placement)
    if placement == "b2t":  # its MLP also reads the block's input, so only blocks are a chain
        product = torch.linalg.multi_dot([jacobian(found.block(layer)) for layer in (3, 2)])
    else:
        names = [(layer, name) for layer in (3, 2) for name in ("mlp", "attn")]
        product = torch.linalg.multi_dot([jacobian(found.sublayer(*name)) for name in names])
    close(product, jacobian(found.blocks(2, 3)))


@pytest.mark.parametrize("fields", [{}, {"kind": "encoder-decoder"}, {"parallel": True}, {"placement": "residual"}])
def test_end_to_end_is_what_a_backward_pass_gives(fields: dict) -> None:
    model, batch = built(**fields).double(), nl.data.random_batch(**BATCH, seed=1)
    stack = model.stacks["decoder"]
    kept: dict[str, Tensor] = {}
    stack.embedding.register_forward_hook(lambda m, a, y: kept.update(start=y))
    stack.register_forward_hook(lambda m, a, y: kept.update(end=y))
    model(*batch)
    rows = [
        torch.autograd.grad(entry, kept["start"], retain_graph=True)[0].flatten() for entry in kept["end"].flatten()
    ]
    close(jacobian(parts(model, batch).end_to_end()), torch.stack(rows))


def test_the_branch_and_its_norm_make_the_sub_layer() -> None:
    found, eye = parts_of("pre"), torch.eye(ENTRIES, dtype=torch.float64)
    branch, norm = jacobian(found.branch(2, "mlp")), jacobian(found.norm(2, "mlp"))
    close(eye + branch @ norm, jacobian(found.sublayer(2, "mlp")))


@pytest.mark.parametrize("name", NORMS)
def test_every_norm_of_the_zoo_is_a_part_with_its_closed_form(name: str) -> None:
    with frozen_statistics():
        found = parts_of("pre", norm=name, norm_eps=1e-3)
        for part in (found.norm(2, "mlp"), found.final_norm()):
            close(nl.jacobian.closed_form(part.module, part.point).matrix(), jacobian(part))


def test_norms_inside_a_sub_layer_have_their_positions() -> None:
    found = parts_of("sub-ln", qk_norm="rmsnorm")
    assert found.norm(1, "attn", "mid").point.shape == found.norm(1, "attn").point.shape
    assert found.norm(1, "attn", "qk").point.shape == (2, 4, 2, 4)
    with pytest.raises(JacobianError, match="its norms are inner, mid"):
        found.norm(1, "mlp", "qk")


def test_tokens_are_blocks_of_the_matrix() -> None:
    part = parts_of("post").block(2)
    blocks = jacobian(part).reshape(8, WIDTH, 8, WIDTH)
    own, other = part.token(3, sequence=1), part.token(1, of=3, sequence=1)
    close(dense(own, own.point), blocks[7, :, 7])
    close(dense(other, other.point), blocks[7, :, 5])
    assert not dense(part.token(3, of=1), part.token(3).point).any()  # no token sees a later one
    with pytest.raises(JacobianError, match="no token 4 of sequence 0"):
        part.token(4)
    with pytest.raises(JacobianError, match="no token -1"):
        part.token(-1)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("all", lambda found: found.end_to_end()),
        ("block 2", lambda found: found.block(2)),
        ("blocks 1-3", lambda found: found.blocks(1, 3)),
        ("blocks 1..3", lambda found: found.blocks(1, 3)),
        ("block 1 attn", lambda found: found.sublayer(1, "attn")),
        ("block 1 mlp branch", lambda found: found.branch(1, "mlp")),
        ("block 1 mlp norm", lambda found: found.norm(1, "mlp", "inner")),
        ("block 1 mlp output norm", lambda found: found.norm(1, "mlp", "output")),
        ("final norm", lambda found: found.final_norm()),
        ("module stacks.decoder.final_norm", lambda found: found.final_norm()),
    ],
)
def test_a_part_has_a_name_in_words(text: str, same) -> None:
    found = parts_of("peri")
    close(jacobian(found.named(text)), jacobian(same(found)))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("block 4", "block 4 was asked for: the blocks are 1 to 3"),
        ("blocks 3-2", "blocks 3 to 2 were asked for: the blocks are 1 to 3"),
        ("block 1 cross", "it has attn, mlp"),
        ("block 1 mlp outer norm", "has no outer norm: its norms are inner"),
        ("module stacks.decoder.final_nrm", "did you mean 'stacks.decoder.final_norm'"),
        ("module stacks", "ran 0 times"),
        ("the middle", "names no part: give all, block 3"),
    ],
)
def test_what_is_no_part_is_said(text: str, sentence: str) -> None:
    with pytest.raises(JacobianError, match=sentence):
        parts_of().named(text)


def test_a_stack_is_chosen_by_name() -> None:
    model, batch = built(kind="encoder-decoder", encoder_depth=2), nl.data.random_batch(**BATCH, seed=1)
    assert parts(model, batch).depth == 3 and parts(model, batch, stack="encoder").depth == 2
    with pytest.raises(JacobianError, match="did you mean 'encoder'"):
        parts(model, batch, stack="encoders")


def test_a_site_plan_of_ones_own_says_where_the_stream_is() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    sites = [Observed(Address("decoder", 0, "embed", "stream"), Port("0"))]
    sites += [Observed(Address("decoder", layer, "mlp", "stream"), Port(f"{layer}")) for layer in (1, 2)]
    found = parts(model, torch.ones(1, 2, 3), sites=SitePlan(observed=tuple(sites)))
    weight = model[2].weight.detach().double() @ model[1].weight.detach().double()
    close(jacobian(found.blocks(1, 2)), torch.kron(torch.eye(2, dtype=torch.float64), weight))


def test_what_has_no_stream_or_draws_is_refused() -> None:
    with pytest.raises(JacobianError, match="no residual stream was found in Sequential"):
        parts(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.ones(2, 3))
    noisy = parts(built(dropout=0.5), nl.data.random_batch(**BATCH, seed=1))
    with pytest.raises(JacobianError, match="draws random numbers"):
        noisy.block(1)


class Twice(nn.Module):
    """A pre-norm model of somebody else's, with one block that runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(6), nn.Linear(6, 9), nn.Linear(9, 6)
        self.out = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            x = x + self.down(torch.tanh(self.up(self.norm(x))))
        return self.out(x)


def test_a_module_that_runs_twice_is_no_part() -> None:
    found = parts(Twice(), torch.randn(2, 3, 6))
    with pytest.raises(JacobianError, match="ran 2 times"):
        found.module("norm")


@pytest.mark.parametrize("batch", ["abc", None, [1, 2], {"tokens": 3}])
def test_a_batch_without_tensors_is_said(batch) -> None:
    with pytest.raises(JacobianError, match="without a tensor: give a tensor, a tuple"):
        parts(built(), batch)


def test_a_batch_that_the_model_does_not_take_is_said() -> None:
    with pytest.raises(JacobianError, match="Transformer does not run on this batch"):
        parts(built(), torch.rand(1, 4)).block(1)
    with pytest.raises(JacobianError, match="Twice does not run on this batch"):
        parts(Twice(), torch.ones(1, 4, 5))


def test_the_first_stream_that_is_not_finite_is_named() -> None:
    model, batch = built(), nl.data.random_batch(**BATCH, seed=1)
    with torch.no_grad():
        model.stacks["decoder"].blocks[1].sublayers["attn"].mixer.o.weight[0, 0] = float("nan")
    found = parts(model, batch)
    for name in ("block 3", "block 2 mlp", "block 2 mlp norm", "final norm"):
        with pytest.raises(NonFiniteJacobian, match="first stream that is not finite is the stream of layer 2, attn"):
            found.named(name)
    block = found.block(2)
    with pytest.raises(NonFiniteJacobian, match="block 2: its Jacobian has entries that are not finite"):
        examine(block)


@pytest.mark.parametrize("text", ["block 2 token 1", "block 2 token 1 to 3", "block 2 token 1 to 3 sequence 1"])
def test_one_tokens_own_block_by_name(text: str) -> None:
    found = parts_of()
    part = found.named(text)
    x, y, sequence = 1, 3 if " to " in text else 1, 1 if "sequence" in text else 0
    whole, width = jacobian(found.block(2)), part.point.numel()
    tokens = whole.reshape(2, -1, width, 2, whole.shape[1] // 2 // width, width)
    close(jacobian(part), tokens[sequence, y, :, sequence, x, :])
    assert part.name == text and examine(part, k=None).spectrum.shape == (width, width)
