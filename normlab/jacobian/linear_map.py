"""The derivative of a function at a point, as a linear map that is applied and never formed."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.errors import DataError
from normlab.jacobian.arithmetic import Digits, JacobianWarning
from normlab.jacobian.evaluating import (
    Function,
    JacobianError,
    NonFiniteJacobian,
    evaluate,
    plain_attention,
    prepared,
)

__all__ = ["Function", "JacobianError", "LinearMap", "agreed", "linear_map", "linearised"]

#: Roundings beyond which a difference of ⟨u, J v⟩ and ⟨Jᵀu, v⟩ is none, and its size beyond which there is no J.
_ROUNDING: Final = 1e5
_NOT_LINEAR: Final = 0.05


@dataclass(frozen=True)
class LinearMap:
    """J = ∂f/∂x at one point, by its products with vectors.

    Attributes:
        output: f(x).
        jvp: v ↦ J v, with v shaped as the input.
        vjp: u ↦ Jᵀ u, with u shaped as the output.
        jvp_batch: the same for a batch of v, along the first dimension.
        vjp_batch: the same for a batch of u.
        input_shape: shape of x.
        dtype: the one with the fewest digits that f computed with.
        agreement: by how much ⟨u, J v⟩ and ⟨Jᵀu, v⟩ differ for random u and v, in units of √Σ u_i² (J v)_i²; NaN where
            that was not looked at.
    """

    output: Float[Tensor, "*output"]
    jvp: Callable[[Tensor], Tensor]
    vjp: Callable[[Tensor], Tensor]
    jvp_batch: Callable[[Tensor], Tensor]
    vjp_batch: Callable[[Tensor], Tensor]
    input_shape: tuple[int, ...]
    dtype: torch.dtype = torch.float64
    agreement: float = float("nan")

    @property
    def rows(self) -> int:
        """Number of entries of the output."""
        return self.output.numel()

    @property
    def columns(self) -> int:
        """Number of entries of the input."""
        return int(torch.Size(self.input_shape).numel())

    @property
    def dtype_name(self) -> str:
        """:attr:`dtype` as the table has it."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def transposed(self) -> "LinearMap":
        """Jᵀ; its ``output`` says no more than shape, dtype and device."""
        return LinearMap(
            self.output.new_zeros(self.input_shape),
            jvp=self.vjp,
            vjp=self.jvp,
            jvp_batch=self.vjp_batch,
            vjp_batch=self.jvp_batch,
            input_shape=tuple(self.output.shape),
            dtype=self.dtype,
            agreement=self.agreement,
        )

    def after(self, first: "LinearMap") -> "LinearMap":
        """Return J₂ J₁: this map applied to what ``first`` gives, without forming either."""
        return replace(
            self,
            jvp=lambda v: self.jvp(first.jvp(v)),
            vjp=lambda u: first.vjp(self.vjp(u)),
            jvp_batch=lambda v: self.jvp_batch(first.jvp_batch(v)),
            vjp_batch=lambda u: first.vjp_batch(self.vjp_batch(u)),
            input_shape=first.input_shape,
        )


@contextmanager
def linearised(function: Function, x: Float[Tensor, "*input"]) -> Iterator[LinearMap]:
    """Differentiate ``function`` at ``x`` once, for any number of products.

    A module is copied to float64, and ``x`` with it, so that the caller's model is not touched; any other callable is
    used as it is, in the dtype of ``x``, on a copy of it. Casts of float64 tensors to fewer digits are suspended; where
    one cannot be, as in compiled code or in a backward pass of the function's own, there is a warning, and also where
    J v and Jᵀu are not each other's transposes to all digits. Attention runs in its elementary form meanwhile: fused
    kernels have no second derivative, and J v is the derivative of the linear map u ↦ Jᵀ u. No recorder takes note of
    the evaluation.

    Raises:
        JacobianError: the output is not one floating-point tensor that depends on the input, the function draws random
            numbers or updates running statistics, or its backward pass is not linear.
        DataError: ``x`` is not a finite floating-point tensor.
    """
    _check_point(x)
    with plain_attention(), torch.inference_mode(False), torch.enable_grad():
        ready, dtype = prepared(function), torch.float64 if isinstance(function, nn.Module) else x.dtype
        point = x.detach().to(dtype).clone().requires_grad_()
        with Digits(dtype) as digits:
            output = _output(ready, point)
        digits.warn()
        jacobian = agreed(linear_map(output, point, digits.dtype))
        try:
            yield jacobian
        except NonFiniteJacobian as error:
            raise NonFiniteJacobian(f"{getattr(function, 'name', 'the function')}: {error}") from error


def _check_point(x: Tensor) -> None:
    if not isinstance(x, Tensor) or not x.is_floating_point():
        what = f"a {x.dtype} tensor" if isinstance(x, Tensor) else f"a {type(x).__name__}"
        raise DataError(f"the point x is {what}: give a tensor of floating-point numbers")
    if not x.numel():
        raise DataError(f"the point x has shape {tuple(x.shape)} and no entries: give at least one")
    if not bool(torch.isfinite(x).all()):
        count = int((~torch.isfinite(x)).sum())
        raise DataError(f"{count} of the {x.numel()} entries of the point x are not finite: give finite numbers")


