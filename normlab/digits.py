"""How numbers are written for people: three significant digits, and one minus sign."""

import math
import re
from typing import Final

#: A hyphen that is a sign: of a number, or of its exponent.
_SIGN: Final = re.compile(r"(?<![\w.)\]])-(?=\.?\d|inf)|(?<=\de)-(?=\d)")

#: A ratio that is nearer to 1 than this is told by how much it is off.
NEAR: Final = 0.01


def minus(text: str) -> str:
    """Return text with the minus sign in place of hyphens that are signs of numbers.

    >>> minus(f"Pre-LN: slope {-1.5e-7:.1e} [-2, 1], blocks 2-5")
    'Pre-LN: slope −1.5e−07 [−2, 1], blocks 2-5'
    """
    return _SIGN.sub("−", text)


def number(value: float) -> str:
    """Return ``value`` with three significant digits, for a sentence.

    >>> number(-0.5), number(118.4), number(2e5)
    ('−0.500', '118', '2.00e+05')
    """
    if not math.isfinite(value):
        return "no finite value"
    if not value:
        return "0"
    if not 1e-3 <= abs(value) < 1e5:
        return minus(f"{value:.2e}")
    return minus(f"{value:#.3g}".rstrip(".") if abs(value) < 100 else f"{value:.0f}")


def cell(value: float) -> str:
    """Return ``value`` as :func:`number` does, for a table: a dash where there is none."""
    if math.isfinite(value):
        return number(value)
    return "∞" if value > 0 else "−∞" if value < 0 else "–"


def deviation(ratio: float) -> str:
    """Return a ratio for a table as :func:`cell` does; near 1 by how much it is off, which three digits do not tell.

    >>> deviation(1.00092), deviation(0.9986), deviation(1.0), deviation(1.25)
    ('+0.092 %', '−0.14 %', '1', '1.25')
    """
    if ratio == 1 or not abs(ratio - 1) < NEAR:
        return "1" if ratio == 1 else cell(ratio)
    return minus(f"{100 * (ratio - 1):+.2g} %")
