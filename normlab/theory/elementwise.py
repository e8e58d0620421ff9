"""Maps that act on each entry of a covariance by itself: norms and position-wise functions."""

from dataclasses import dataclass

from normlab.theory.kernels import Array


@dataclass(frozen=True, eq=False)
class Elementwise:
    """A map y = γ M(x) + β of tokens, as what it does to covariances.

    Attributes:
        value: covariance of the outputs.
        slope: what the gradient's covariance at the output is multiplied by to give the one at the input.
        first: E[∂y/∂x] of the first token of each pair: what a covariance with something independent of the map
            is multiplied by.
        second: the same of the second token.
        unit: covariance of M(x).
        lost: share of a gradient's square that goes with directions of the input that change nothing, where ``slope``
            leaves it out: a norm on the stream costs only what has joined the gradient since the last one (N3).
        gains: learnable entries of γ for each feature: 1, one for all features (1/d), or none (0).
        shifts: the same for β.
    """

    value: Array
    slope: Array | float
    first: Array | float
    second: Array | float
    unit: Array
    lost: float = 0.0
    gains: float = 0.0
    shifts: float = 0.0

    def roles(self, gradient: Array) -> dict[str, Array]:
        """Return entries that sum to E‖∂loss/∂γ‖² and E‖∂loss/∂β‖², given the gradient at the output (N4)."""
        roles = {}
        if self.gains:
            roles["norm_gain"] = self.gains * gradient * self.unit
        if self.shifts:
            roles["norm_bias"] = self.shifts * gradient
        return roles


def identity(covariance: Array) -> Elementwise:
    """Return the map that changes nothing."""
    return Elementwise(covariance, 1.0, 1.0, 1.0, covariance)


def added(*parts: dict[str, Array]) -> dict[str, Array]:
    """Return the entries of each role, summed where several parts have it."""
    total: dict[str, Array] = {}
    for part in parts:
        for role, entries in part.items():
            total[role] = total[role] + entries if role in total else entries
    return total