def linear_map(
    output: Float[Tensor, "*output"], point: Float[Tensor, "*input"], dtype: torch.dtype = torch.float64
) -> LinearMap:
    """Return ∂output/∂point of a graph that autograd has recorded.

    The graph of Jᵀ, whose derivative J v is, is built when the first J v is asked for.

    Args:
        output: f(x).
        point: x.
        dtype: the one with the fewest digits that f computed with.
    """
    kept: list[tuple[Tensor, Tensor]] = []

    def transposed() -> tuple[Tensor, Tensor]:
        if not kept:
            with torch.enable_grad():
                probe = torch.zeros_like(output, requires_grad=True)
                pulled = _grad(output, point, probe, create_graph=True)
            kept.append((pulled, probe))
        return kept[0]

    return LinearMap(
        output.detach(),
        jvp=lambda v: _product(*transposed(), v),
        vjp=lambda u: _product(output, point, u),
        jvp_batch=lambda v: _products(*transposed(), v),
        vjp_batch=lambda u: _products(output, point, u),
        input_shape=tuple(point.shape),
        dtype=dtype,
    )


def agreed(jacobian: LinearMap) -> LinearMap:
    """Return the map with its :attr:`~LinearMap.agreement`, and a warning where that is more than rounding.

    A backward pass of somebody's own may round what it is given, or be no linear map at all.

    Raises:
        JacobianError: it is none.
    """
    generator = torch.Generator().manual_seed(0)
    u, v = (
        torch.randn(shape, generator=generator, dtype=torch.float64).to(jacobian.output)
        for shape in (jacobian.output.shape, jacobian.input_shape)
    )
    with Digits(jacobian.dtype) as digits:
        try:
            forth = (u * jacobian.jvp(v)).double()
        except RuntimeError:  # it cannot be differentiated twice, which J v says where it is asked for
            return jacobian
        back = (v * jacobian.vjp(u)).double()
    digits.warn()
    largest = float(forth.abs().max())
    if not 0 < largest < float("inf"):
        return jacobian
    apart = float(((forth / largest).sum() - (back / largest).sum()).abs())
    gap, eps = apart / float(torch.linalg.vector_norm(forth / largest)), torch.finfo(digits.dtype).eps
    # Where all of J is rounding, so is its transpose.
    rounding = _ROUNDING * eps * float(torch.linalg.vector_norm(u.double()) * torch.linalg.vector_norm(v.double()))
    if gap > _NOT_LINEAR + 16 * eps and apart * largest > rounding:
        raise JacobianError(
            f"⟨u, J v⟩ and ⟨Jᵀu, v⟩ differ by {gap:.1g} of their size: the function's backward pass is no linear map's "
            f"transpose; leave out what clips, rounds or replaces gradients"
        )
    if gap > _ROUNDING * eps:
        warnings.warn(
            f"J v and Jᵀu are each other's transposes to {gap:.0e} only: the function's derivative loses digits, as by "
            f"a cast to float32 or by cancellation",
            JacobianWarning,
            stacklevel=2,
        )
    return replace(jacobian, dtype=digits.dtype, agreement=gap)


def _product(of: Tensor, to: Tensor, w: Tensor) -> Tensor:
    """Return ∂⟨of, w⟩/∂to."""
    if not of.requires_grad:
        return torch.zeros_like(to)
    return _grad(of, to, w.to(of), retain_graph=True).detach()


def _grad(of: Tensor, to: Tensor, w: Tensor, **how: bool) -> Tensor:
    try:
        return torch.autograd.grad(of, to, w, materialize_grads=True, **how)[0]
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
        raise JacobianError(
            "the function writes in place over what its derivative needs: let it make a new tensor, as x = x * y does "
            "where x *= y does not"
        ) from error


def _products(of: Tensor, to: Tensor, w: Tensor) -> Tensor:
    """Return the same for a batch of vectors: in one pass where every operation has a batching rule."""
    if not of.requires_grad:
        return torch.zeros(w.shape[0], *to.shape, dtype=to.dtype, device=to.device)
    try:
        return _grad(of, to, w.to(of), retain_graph=True, is_grads_batched=True).detach()
    except RuntimeError:
        return torch.stack([_product(of, to, vector) for vector in w])


def _output(function: Callable[[Tensor], Tensor], point: Tensor) -> Tensor:
    # A copy, so that a function may write to its input.
    output = evaluate(function, point.clone())
    if not isinstance(output, Tensor):
        example = ", as lambda x: f(x)[0] does" if isinstance(output, tuple | list) and output else ""
        raise JacobianError(f"the function returns {_what(output)}: let it return one floating-point tensor{example}")
    if not output.is_floating_point():
        raise JacobianError(f"the function returns a {output.dtype} tensor: let it return floating-point numbers")
    if not output.numel():
        raise JacobianError(f"the function returns a tensor of shape {tuple(output.shape)}, which has no entries")
    if not output.requires_grad:
        raise JacobianError(
            "the function's result does not depend on x as far as autograd can tell, so its Jacobian would be zero: "
            "leave out detach, no_grad and .item()"
        )
    return output


def _what(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
