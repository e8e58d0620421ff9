import math

import pytest

from normlab.digits import cell, deviation, minus, number


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("-1.5e-07", "−1.5e−07"),
        ("slope -0.49 [-0.52, -.46]", "slope −0.49 [−0.52, −.46]"),
        ("from -inf to 2", "from −inf to 2"),
        ("Pre-LN, blocks 2-5, llama3-8b, x-1, 1/q-2", "Pre-LN, blocks 2-5, llama3-8b, x-1, 1/q-2"),
        ("text:a-0123abcd", "text:a-0123abcd"),
    ],
)
def test_signs_become_minus_signs_and_other_hyphens_stay(text: str, said: str) -> None:
    assert minus(text) == said


@pytest.mark.parametrize("value", [0.0, -0.5, 1.005, 99.96, 123.4, -12345.6, 1e5, 1e-4, -3.2e-9])
def test_three_digits_are_read_back(value: float) -> None:
    assert float(number(value).replace("−", "-")) == pytest.approx(value, rel=5e-3)
    assert cell(value) == number(value) and "-" not in number(value)


def test_no_number_ends_with_a_point() -> None:
    said = [number(value) for value in (99.94, 99.95, 99.96, -99.97, 100.4)]
    assert said == ["99.9", "100", "100", "−100", "100"]


def test_what_is_not_finite() -> None:
    assert [cell(value) for value in (math.nan, math.inf, -math.inf)] == ["–", "∞", "−∞"]
    assert number(math.nan) == "no finite value"


def test_a_ratio_near_1_is_how_much_it_is_off() -> None:
    said = [deviation(ratio) for ratio in (1.00092, 0.9986, 1.0, 1 + 1e-9, 1.0101, 0.5, math.nan, math.inf)]
    assert said == ["+0.092 %", "−0.14 %", "1", "+1e−07 %", "1.01", "0.500", "–", "∞"]
