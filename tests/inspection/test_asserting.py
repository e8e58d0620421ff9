"""Conditions: the grammar, what they select, and one sentence for each way in which they can be wrong."""

import math

import pandas as pd
import pytest

from normlab.errors import DataError
from normlab.inspection import check, parse
from normlab.table import from_rows


@pytest.fixture
def table() -> pd.DataFrame:
    """A stream of 3 blocks whose median rms is 1, 2, ... in the order of the sub-layers; 0 at the embedding."""
    places = [(0, "embed"), *((layer, name) for layer in (1, 2, 3) for name in ("attn", "mlp"))]
    at = [{"stack": "decoder", "layer": layer, "sublayer": name} for layer, name in places]
    rows = [{**one, "site": "stream", "quantity": "median_rms", "value": float(i)} for i, one in enumerate(at)]
    rows += [{**one, "role": "down", "quantity": "grad_norm", "value": 10.0} for one in at if one["sublayer"] == "mlp"]
    rows += [{"quantity": "loss", "value": 2.5}]
    rows += [{**at[1], "site": "update", "quantity": "update_ratio", "value": math.nan, "status": "not observed"}]
    return from_rows(rows)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("stream.median_rms@last == 6", True),
        ("stream.median_rms@last < 6", False),
        ("stream.median_rms@first == 2", True),
        ("stream.median_rms@0 <= 0", True),
        ("stream.median_rms >= 2", True),  # after each block: 2, 4, 6
        ("stream.median_rms > 2", False),
        ("stream.median_rms:attn@2 == 3", True),
        ("stream.median_rms@2-3>=4", True),
        ("stream.median_rms@all != 4", False),
        ("down.grad_norm@last == 1e1", True),
        ("loss<2.6", True),
        ("loss > +2.5", False),
    ],
)
def test_a_condition_speaks_of_the_rows_it_names(table: pd.DataFrame, text: str, holds: bool) -> None:
    found = check(parse(text), table)
    assert found.holds is holds and found.says.startswith(f"{text}: {'holds' if holds else 'fails'}")


def test_a_row_without_a_value_fails_and_says_why(table: pd.DataFrame) -> None:
    found = check(parse("update.update_ratio < 100"), table)
    assert not found.holds and "not observed" in found.says and "block 1" in found.says


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cannot be read"),
        ("stream.median_rms@last", "cannot be read"),
        ("stream.median_rms < 1 < 2", "cannot be read"),
        ("stream.median_rmse < 1", "did you mean 'median_rms'"),
        ("stream < 1", "write it as in"),
        ("stream.rms:mpl < 1", "sub-layer 'mpl'"),
        ("stream.rms@end < 1", "give all, first, last, 3 or 2-5"),
        ("stream.rms@5-2 < 1", "give all, first, last, 3 or 2-5"),
        ("stream.rms < many", "no number"),
        ("stream.rms < nan.5", "no number"),
    ],
)
def test_a_bad_condition_is_one_sentence(text: str, says: str) -> None:
    with pytest.raises(DataError, match=says) as found:
        parse(text)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("text", ["steam.rms < 1", "stream.median_rms@9 < 1", "q.grad_norm < 1"])
def test_a_condition_without_rows_is_an_error(table: pd.DataFrame, text: str) -> None:
    with pytest.raises(DataError, match="no row"):
        check(parse(text), table)


def test_a_limit_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(DataError, match="no number"):
        parse("stream.rms < nan")
