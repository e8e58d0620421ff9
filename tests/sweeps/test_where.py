"""Which rows are wanted."""

import pytest

from normlab import table
from normlab.errors import DataError, UnknownNameError
from normlab.sweeps.where import conditions, matching


@pytest.fixture(scope="module")
def frame():
    return table.from_rows(
        [
            {"layer": layer, "site": site, "quantity": "rms", "value": layer + len(site)}
            for layer in (1, 2, 3)
            for site in ("stream", "input")
        ]
        + [{"quantity": "loss", "value": 5.0}]
    )


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (None, 7),
        ("layer == 2", 2),
        ("layer == 2 and site == 'stream'", 1),
        ("layer == 2 or quantity == 'loss'", 3),
        ("(layer > 1) & (value > 8)", 1),
        ({"layer": 2}, 2),
        ({"layer": [1, 2], "site": "input"}, 2),
        ({"layer": range(1, 4)}, 6),
        ({"layer": None}, 1),
        ({"site": ["stream", None]}, 4),
        ({"site": "nowhere"}, 0),
    ],
)
def test_rows_that_meet_every_condition(frame, where, expected):
    assert len(matching(frame, conditions(where))) == expected


def test_a_query_is_taken_apart_at_its_top_level_and():
    parts = conditions("depth == 8 and (site == 'stream' or layer > 1) and value > 0")
    assert [sorted(part.columns) for part in parts] == [["depth"], ["layer", "site"], ["value"]]


def test_an_unknown_column_suggests_the_nearest(frame):
    with pytest.raises(UnknownNameError, match="did you mean 'layer'"):
        matching(frame, conditions({"layers": 2}))
    with pytest.raises(UnknownNameError, match="did you mean 'layer'"):
        matching(frame, conditions("layers == 2"))


@pytest.mark.parametrize("where", ["layer ==", "layer + 'a' > 2"])
def test_a_query_that_cannot_be_evaluated_is_shown(frame, where):
    with pytest.raises(DataError, match="cannot be evaluated"):
        matching(frame, conditions(where))
