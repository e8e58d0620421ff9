"""What is said just below and just above each threshold, of looks that are written by hand."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pytest

from normlab import table as tables
from normlab.inspection import Finding
from normlab.inspection.agreeing import percent
from normlab.inspection.attention import HeadLogits
from normlab.inspection.blocks import idle
from normlab.inspection.gradients import gradients
from normlab.inspection.growth import growth
from normlab.inspection.logits import logits
from normlab.inspection.looking import Look, Peak
from normlab.inspection.massive import massive
from normlab.inspection.precision import head_room, rounding
from normlab.inspection.tokens import Place, Tokens
from normlab.recording import Address


def at(layer: int, site: str = "stream") -> Address:
    return Address("decoder", layer, "mlp" if layer else "embed", site)


def tokens(bulk: float = 1.0, largest: float = 1.0, top: float = 0.1, median: float = 1.0) -> Tokens:
    return Tokens(bulk, bulk, median, largest, Place(0, 0, 0), top, (), 0, 8)


def followed(*tracks: Sequence[float]) -> dict[int, dict[str, Any]]:
    """What is said of channels 0, 1, ... that have these values after the embedding and each block."""
    largest = [max(map(abs, values)) for values in zip(*tracks, strict=True)]
    look = Look(
        streams={at(layer): tokens(largest=one) for layer, one in enumerate(largest)},
        tracks={("decoder", Place(0, 1, channel)): {at(layer): value for layer, value in enumerate(track)}
                for channel, track in enumerate(tracks)},
    )  # fmt: skip
    found = massive(look, [])
    assert found.found
    entries: list[dict[str, Any]] = found.numbers["entries"]
    return {one["channel"]: one | {"says": found.says} for one in entries}


def blocks(steps: Sequence[dict[str, Any]]) -> list[tuple[int, float, float]]:
    return [(one["layer"], one["before"], one["after"]) for one in steps]


def test_an_entry_is_born_and_cancelled_where_its_size_changes_by_more_than_a_fifth_of_its_peak() -> None:
    (entry,) = followed([0, 190, 400, -1000, 950, 760, 540, 400]).values()
    assert (entry["peak"], entry["peak_at"]["layer"]) == (-1000, 3)
    assert blocks(entry["born"]) == [(2, 190, 400), (3, 400, -1000)]
    # The sign that changes is no change of size.
    assert blocks(entry["cancelled"]) == [(6, 760, 540)]
    assert [(run["from"]["layer"], run["to"]["layer"]) for run in entry["massive"]] == [(1, 7)]


def test_entries_come_by_the_size_of_their_peak() -> None:
    assert list(followed([0, 500], [0, -3000], [0, 900])) == [1, 2, 0]


@pytest.mark.parametrize(
    ("track", "says"),
    [
        ([510, 700, 890, 1000], "It is there from the start (510), is nowhere cancelled"),
        ([490, 680, 870, 1000], "It grows from 490 in steps of less than 20 % of its peak, is nowhere cancelled"),
        ([510, 1000, 810, 620, 510], "is nowhere cancelled"),
        ([510, 1000, 810, 620, 490], "fades in small steps"),
    ],
)
def test_an_entry_without_a_birth_or_an_end(track: Sequence[float], says: str) -> None:
    assert says in followed(track)[0]["says"]


def of_growth(bulk: Sequence[float], top: float = 0.1) -> Finding:
    (found,) = growth(Look({at(layer): tokens(one, top=top) for layer, one in enumerate(bulk, start=1)}, tokens=8))
    return found


@pytest.mark.parametrize(("ratio", "found"), [(9.9, False), (10.1, True)])
def test_a_stream_grows_if_its_rms_differs_ten_fold(ratio: float, found: bool) -> None:
    for values in ([1, 2, 3, ratio**2], [ratio**2, 3, 2, 1]):
        assert of_growth(values).found is found


@pytest.mark.parametrize(("most", "flat"), [(1.49, True), (1.51, False)])
def test_a_stream_has_a_law_if_its_mean_square_differs_by_half(most: float, flat: bool) -> None:
    found = of_growth([1, 1.1, 1.2, 1.3, most])
    assert (found.numbers["laws"]["all tokens"] is None) is flat
    assert ("it stays between 1.00 and 1.49" in found.says) is flat


@pytest.mark.parametrize(
    ("share", "says"), [(0.99999, "up to 99.9 % of"), (1.0, "up to 100 % of"), (0.5, "up to 50 %")]
)
def test_all_of_the_energy_is_said_of_all_of_it_only(share: float, says: str) -> None:
    assert says in of_growth([1, 1, 1, 1], share).says


@pytest.mark.parametrize(("left", "found"), [(2.99, True), (3.01, False), (-0.5, True)])
def test_few_doublings_are_left(left: float, found: bool) -> None:
    seen = head_room(Look(peak=Peak(65504 / 2**left, "block.0", "gives")))
    assert seen.found is found and seen.numbers["doublings"] == pytest.approx(left)
    says = "1.41-fold above its largest number, 65504" if left < 0 else f"{left:.2f} doublings are left"
    assert says in seen.says


def test_a_logit_that_is_larger_than_what_modules_give_sets_the_range_of_fp16() -> None:
    heads = {at(1, "logits"): [HeadLogits(9, 0.0, 1.0, 3.0), HeadLogits(9, 0.0, 1.0, 4 * 65504.0)]}
    look = Look({at(1): tokens()}, heads=heads, peak=Peak(65504 / 2**6, "block.0", "gives"))
    seen = head_room(look)
    assert seen.found and seen.numbers["doublings"] == -2 and seen.numbers["module"] == ""
    assert "a logit of head 1 in the MLP of block 1 (2.62e+05), 4.00-fold above" in seen.says
    look.heads = {at(1, "logits"): [HeadLogits(9, 0.0, 1.0, 3.0), HeadLogits(0, math.nan, math.nan, math.nan)]}
    seen = head_room(look)
    assert not seen.found and seen.says == (
        "6.00 doublings are left before fp16 overflows: the largest entry of all is in what block.0 gives (1024)."
    )


def test_no_doublings_are_left_to_be_told_where_entries_are_not_finite() -> None:
    broken = [HeadLogits(9, 0.0, 1.0, 3.0, nonfinite=2)]
    for look in (
        Look(peak=Peak(1.0, "block.0", "gives", nonfinite=1)),
        Look({at(1): tokens()}, heads={at(1, "logits"): broken}, peak=Peak(1.0, "block.0", "gives")),
    ):
        seen = head_room(look)
        assert (
            seen.found
            and "cannot be told" in seen.says
            and "doublings are left before fp16 overflows:" not in seen.says
        )
    assert "2 logits are not finite" in seen.says


def test_logits_that_were_not_seen_are_said_to_be_missing_from_the_range_of_fp16() -> None:
    seen = head_room(Look(peak=Peak(1.0, "block.0", "gives"), unseen=[at(1, "logits"), at(2, "logits")]))
    assert "The logits of 2 attention sub-layers were not seen, and may be larger." in seen.says


@pytest.mark.parametrize(("largest", "found"), [(99.0, False), (101.0, True)])
def test_a_logit_is_large(largest: float, found: bool) -> None:
    heads = {at(1, "logits"): [HeadLogits(9, 0.0, 1.0, 3.0), HeadLogits(9, 0.0, 1.0, largest)]}
    seen = logits(Look({at(1): tokens()}, heads=heads))
    assert seen.found is found and f"The largest logit of 2 heads is {largest:#.3g}".rstrip(".") in seen.says
    assert ("1 head has logits beyond ±100: head 1 in" in seen.says) is found


def test_a_sum_in_bfloat16_loses_much() -> None:
    lost = {at(1, "update"): (0.5, 0.09), at(2, "update"): (0.0, 0.12), at(3, "update"): (0.5, 0.11)}
    found = rounding(Look({at(1): tokens()}, lost=lost))
    assert found.found and "2 of 3 residual sums" in found.says and "most in the MLP of block 2 (12 %)" in found.says
    found = rounding(Look({at(1): tokens()}, lost={at(1, "update"): (0.5, 0.09)}))
    assert not found.found and "at most 9 % of the median token's update (in the MLP of block 1)" in found.says


@pytest.mark.parametrize(
    ("share", "says"), [(0.994, "99 %"), (0.996, "100 %"), (1.0, "100 %"), (3.0, "300 %"), (1e-6, "0.0001 %")]
)
def test_a_share_is_a_percentage_without_an_exponent(share: float, says: str) -> None:
    found = rounding(Look({at(1): tokens()}, lost={at(1, "update"): (share, share)}))
    assert percent(share) == says and f"{says}" in found.says


def test_blocks_that_barely_change_the_stream() -> None:
    look = Look({at(1): tokens()}, changes={at(1): 0.3, at(2): 0.049, at(3): 0.02, at(4): 0.051})
    found = idle(look)
    assert found.found and found.says.startswith("Blocks 2-3 barely") and "least in block 3 (0.0200)" in found.says
    found = idle(Look({at(1): tokens()}, changes={at(1): 0.3, at(2): 0.051, at(3): 0.2}))
    assert not found.found and "at least 0.0510 of its length (block 2)" in found.says


def of_gradients(**norms: Sequence[float]) -> Finding:
    def row(role: str, layer: int, norm: float) -> dict[str, object]:
        status = "ok" if norm > 0 and math.isfinite(norm) else "nonfinite" if norm else "exact-zero"
        return {"stack": "decoder", "layer": layer, "sublayer": "mlp", "role": role, "quantity": "grad_norm",
                "value": norm, "status": status}  # fmt: skip

    table: pd.DataFrame = tables.from_rows(
        [row(role, layer, one) for role, each in norms.items() for layer, one in enumerate(each, start=1)]
    )
    return gradients(table, True)


def test_a_gradient_grows_or_vanishes_ten_fold_along_its_line() -> None:
    for change, found in ((9.9, False), (10.1, True)):
        rising = [change ** (layer / 4) for layer in range(5)]
        # The line is that of medians: one block that stands apart does not bend it.
        assert of_gradients(down=rising).found is of_gradients(down=rising[::-1]).found is found
        bent = [*rising[:2], 1000.0, *rising[3:]]
        seen = of_gradients(down=bent).numbers["roles"][0]
        assert seen["factor"] == pytest.approx(1 / change) and seen["spread"] == pytest.approx(1000)


def test_the_line_goes_from_the_first_block_with_a_gradient_to_the_last() -> None:
    found = of_gradients(down=[0.0, 2.0, 4.0, 8.0, 16.0, math.inf])
    (role,) = found.numbers["roles"]
    assert role["factor"] == pytest.approx(1 / 8) and (role["zero"], role["nonfinite"]) == ([1], [6])
    assert found.found and "exactly zero in block 1 and not finite in block 6" in found.says


def test_biases_and_what_has_no_role_say_nothing() -> None:
    found = of_gradients(down=[1.0] * 5, up_bias=[1e-9, 1, 1, 1, 1e9], other=[1.0, 10, 100, 1000, 10000])
    assert not found.found and [one["role"] for one in found.numbers["roles"]] == ["down"]
