"""The growth law of a stream, with and without its most massive tokens, on streams whose law is planted."""

import math

import numpy as np
import pytest
import torch

from normlab.digits import number
from normlab.inspection.finding import ranges
from normlab.inspection.growth import growth
from normlab.inspection.looking import Look
from normlab.inspection.tokens import tokens_of
from normlab.recording import Address


def look(squares: list[float], massive: dict[int, float] | None = None) -> Look:
    """Streams whose tokens have these mean squares; the first token of each sequence may have another."""
    found = Look()
    for layer, square in enumerate(squares, start=1):
        x = torch.ones(2, 8, 4, dtype=torch.float64) * math.sqrt(square)
        if massive and layer in massive:
            x[:, 0] = math.sqrt(massive[layer])
        found.streams[Address("decoder", layer, "mlp", "stream")] = tokens_of(x)
    return found


@pytest.mark.parametrize(
    ("law", "squares", "a", "b"),
    [
        ("linear", [3 + 0.5 * layer for layer in range(1, 21)], 3, 0.5),
        ("exponential", [math.exp(0.1 + 0.2 * layer) for layer in range(1, 21)], 0.1, 0.2),
        ("quadratic", [1 + 0.2 * layer**2 for layer in range(1, 21)], 1, 0.2),
    ],
)
def test_a_planted_law_is_found(law: str, squares: list[float], a: float, b: float) -> None:
    (found,) = growth(look(squares, dict.fromkeys(range(7, 15), 1e9)))
    bulk = found.numbers["laws"]["without the most massive tokens"]
    assert bulk["law"] == law and (bulk["a"], bulk["b"]) == (pytest.approx(a), pytest.approx(b))
    assert found.numbers["bulk_mean_square"] == pytest.approx(squares)
    assert f"the nearest law is {law}" in found.says and "typically off by a factor of 1.00" in found.says
    assert "all tokens, it goes from" in found.says and "by no law of two parameters" in found.says


def test_a_flat_stream_has_no_law_and_is_no_finding() -> None:
    (found,) = growth(look([1.0, 1.1, 1.05, 1.2, 1.0]))
    assert not found.found and "stays between 1.00 and 1.20" in found.says
    assert found.numbers["laws"] == {"all tokens": None, "without the most massive tokens": None}


@pytest.mark.parametrize(("factor", "found"), [(99, False), (101, True), (1 / 99, False), (1 / 101, True)])
def test_the_threshold_is_tenfold_in_rms(factor: float, found: bool) -> None:
    assert growth(look([1.0, factor**0.5, factor]))[0].found is found


def test_a_stream_that_rises_and_falls_back_is_found_with_its_peak() -> None:
    (found,) = growth(look([1.0, 20.0, 400.0, 30.0, 2.0]))
    assert found.found and found.numbers["rms_ratio_without_massive"] == pytest.approx(20)
    assert (found.numbers["least_after"], found.numbers["largest_after"]) == (1, 3)
    assert "it is least after block 1 and largest after block 3: 20.0-fold in rms" in found.says
    (found,) = growth(look([400.0, 20.0, 1.0, 30.0, 300.0]))
    assert found.found and "least after block 3 and largest after block 1" in found.says


def test_a_peak_that_is_one_massive_token_is_none() -> None:
    (found,) = growth(look([1.0, 1.2, 1.1, 1.3], {2: 1e9}))
    assert not found.found and found.numbers["rms_ratio_without_massive"] == pytest.approx(1.3**0.5)


def test_one_block_is_no_reach() -> None:
    (found,) = growth(look([2.0]))
    assert found.says.startswith("Mean square q of the stream after block 1: all tokens, it is 2.00; without")


def test_what_the_threshold_is_on_is_always_said() -> None:
    squares = [2.0**layer for layer in range(1, 13)]
    (found,) = growth(look(squares))
    assert found.found
    assert "Without them it is least after block 1 and largest after block 12: 45.3-fold in rms." in found.says
    (found,) = growth(look([2.0, 200.0]))
    assert not found.found and "largest after block 2: 10.0-fold in rms" in found.says


def test_the_typical_factor_is_no_less_than_what_is_said_beside_it() -> None:
    squares = [1.0] * 10 + [1000.0] * 10
    (found,) = growth(look(squares))
    law = found.numbers["laws"]["all tokens"]
    fitted = np.exp(law["a"] + law["b"] * np.sqrt(np.arange(1, 21)))
    if law["law"] == "exponential":
        fitted = np.exp(law["a"] + law["b"] * np.arange(1, 21))
    off = np.log(np.array(squares) / fitted)
    assert law["typical_factor"] == pytest.approx(math.exp(np.sqrt(np.mean(off**2))))
    assert law["farthest_after"] == 1 + int(np.abs(off).argmax())
    assert law["farthest_over_law"] == pytest.approx(math.exp(off[law["farthest_after"] - 1]))
    assert f"typically off by a factor of {law['typical_factor']:.2f}, farthest off after block" in found.says


def test_a_few_blocks_are_too_few_for_a_law() -> None:
    (found,) = growth(look([1.0, 4.0, 9.0]))
    assert "too few blocks for a law" in found.says


def test_words() -> None:
    assert [number(value) for value in (0, 1.2345, 123.4, 2e5, -0.5, math.nan)] == [
        "0", "1.23", "123", "2.00e+05", "−0.500", "no finite value"
    ]  # fmt: skip
    assert ranges([5, 1, 2, 3, 3]) == "1-3, 5"


def test_the_laws_numbers_and_the_block_farthest_from_it_are_said() -> None:
    squares = [3 + 0.5 * layer for layer in range(1, 21)]
    squares[11] *= 1.4
    (found,) = growth(look(squares))
    x, y = np.delete(np.arange(1.0, 21.0), 11), np.delete(squares, 11)
    law = found.numbers["laws"]["all tokens"]
    (b, a), (low, high) = np.polyfit(x, y, 1), law["b_with_one_block_left_out"]
    # Without the block that stands out the line is exact: the other end of what leaving one out does.
    assert (a, b) == (pytest.approx(3), pytest.approx(0.5)) and low <= 0.5 <= high
    assert any(end == pytest.approx(3) for end in law["a_with_one_block_left_out"])
    assert law["farthest_after"] == 12
    assert law["farthest_over_law"] == pytest.approx(squares[11] / (law["a"] + 12 * law["b"]))
    assert f"q = {number(law['a'])} + {number(law['b'])}·ℓ (with any one block left out a is " in found.says
    assert f"farthest off after block 12, {number(law['farthest_over_law'])} times the law's" in found.says


def test_no_law_has_its_numbers_too() -> None:
    (found,) = growth(look([1.0, 1.0, 1.0, 1e4, 1e4, 1e4]))
    law = found.numbers["laws"]["all tokens"]
    assert "by no law of two parameters (the nearest, " in found.says and number(abs(law["b"])) in found.says
