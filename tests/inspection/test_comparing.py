"""Where two models part, against blocks that are run by hand; and the ratios of two runs."""

import copy
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import normlab as nl
from normlab.errors import DataError
from normlab.inspection import Comparison, Subject, compare_runs
from normlab.inspection.agreeing import told_apart
from normlab.inspection.comparison import comparison_says
from normlab.inspection.diverging import alone
from normlab.inspection.streams import Stream, streams
from normlab.models import Transformer
from normlab.recording.planning import plan_of
from normlab.table import from_rows

TOKENS = 16


@pytest.fixture
def pair(planted: ModuleType) -> tuple[Transformer, Transformer]:
    """A clean model, and the same with a larger MLP matrix in block 3."""
    one = planted.clean()
    two = copy.deepcopy(one)
    with torch.no_grad():
        planted.mixer(two, 3, "mlp").down.weight.mul_(1.3)
    return one, two


def compared(one: torch.nn.Module, two: torch.nn.Module, **more: object) -> Comparison:
    return nl.compare(one, two, tokens=TOKENS, **more)  # type: ignore[arg-type]


def streams_of(model: Transformer) -> dict[str, Stream]:
    """The streams of a zoo's model."""
    tokens, targets = nl.data.text_batch(batch=2, tokens=TOKENS, seed=0)
    batch = (tokens, targets) if model.spec.kind == "encoder-decoder" else (tokens,)
    return streams(model, plan_of(model), lambda: model(*batch), (2, TOKENS))


def values(found: Comparison, quantity: str) -> dict[int, float]:
    rows = found.table[(found.table["quantity"] == quantity) & (found.table["sublayer"] == "mlp")]
    return {int(row.layer): float(row.value) for row in rows[rows["site"] == "stream"].itertuples()}


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


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, pd.DataFrame]:
    data = nl.data.Text(batch=2, tokens=8)
    specs = (nl.grid(placement=["pre"], depth=[4], width=8, heads=2, init=init) for init in ("xavier", "gpt2"))
    one, two = (nl.sweep(spec, seeds=range(3), data=data, jobs=1) for spec in specs)
    return one, two


