"""The Jacobian of a norm in closed form: a diagonal times a projection, group by group."""

from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING, Union

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from normlab.jacobian.evaluating import JacobianError

if TYPE_CHECKING:
    from normlab.jacobian.closed_product import NormProduct


@dataclass(frozen=True, eq=False)
class NormJacobian:
    """J = diag(γ) · s (I − U C Wᵀ) on each group of entries that are normed together, and 0 between groups.

    A group is a token's features (LayerNorm), some of them (GroupNorm), a feature of all tokens (BatchNorm on a
    batch) or one entry (a pointwise function). Everything is float64, on the CPU.

    Attributes:
        groups: flat indices of the entries of each group.
        gain: γ of each entry.
        scale: s of each group: 1/√(v + ε), or the slope of a pointwise function.
        directions: U, unit columns in each group; a column of zeros stands for no direction.
        readings: W, orthogonal columns with WᵀU = I: U itself, except where padding takes no part in statistics.
        shares: C, from 0 to 1, by how much a direction is taken out: 1 where it does nothing at all, v/(v + ε) for
            the norm's own direction.
        shape: of the input and the output.
    """

    groups: Int[Tensor, "group member"]
    gain: Float[Tensor, "group member"]
    scale: Float[Tensor, " group"]
    directions: Float[Tensor, "group member direction"]
    readings: Float[Tensor, "group member direction"]
    shares: Float[Tensor, "group direction"]
    shape: tuple[int, ...]

    def product(self, v: Float[Tensor, "*input"]) -> Float[Tensor, "*input"]:
        """Return J v."""
        return self._joined(self.gain * self._projected(self._split(v), self.directions, self.readings))

    def transposed_product(self, u: Float[Tensor, "*input"]) -> Float[Tensor, "*input"]:
        """Return Jᵀ u."""
        return self._joined(self._projected(self.gain * self._split(u), self.readings, self.directions))

    def matrix(self) -> Float[Tensor, "entries entries"]:
        """Return J."""
        size = self.groups.numel()
        whole = torch.zeros(size, size, dtype=torch.float64)
        for index, block in zip(self.groups, self.blocks(), strict=True):
            whole[index[:, None], index] = block
        return whole

    def blocks(self) -> Float[Tensor, "group member member"]:
        """Return the matrix of each group."""
        u = self.directions
        kept = torch.eye(u.shape[1], dtype=torch.float64) - (u * self.shares[:, None]) @ self.readings.transpose(1, 2)
        return (self.gain * self.scale[:, None])[:, :, None] * kept

    def frobenius(self) -> float:
        """Return ‖J‖_F = √(Σ s² Σ_i γ_i² (1 − Σ_k (2 c_k U_ik W_ik − c_k² ‖W_k‖² U_ik²))), over groups and entries."""
        taken, read = self.directions * self.shares[:, None], self.readings
        kept = 1 - (2 * taken * read - taken.square() * read.square().sum(dim=1, keepdim=True)).sum(dim=2)
        return float((self.scale[:, None].square() * self.gain.square() * kept).sum().clamp(min=0).sqrt())

    def singular_values(self) -> Float[Tensor, " entries"]:
        """Return all singular values, descending.

        Where γ is one number in a group up to signs, and W = U, they are |γ| s, and |γ| s (1 − c_k) for each direction.
        Other gains have no formula; the values interlace s |γ_i|, and are those of the group's matrix.
        """
        size = self.gain.abs()
        even = (size == size[:, :1]).all(dim=1) & (self.directions.shape[2] <= size.shape[1])
        even = even & (self.readings == self.directions).all(dim=(1, 2))
        found = []
        if even.any():
            factors = torch.ones_like(self.gain[even])
            present = self.directions[even].square().sum(dim=1) > 0.5
            factors[:, : present.shape[1]] = torch.where(present, 1 - self.shares[even], 1.0)
            found.append(factors * size[even, :1] * self.scale[even, None].abs())
        if not even.all():
            found.append(torch.linalg.svdvals(self.blocks()[~even]))
        return torch.cat([part.flatten() for part in found]).sort(descending=True).values

    def right_null(self) -> tuple[Float[Tensor, "_ _"], ...]:
        """Return for each group an orthonormal basis of the inputs that do nothing: J v = 0.

        Without zeros in γ these are the directions with a share of 1: span{1, x − μ} for LayerNorm without ε.
        """
        return tuple(self._null(group, transposed=False) for group in range(len(self.groups)))

    def left_null(self) -> tuple[Float[Tensor, "_ _"], ...]:
        """Return for each group an orthonormal basis of the outputs that never come out: Jᵀ u = 0.

        Without zeros in γ these are span γ⁻¹ ⊙ W of the directions with a share of 1.
        """
        return tuple(self._null(group, transposed=True) for group in range(len(self.groups)))

    def _null(self, group: int, *, transposed: bool) -> Tensor:
        gain, u, shares = self.gain[group], self.directions[group], self.shares[group]
        if not gain.all() or not self.scale[group]:
            block = self.blocks()[group]
            return null_space(block.T if transposed else block)
        gone = (shares == 1) & (u.square().sum(dim=0) > 0.5)
        spanning = self.readings[group][:, gone] / gain[:, None] if transposed else u[:, gone]
        basis: Tensor = torch.linalg.qr(spanning)[0]
        return basis

    def _split(self, v: Tensor) -> Tensor:
        return v.cpu().double().flatten()[self.groups]

    def _projected(self, v: Tensor, onto: Tensor, along: Tensor) -> Tensor:
        inner = torch.einsum("gmk,gm->gk", along, v) * self.shares
        kept: Tensor = (v - torch.einsum("gmk,gk->gm", onto, inner)) * self.scale[:, None]
        return kept

    def _joined(self, parts: Tensor) -> Tensor:
        whole = torch.empty(parts.numel(), dtype=torch.float64)
        whole[self.groups.flatten()] = parts.flatten()
        return whole.reshape(self.shape)


