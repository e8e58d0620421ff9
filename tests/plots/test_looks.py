import matplotlib.colors
import pytest

from normlab.plots._style import depth_looks, kind_looks


def luminance(color: str) -> float:
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def to_rgb(color: str) -> tuple[float, float, float]:
    return matplotlib.colors.to_rgb(color)


def contrast_with_white(color: str) -> float:
    return 1.05 / (luminance(color) + 0.05)


@pytest.mark.parametrize("count", [1, 2, 6, 12])
def test_depths_differ_without_colour(count: int) -> None:
    looks = depth_looks([2**power for power in range(count)])
    assert len({(look.marker, look.dash) for look in looks.values()}) == count


def test_deeper_is_darker_and_every_line_stands_out() -> None:
    greys = [luminance(look.color) for _, look in sorted(depth_looks(range(1, 13)).items())]
    assert greys == sorted(greys, reverse=True)
    assert all(contrast_with_white(look.color) >= 3 for look in depth_looks(range(1, 13)).values())


def test_twenty_kinds_differ_and_stand_out() -> None:
    looks = kind_looks([f"kind {number}" for number in range(20)])
    assert len({(look.color, look.marker, look.dash) for look in looks.values()}) == 20
    assert len({(look.marker, look.dash) for look in list(looks.values())[:12]}) == 12
    assert all(contrast_with_white(look.color) >= 3 for look in looks.values())