def test_runs_are_compared_seed_by_seed(runs: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    found = compare_runs(*runs, "one", "two")
    where = "site == 'stream' and quantity == 'median_rms' and layer == 4 and sublayer == 'mlp'"
    one, two = (run.query(where).sort_values("model_seed")["value"].to_numpy() for run in runs)
    logs = np.log(two / one)
    rows = found.table.query("site == 'stream' and quantity == 'ratio' and layer == 4 and sublayer == 'mlp'")
    assert rows["value"].item() == pytest.approx(np.exp(logs.mean()), rel=1e-12)
    assert rows["se"].item() == pytest.approx(np.exp(logs.mean()) * logs.std(ddof=1) / 3**0.5, rel=1e-12)
    assert found.parts is not None and found.parts.layer == 0 and "The streams part in the embedding" in str(found)
    grads = [
        run.query("site == 'stream_grad' and quantity == 'l2' and layer == 2 and sublayer == 'mlp'") for run in runs
    ]
    logs = [np.log(rows.sort_values("model_seed")["value"].to_numpy()) for rows in grads]
    shown = found.layers.query("layer == 2 and sublayer == 'mlp'")["grad_ratio"].item()
    assert shown == pytest.approx(np.exp((logs[1] - logs[0]).mean()), rel=1e-12)


def test_the_ratio_that_a_block_adds_multiplies_up(runs: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    found = compare_runs(*runs, "one", "two")
    ratio, added = values(found, "ratio"), values(found, "ratio_added")
    assert ratio[4] / ratio[1] == pytest.approx(added[2] * added[3] * added[4], rel=1e-12)


def test_a_run_with_itself_does_not_part(runs: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    found = compare_runs(runs[0], runs[0], "one", "one")
    assert (
        found.parts is None
        and "They do not part: the streams' median rms are the same everywhere, and the gradients at the" in str(found)
    )
    assert set(values(found, "ratio").values()) == {1.0}


def test_runs_that_agree_say_how_well_and_where_least(runs: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    after = (runs[0]["site"] == "stream") & (runs[0]["layer"] >= 3)
    other = runs[0].assign(value=runs[0]["value"].where(~after, runs[0]["value"] * 0.98))
    said = str(compare_runs(runs[0], other, "one", "other"))
    assert "agree everywhere within 2 %, least after the " in said and "(tolerance 5 %)" in said
    assert "Block 3 changes the ratio most, by −2 %." in said
    assert said.splitlines()[2].startswith("They do not part: ") and "the gradients at the streams the same;" in said


def test_the_first_sentence_is_true_of_gradients_too(runs: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    behind = runs[0]["site"] == "stream_grad"
    other = runs[0].assign(value=runs[0]["value"].where(~behind, runs[0]["value"] * 1.5))
    first = str(compare_runs(runs[0], other, "one", "other")).splitlines()[2]
    assert first == (
        "The streams do not part, but other numbers do, B over A: the gradients at the streams (1.50) (tolerance 5 %); "
        "the streams' median rms are the same everywhere."
    )


def test_gradients_that_only_one_run_has_and_other_dtypes_are_said(planted: ModuleType) -> None:
    one, two = (nl.inspect(planted.clean(), tokens=TOKENS, backward=backward).table for backward in (True, False))
    for pair, name in (((one, two), "A"), ((two, one), "B")):
        found = compare_runs(*pair, "one", "two")
        assert found.alone == (f"{name} alone has gradients: none are compared.",) and found.parts is None
        assert f"A: one\nB: two\n{found.alone[0]}\nThey do not part" in str(found)
    assert compare_runs(one, one, "one", "two").alone == compare_runs(two, two, "one", "two").alone == ()
    half = nl.inspect(planted.clean().bfloat16(), tokens=TOKENS, backward=False).table
    found = compare_runs(one, half, "one", "two")
    assert (found.a, found.b) == ("one (float32)", "two (bfloat16)")


def test_ratios_near_1_are_told_by_how_much_they_are_off(runs: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    after = (runs[0]["site"] == "stream") & (runs[0]["layer"] >= 3)
    other = runs[0].assign(value=runs[0]["value"].where(~after, runs[0]["value"] * 1.00092))
    said = str(compare_runs(runs[0], other, "one", "other", tolerance=0.0005))
    assert "there the median rms of B differs by +0.092 % from that of A (tolerance 0.05 %)" in said
    said = str(compare_runs(runs[0], other.assign(value=2 * runs[0]["value"]), "one", "other"))
    assert "there the median rms of B is 2.00 times that of A (tolerance 5 %)" in said


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


def test_the_words_under_the_table_are_of_its_columns(
    pair: tuple[Transformer, Transformer], runs: tuple[pd.DataFrame, pd.DataFrame]
) -> None:
    whole, forward = (comparison_says(compared(*pair, backward=on).layers.columns) for on in (True, False))
    assert "grad ratio: " in whole and "grad ratio" not in forward and "inherited: " in forward
    said = comparison_says(compare_runs(*runs, "one", "two").layers.columns)
    assert said.startswith("ratio: ") and "grad ratio: " in said and "divergence" not in said


def test_gradients_that_are_zero_up_to_rounding_have_no_say() -> None:
    spec = nl.ModelSpec(depth=2, width=8, heads=2, bias=True)
    data = nl.data.Text(batch=2, tokens=8)
    run = nl.sweep([spec], seeds=range(1), data=data, jobs=1)
    keys = (run["role"] == "k_bias") & (run["quantity"] == "grad_norm")
    assert keys.any()
    other = run.assign(value=run["value"].mask(keys, 1e4 * run["value"]))
    assert "They do not part" in str(compare_runs(run, other, "one", "other"))


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("data", "text:other.txt-0123abcd", "the text (A: text:pydoc; B: text:other.txt-0123abcd)"),
        ("tokens", 9, "the tokens in each sequence (A: 8; B: 9)"),
        ("batch", 3, "the number of sequences (A: 2; B: 3)"),
    ],
)
def test_runs_on_different_data_say_so_first(
    runs: tuple[pd.DataFrame, pd.DataFrame], column: str, value: object, says: str
) -> None:
    changed = runs[0].assign(**{column: pd.Series(value, index=runs[0].index)})
    found = compare_runs(runs[0], changed, "one", "other")
    assert str(found).startswith(f"! DIFFERENT DATA. A and B did not run on the same input: they differ in {says}.")
    assert len(found.to_dict()["different_data"]) == 1
    assert "DIFFERENT" not in str(compare_runs(*runs, "one", "two"))


def test_the_same_text_under_another_name_is_the_same_data(runs: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    one, two = (runs[0].assign(data=f"text:{name}-0123abcd") for name in ("mine.txt", "yours.txt"))
    assert compare_runs(one, two, "one", "other").differs == ()


def test_runs_of_several_models_are_refused(runs: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    from normlab.table import concat

    with pytest.raises(DataError, match="several models.*--where"):
        compare_runs(concat(runs), runs[0], "one", "two")
    with pytest.raises(DataError, match="no row in common"):
        compare_runs(runs[0], runs[0].assign(model_seed=runs[0]["model_seed"] + 10), "one", "two")


def test_a_run_and_a_model_are_refused(runs: tuple[pd.DataFrame, pd.DataFrame], planted: ModuleType) -> None:
    with pytest.raises(DataError, match="two models or two runs"):
        nl.compare(runs[0], Subject("m", planted.clean()))


@pytest.mark.parametrize("other", [pd.DataFrame(), pd.DataFrame({"value": [1.0]}), from_rows([])])
def test_what_is_no_table_of_a_run_is_one_sentence(
    runs: tuple[pd.DataFrame, pd.DataFrame], other: pd.DataFrame
) -> None:
    with pytest.raises(DataError, match="a table (is not a table of normlab|has no rows)"):
        nl.compare(runs[0], other)


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_table_at_all_is_one_sentence(runs: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    no_table: Any = 3
    with pytest.raises(DataError, match="two is int and not a table of normlab"):
        compare_runs(runs[0], no_table, "one", "two")


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


def test_a_stream_that_only_one_run_has_is_not_passed_over() -> None:
    place = {"sublayer": "mlp", "site": "stream"}
    rows = [{"layer": layer, "value": 1.0, "quantity": "median_rms", **place} for layer in (1, 2)]
    whole = from_rows(rows)
    odd = from_rows(
        [
            rows[0],
            rows[1] | {"value": float("nan"), "status": "nonfinite"},
            {"layer": 2, "value": 7.0, "quantity": "nonfinite", **place},
        ]
    )
    for other, says in (
        (whole[whole["layer"] == 1], "{1} has a stream after the MLP of block 2 and {0} has none"),
        (odd, r"the stream of {0} is not finite after the MLP of block 2 \(7 entries\), the first place"),
    ):
        for pair, names in (((whole, other), "BA"), ((other, whole), "AB")):
            with pytest.raises(DataError, match=says.format(*names)):
                compare_runs(*pair, "one", "two")
    with pytest.raises(DataError, match="A's streams are of decoder, B's of encoder"):
        compare_runs(*(from_rows([rows[0] | {"stack": name}]) for name in ("decoder", "encoder")), "one", "two")
