"""The growth law of a stream, with and without its most massive tokens, on streams whose law is planted."""

import math

import pytest
import torch

from normlab.inspection.finding import number, ranges
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
    assert f"the nearest law is {law}" in found.says and "typical error 0 %" in found.says
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


def test_a_few_blocks_are_too_few_for_a_law() -> None:
    (found,) = growth(look([1.0, 4.0, 9.0]))
    assert "too few blocks for a law" in found.says


def test_words() -> None:
    assert [number(value) for value in (0, 1.2345, 123.4, 2e5, -0.5, math.nan)] == [
        "0", "1.23", "123", "2.00e+05", "−0.500", "no finite value"
    ]  # fmt: skip
    assert ranges([5, 1, 2, 3, 3]) == "1-3, 5"
