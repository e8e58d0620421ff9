"""Singular values as data, and what follows from all of them: rank, condition number, volume."""

from dataclasses import dataclass

import numpy as np

from normlab.jacobian.evaluating import JacobianError


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Singular values of a Jacobian.

    Attributes:
        values: all of them, or the k largest, descending.
        residuals: ‖Jᵀu − σv‖/σ₁ of each, with u = Jv/‖Jv‖: an eigenvalue of JᵀJ lies within
            residual · σ₁ · σ of σ².
        shape: rows and columns of the Jacobian.
    """

    values: np.ndarray
    residuals: np.ndarray
    shape: tuple[int, int]

    @property
    def complete(self) -> bool:
        """Whether these are all singular values."""
        return len(self.values) == min(self.shape)

    @property
    def rank(self) -> int:
        """The number of singular values above max(rows, columns) · 2⁻⁵² · σ₁, which is where rounding ends.

        Raises:
            JacobianError: not all singular values are known.
        """
        self._need_all("the rank")
        floor = max(self.shape) * float(np.finfo(np.float64).eps) * float(self.values[0])
        return int((self.values > floor).sum())

    def condition(self, *, rank: int | None = None) -> float:
        """Return σ₁/σ_r, infinite where σ_r is zero within rounding.

        Args:
            rank: r, all singular values unless given; with r = :attr:`rank` null directions are left out.

        Raises:
            JacobianError: not all singular values are known, or there is no such r.
        """
        r = self._counted("the condition number", rank)
        return float(self.values[0] / self.values[r - 1]) if r <= self.rank else float("inf")

    def log_volume(self, *, rank: int | None = None) -> float:
        """Return Σ_{i ≤ r} ln σ_i, in nats: ln |det J| of a square J; −∞ where a σ_i is zero within rounding.

        Args:
            rank: r, all singular values unless given; with r = :attr:`rank` it is the volume on the range alone.

        Raises:
            JacobianError: not all singular values are known, or there is no such r.
        """
        r = self._counted("the log-volume", rank)
        return float(np.log(self.values[:r]).sum()) if r <= self.rank else float("-inf")

    def _counted(self, what: str, rank: int | None) -> int:
        self._need_all(what)
        r = len(self.values) if rank is None else rank
        if not 1 <= r <= len(self.values):
            raise JacobianError(f"rank is {r}: give 1 to {len(self.values)}, the number of singular values")
        return r

    def _need_all(self, what: str) -> None:
        if not self.complete:
            raise JacobianError(
                f"{what} needs all {min(self.shape)} singular values and {len(self.values)} are known: give k=None"
            )
