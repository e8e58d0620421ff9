"""How numbers are written for people: three significant digits, and one minus sign."""

import math
import re
from typing import Final

#: A hyphen that is a sign: of a number, or of its exponent.
_SIGN: Final = re.compile(r"(?<![\w.)\]])-(?=\.?\d|inf)|(?<=\de)-(?=\d)")


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
