"""The Jacobian of one norm after another."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.jacobian.closed_form import NormJacobian, null_space


@dataclass(frozen=True, eq=False)
class NormProduct:
    """J = J₂ J₁ of two norms whose groups are different ones, so that all entries are one group.

    Attributes:
        second: J₂, at what the first norm gives.
        first: J₁.
    """

    second: NormJacobian
    first: NormJacobian

    def product(self, v: Float[Tensor, "*input"]) -> Float[Tensor, "*input"]:
        """Return J v."""
        return self.second.product(self.first.product(v))

    def transposed_product(self, u: Float[Tensor, "*input"]) -> Float[Tensor, "*input"]:
        """Return Jᵀ u."""
        return self.first.transposed_product(self.second.transposed_product(u))

    def matrix(self) -> Float[Tensor, "entries entries"]:
        """Return J."""
        return self.second.matrix() @ self.first.matrix()

    def blocks(self) -> Float[Tensor, "1 entries entries"]:
        """Return the matrix of the one group."""
        return self.matrix()[None]

    def frobenius(self) -> float:
        """Return ‖J‖_F of the matrix."""
        return float(torch.linalg.norm(self.matrix()))

    def singular_values(self) -> Float[Tensor, " entries"]:
        """Return all singular values, descending; those of a product of projections have no formula."""
        values: Tensor = torch.linalg.svdvals(self.matrix())
        return values

    def right_null(self) -> tuple[Float[Tensor, "_ _"], ...]:
        """Return an orthonormal basis of the inputs that do nothing: J v = 0."""
        return (null_space(self.matrix()),)

    def left_null(self) -> tuple[Float[Tensor, "_ _"], ...]:
        """Return an orthonormal basis of the outputs that never come out: Jᵀ u = 0."""
        return (null_space(self.matrix().T),)
