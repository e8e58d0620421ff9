"""Where two models part, against blocks that are run by hand."""

import copy
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from compared_models import TOKENS, compared, values
from torch import Tensor

import normlab as nl
from normlab.errors import DataError
from normlab.inspection.agreeing import told_apart
from normlab.inspection.diverging import alone
from normlab.inspection.streams import Stream, streams
from normlab.models import Transformer
from normlab.recording.planning import plan_of


def streams_of(model: Transformer) -> dict[str, Stream]:
    """The streams of a zoo's model."""
    tokens, targets = nl.data.text_batch(batch=2, tokens=TOKENS, seed=0)
    batch = (tokens, targets) if model.spec.kind == "encoder-decoder" else (tokens,)
    return streams(model, plan_of(model), lambda: model(*batch), (2, TOKENS))


def by_hand(model: Transformer) -> tuple[list[Tensor], Callable[[int, Tensor], Tensor]]:
    """The stream after each block, the embedding first, and a block as a function."""
    stack = model.stack("decoder")
    tokens, _ = nl.data.text_batch(batch=2, tokens=TOKENS, seed=0)
    with torch.no_grad():
        xs = [stack.embedding(tokens)]
        for block in stack.blocks:
            xs.append(block(xs[-1]))
    return xs, lambda layer, x: stack.blocks[layer - 1](x)


def median(difference: Tensor, x: Tensor) -> float:
    return float((difference.double().norm(dim=-1) / x.double().norm(dim=-1)).quantile(0.5))


def test_a_model_and_its_copy_are_the_same_to_the_bit(planted: ModuleType) -> None:
    found = compared(planted.clean(), planted.clean())
    assert found.parts is None and "the same to the bit" in str(found)
    assert set(values(found, "divergence").values()) == set(values(found, "added").values()) == {0.0}


def test_they_part_where_the_change_is(pair: tuple[Transformer, Transformer]) -> None:
    found = compared(*pair)
    assert found.parts is not None and (found.parts.layer, found.parts.sublayer) == (3, "mlp")
    assert "The streams part in the MLP of block 3" in str(found) and "Block 3 adds most" in str(found)
    added, inherited, total = (values(found, name) for name in ("added", "inherited", "divergence"))
    assert [layer for layer, value in added.items() if value] == [3]
    assert total[3] == added[3] and inherited[3] == 0 and inherited[4] == total[4] > 0


