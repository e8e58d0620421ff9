"""Two runs are compared by their tables: seed by seed, and said to part where their streams do."""

from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from compared_models import TOKENS, compared, values

import normlab as nl
from normlab.errors import DataError
from normlab.inspection import Subject, compare_runs
from normlab.inspection.comparison import comparison_says
from normlab.models import Transformer
from normlab.table import from_rows


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
