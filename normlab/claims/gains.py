"""Forward and backward gains of an MLP branch of unit-gain Gaussian matrices, from Gaussian integrals."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import special

from normlab.fits.intervals import Floats


@dataclass(frozen=True)
class Gain:
    """What a branch does to squared sizes.

    Attributes:
        forward: v = E|F(z)|²/E|z|².
        backward: χ = E‖J_F‖²_F/d.
    """

    forward: float
    backward: float

    @property
    def exponent(self) -> float:
        """ζ = χ/v."""
        return self.backward / self.forward


def _expect(function: Callable[[Floats], Floats]) -> float:
    """E f(z) for z ~ N(0, 1), by a fine trapezoidal rule, which converges fast for such integrands."""
    z = np.linspace(-12.0, 12.0, 48_001)
    return float(np.trapezoid(function(z) * np.exp(-z * z / 2), z) / math.sqrt(2 * math.pi))


def _silu(z: Floats) -> Floats:
    return np.asarray(z * special.expit(z))


def _silu_slope(z: Floats) -> Floats:
    gate = special.expit(z)
    return np.asarray(gate * (1 + z * (1 - gate)))


def _gelu(z: Floats) -> Floats:
    return np.asarray(z * special.ndtr(z))


def _gelu_slope(z: Floats) -> Floats:
    return np.asarray(special.ndtr(z) + z * np.exp(-z * z / 2) / math.sqrt(2 * math.pi))


def _plain(function: Callable[[Floats], Floats], slope: Callable[[Floats], Floats]) -> Gain:
    return Gain(_expect(lambda z: function(z) ** 2), _expect(lambda z: slope(z) ** 2))


def _gated(function: Callable[[Floats], Floats], slope: Callable[[Floats], Floats]) -> Gain:
    """(W_up z) ⊙ φ(W_gate z): both factors pass a derivative, and E(W_up z)² = 1."""
    plain = _plain(function, slope)
    return Gain(plain.forward, plain.forward + plain.backward)


#: By activation, for the initialisation ``fan-in`` without further gains.
GAINS: Final[Mapping[str, Gain]] = {
    "relu": Gain(0.5, 0.5),
    "gelu": _plain(_gelu, _gelu_slope),
    "silu": _plain(_silu, _silu_slope),
    "tanh": _plain(np.tanh, lambda z: np.asarray(1 - np.tanh(z) ** 2)),
    "swiglu": _gated(_silu, _silu_slope),
}