def null_space(matrix: Tensor) -> Tensor:
    """Return an orthonormal basis of the vectors that a square matrix maps to 0 within rounding."""
    _, values, vh = torch.linalg.svd(matrix)
    floor = len(matrix) * torch.finfo(torch.float64).eps * values[0]
    null: Tensor = vh[values <= floor].T
    return null


@singledispatch
def closed_form(norm: nn.Module, x: Float[Tensor, "*batch width"]) -> Union[NormJacobian, "NormProduct"]:
    """Return the Jacobian of a norm at ``x`` in closed form, with its gain and ε.

    It is a :class:`NormProduct` for PowerNorm with ``prescale`` while it warms up: tokens are normed, then features.
    The norms of the zoo and of torch have one, and any module that a probe finds to be LayerNorm or RMSNorm, such as
    those of transformers. A norm of your own gets one by its class::

        @nl.jacobian.closed_form.register(MyNorm)
        def my_norm(norm, x):
            return nl.jacobian.pointwise(x, slope=..., gain=norm.gain)

    Args:
        norm: the module, in train or eval mode as it is to be differentiated.
        x: its input.

    Raises:
        JacobianError: no closed form is known; :func:`~normlab.jacobian.dense` gives the matrix of any module.
    """
    raise JacobianError(
        f"no closed form is known for {type(norm).__name__}: register one with closed_form.register, or use dense"
    )


def grouped(
    x: Float[Tensor, "*batch width"],
    groups: Int[Tensor, "group member"],
    *,
    gain: Tensor | float | None,
    scale: Float[Tensor, " group"],
    directions: Float[Tensor, "group member direction"] | None = None,
    shares: Float[Tensor, "group direction"] | None = None,
    part: Float[Tensor, "group member"] | None = None,
) -> NormJacobian:
    """Build a :class:`NormJacobian`; directions are made unit vectors here, and need to be orthogonal.

    Args:
        x: the input.
        groups: flat indices of the entries of each group.
        gain: γ, one a feature, one number, or ``None`` for 1.
        scale: s of each group.
        directions: U; none unless given.
        shares: C.
        part: 1 for entries that take part in the statistics, on which directions are orthogonal, and 0 for others; all
            unless given.
    """
    ones = torch.ones(x.shape, dtype=torch.float64)
    gains = ones if gain is None else ones * torch.as_tensor(gain).detach().cpu().double()
    if directions is None or shares is None:
        directions, shares = torch.zeros(*groups.shape, 0), torch.zeros(len(groups), 0)
    length = torch.linalg.vector_norm(directions, dim=1, keepdim=True)
    unit = torch.where(length > 0, directions / length.clamp(min=1e-300), 0.0).double()
    read = unit
    if part is not None:
        read = unit * part[:, :, None]
        read = read / read.square().sum(dim=1, keepdim=True).clamp(min=1e-300)
    return NormJacobian(
        groups,
        gains.flatten()[groups],
        scale.cpu().double(),
        unit,
        read,
        shares.double(),
        tuple(int(size) for size in x.shape),
    )
