"""The derivative of a function at a point, as a linear map that is applied and never formed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.errors import DataError
from normlab.jacobian.evaluating import Function, JacobianError, evaluate, plain_attention, prepared

__all__ = ["Function", "JacobianError", "LinearMap", "linear_map", "linearised"]


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
    """

    output: Float[Tensor, "*output"]
    jvp: Callable[[Tensor], Tensor]
    vjp: Callable[[Tensor], Tensor]
    jvp_batch: Callable[[Tensor], Tensor]
    vjp_batch: Callable[[Tensor], Tensor]
    input_shape: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Number of entries of the output."""
        return self.output.numel()

    @property
    def columns(self) -> int:
        """Number of entries of the input."""
        return int(torch.Size(self.input_shape).numel())

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

    A module is copied to float64, and ``x`` with it, so that the caller's model is not touched;
    any other callable is used as it is, in the dtype of ``x``. Attention runs in its
    elementary form meanwhile: fused kernels have no second derivative, and J v is the derivative of the
    linear map u ↦ Jᵀ u. No recorder takes note of the evaluation.

    Raises:
        JacobianError: the output is not one floating-point tensor that depends on the input, or the function
            draws random numbers or updates running statistics.
        DataError: ``x`` is not a finite floating-point tensor.
    """
    if not x.is_floating_point() or not bool(torch.isfinite(x).all()):
        raise DataError(f"the point x is a {x.dtype} tensor with non-finite or non-real entries: give finite numbers")
    with plain_attention(), torch.enable_grad():
        point = x.detach().to(torch.float64 if isinstance(function, nn.Module) else x.dtype).clone().requires_grad_()
        yield linear_map(_output(prepared(function), point), point)


def linear_map(output: Float[Tensor, "*output"], point: Float[Tensor, "*input"]) -> LinearMap:
    """Return ∂output/∂point of a graph that autograd has recorded.

    The graph of Jᵀ, whose derivative J v is, is built when the first J v is asked for.
    """
    kept: list[tuple[Tensor, Tensor]] = []

    def transposed() -> tuple[Tensor, Tensor]:
        if not kept:
            with torch.enable_grad():
                probe = torch.zeros_like(output, requires_grad=True)
                (pulled,) = torch.autograd.grad(output, point, probe, create_graph=True, materialize_grads=True)
            kept.append((pulled, probe))
        return kept[0]

    return LinearMap(
        output.detach(),
        jvp=lambda v: _product(*transposed(), v),
        vjp=lambda u: _product(output, point, u),
        jvp_batch=lambda v: _products(*transposed(), v),
        vjp_batch=lambda u: _products(output, point, u),
        input_shape=tuple(point.shape),
    )


def _product(of: Tensor, to: Tensor, w: Tensor) -> Tensor:
    """Return ∂⟨of, w⟩/∂to."""
    if not of.requires_grad:
        return torch.zeros_like(to)
    return torch.autograd.grad(of, to, w.to(of), retain_graph=True, materialize_grads=True)[0].detach()


def _products(of: Tensor, to: Tensor, w: Tensor) -> Tensor:
    """Return the same for a batch of vectors: in one pass where every operation has a batching rule."""
    if not of.requires_grad:
        return torch.zeros(w.shape[0], *to.shape, dtype=to.dtype, device=to.device)
    try:
        (batch,) = torch.autograd.grad(
            of, to, w.to(of), retain_graph=True, materialize_grads=True, is_grads_batched=True
        )
        return batch.detach()
    except RuntimeError:
        return torch.stack([_product(of, to, vector) for vector in w])


def _output(function: Callable[[Tensor], Tensor], point: Tensor) -> Tensor:
    output = evaluate(function, point)
    if not isinstance(output, Tensor) or not output.is_floating_point():
        raise JacobianError(
            f"the function returns {type(output).__name__}: wrap it so that it returns one floating-point tensor"
        )
    if not output.requires_grad:
        raise JacobianError("the output does not depend on x through differentiable operations: check the function")
    return output