@torch.no_grad()
def test_inherited_and_added_are_those_of_blocks_run_by_hand(pair: tuple[Transformer, Transformer]) -> None:
    one, two = pair[0], pair[1]
    for parameter in two.parameters():  # every block differs
        parameter.add_(0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    with torch.enable_grad():
        found = compared(one, two)
    (a, _), (b, block) = by_hand(one), by_hand(two)
    for layer in range(1, len(a)):
        y = block(layer, a[layer - 1])
        assert values(found, "divergence")[layer] == pytest.approx(median(b[layer] - a[layer], a[layer]), rel=1e-5)
        assert values(found, "inherited")[layer] == pytest.approx(median(b[layer] - y, a[layer]), rel=1e-5)
        assert values(found, "added")[layer] == pytest.approx(median(y - a[layer], a[layer]), rel=1e-5)


@torch.no_grad()
def test_a_block_is_not_charged_for_the_rounding_of_what_it_is_fed_with(planted: ModuleType) -> None:
    one = planted.clean()
    one.stack("decoder").embedding.token.mul_(1e4)
    two = copy.deepcopy(one).bfloat16()
    with torch.enable_grad():
        found = compared(one, two)
    (a, of_a), (b, of_b) = by_hand(one), by_hand(two)
    added, inherited = values(found, "added"), values(found, "inherited")
    for layer in range(1, len(a)):
        r = a[layer - 1].bfloat16()
        y, z = of_b(layer, r).double(), of_a(layer, r.float()).double()
        assert added[layer] == pytest.approx(median(y - z, a[layer]), rel=1e-5)
        assert inherited[layer] == pytest.approx(median(b[layer] - a[layer] - (y - z), a[layer]), rel=1e-5)
    # The stream is so large that bfloat16 adds nothing to the embedding, whose rounding is all that differs.
    assert max(added.values()) < 0.2 * inherited[6]


def test_what_overflowed_before_a_block_is_inherited(planted: ModuleType) -> None:
    one = planted.with_massive_token(born=2, cancelled=5, size=1e5)
    two = copy.deepcopy(one).half()
    found = compared(one, two, backward=False)
    assert found.parts is not None and (found.parts.layer, found.parts.sublayer) == (2, "mlp")
    worst = {(one.at.layer, one.quantity): one.share for one in found.worst if one.at.sublayer == "mlp"}
    assert worst[2, "added"] == worst[3, "divergence"] == float("inf") and worst[3, "added"] < 0.1


def test_rounding_to_bfloat16_is_no_parting_and_a_fault_beside_it_is(planted: ModuleType) -> None:
    one = planted.clean()
    rounded = copy.deepcopy(one).bfloat16()
    found = compared(one, rounded)
    assert found.parts is None and found.tolerance == 8 * 2**-7 and "no block adds more" in str(found)
    assert 0.0005 < max(values(found, "added").values()) < 0.02
    with torch.no_grad():
        planted.mixer(rounded, 4, "attn").o.weight.mul_(2)
    parts = compared(one, rounded).parts
    assert parts is not None and (parts.layer, parts.sublayer) == (4, "attn")


def test_blocks_without_a_partner_are_named_and_the_others_compared(planted: ModuleType) -> None:
    for pair, names in (((planted.clean(4), planted.clean(6)), "B"), ((planted.clean(6), planted.clean(4)), "A")):
        found = compared(*pair)
        assert found.alone == (f"{names} alone has blocks 5-6.",) and found.to_dict()["alone"] == [*found.alone]
        assert found.parts is None and max(values(found, "divergence")) == 4
        assert f"{names} alone has blocks 5-6.\nThe blocks that both have are compared." in str(found)
    assert compared(planted.clean(), planted.clean()).alone == ()


def test_a_stack_or_sublayer_that_one_lacks_is_named() -> None:
    one = nl.ModelSpec(depth=2, width=16, heads=2)
    both = nl.ModelSpec(depth=2, width=16, heads=2, kind="encoder-decoder")
    left, right = ({name: stream for name, stream in streams_of(nl.build(spec)).items()} for spec in (one, both))
    assert alone(left, right) == (
        "B alone has the embedding and blocks 1-2 of the encoder.",
        "B alone has the cross-attention of block 1 of the decoder.",
        "B alone has the cross-attention of block 2 of the decoder.",
    )


def test_the_tolerance_is_the_users(pair: tuple[Transformer, Transformer]) -> None:
    assert compared(*pair, tolerance=0.9).parts is None


def test_ratios_are_those_of_the_two_tables(pair: tuple[Transformer, Transformer]) -> None:
    found = compared(*pair)
    norms = []
    for model in pair:
        model.zero_grad()
        model.loss(*nl.data.text_batch(batch=2, tokens=TOKENS, seed=0)).backward()
        norms.append(float(model.stack("decoder").blocks[1].sublayers["mlp"].mixer.down.weight.grad.norm()))
    rows = found.table[(found.table["role"] == "down") & (found.table["layer"] == 2)]
    (ratio,) = rows.loc[rows["sublayer"] == "mlp", "value"]
    assert ratio == pytest.approx(norms[1] / norms[0], rel=1e-5)


def test_models_that_cannot_be_compared_are_refused_in_one_sentence(planted: ModuleType) -> None:
    wide = nl.build(nl.ModelSpec(depth=2, width=64, heads=4))
    with pytest.raises(DataError, match="differ in width"):
        compared(planted.clean(), wide)
    encoder = nl.build(nl.ModelSpec(kind="encoder", depth=2, width=32, heads=4))
    with pytest.raises(DataError, match="the stacks decoder"):
        compared(planted.clean(), encoder)


def test_blocks_that_are_no_modules_leave_inherited_and_added_unknown() -> None:
    from torch import nn

    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(256, 8), nn.Linear(8, 256)
            self.ups = nn.ModuleList(nn.Linear(8, 16) for _ in range(3))
            self.downs = nn.ModuleList(nn.Linear(16, 8) for _ in range(3))

        def forward(self, tokens: Tensor) -> Tensor:
            x = self.embed(tokens)
            for up, down in zip(self.ups, self.downs, strict=True):
                x = x + down(up(x).relu())
            return self.head(x)

    found = compared(Flat(), Flat())
    assert found.parts is not None and found.parts.layer == 0
    assert "cannot be told apart: the blocks are no modules" in str(found)


@pytest.mark.parametrize(
    ("losses", "says"),
    [
        ((0.017444, 0.017424), "0.017444 and 0.017424"),
        ((3.77, 3.78), "3.77 and 3.78"),
        ((3.7, 3.7), "3.70 and 3.70"),
        ((10.31, 10.3100004), "10.31 and 10.3100004"),
        ((float("nan"), 3.7), "not finite and 3.70"),
        ((float("nan"), float("inf")), "not finite and not finite"),
    ],
)
def test_losses_that_differ_are_shown_to_differ(losses: tuple[float, float], says: str) -> None:
    assert " and ".join(told_apart(*losses)) == says


def test_what_the_ratios_say_is_of_what_is_finite(planted: ModuleType) -> None:
    one, two = planted.clean(), planted.with_overflow()
    found = compared(one, two)
    assert "B over A, where both are finite: the streams' median rms" in str(found)
    assert "B over A: the streams' median rms" in str(compared(one, one))


@pytest.mark.parametrize("tolerance", [-1, float("nan"), float("inf"), True])
def test_a_tolerance_is_a_number(planted: ModuleType, tolerance: float) -> None:
    with pytest.raises(DataError, match="tolerance is .*: give a finite number of at least 0"):
        compared(planted.clean(), planted.clean(), tolerance=tolerance)


def test_specs_are_built(planted: ModuleType) -> None:
    spec = nl.ModelSpec(placement="pre", depth=2, width=16, heads=2)
    assert "the same to the bit" in str(nl.compare(spec, nl.build(spec, seed=3), tokens=TOKENS, seed=3))


def test_frozen_models_are_compared_forward_only(planted: ModuleType) -> None:
    frozen = planted.clean().requires_grad_(False)
    with pytest.raises(DataError, match="no parameter that wants a gradient.*--no-grad"):
        compared(frozen, frozen)
    assert compared(frozen, frozen, backward=False).parts is None


@pytest.mark.needs("transformers")
@pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning", "ignore:.*:DeprecationWarning")
def test_implementations_of_attention_agree(tmp_path: Path, checkpoints: ModuleType) -> None:
    from normlab.inspection import Windows, compare_subjects, load_subject

    folder = str(checkpoints.write("llama", tmp_path))
    one, two = (load_subject(folder, implementation=name) for name in ("sdpa", "eager"))
    found = compare_subjects(one, two, Windows(2, 16))
    assert found.parts is None and max(values(found, "added").values()) < 1e-6
    assert "sdpa attention" in found.a and "eager attention" in found.b
