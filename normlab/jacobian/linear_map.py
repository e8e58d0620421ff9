"""The derivative of a function at a point, as a linear map that is applied and never formed."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from normlab.errors import DataError, NormlabError

Function: TypeAlias = Callable[[Tensor], Tensor] | nn.Module

# Modules that draw random numbers, or whose output depends on the call, while they train.
_RANDOM = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_RUNNING = (nn.modules.batchnorm._BatchNorm,)


class JacobianError(NormlabError, ValueError):
    """A function whose Jacobian is not defined, or would be wrong."""


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


@contextmanager
def linearised(function: Function, x: Float[Tensor, "*input"]) -> Iterator[LinearMap]:
    """Differentiate ``function`` at ``x`` once, for any number of products.

    A module is copied to float64, and ``x`` with it, so that the caller's model is not touched;
    any other callable is used as it is, in the dtype of ``x``. Attention runs in its
    elementary form meanwhile: fused kernels have no second derivative, and J v is the derivative of the
    linear map u ↦ Jᵀ u.

    Raises:
        JacobianError: the output is not one floating-point tensor that depends on the input, or the module
            draws random numbers or updates running statistics.
        DataError: ``x`` is not a finite floating-point tensor.
    """
    if not x.is_floating_point() or not bool(torch.isfinite(x).all()):
        raise DataError(f"the point x is a {x.dtype} tensor with non-finite or non-real entries: give finite numbers")
    with sdpa_kernel(SDPBackend.MATH), torch.enable_grad():
        point = x.detach().to(torch.float64 if isinstance(function, nn.Module) else x.dtype).clone().requires_grad_()
        output = _evaluate(_prepared(function), point)
        probe = torch.zeros_like(output, requires_grad=True)
        (transposed,) = torch.autograd.grad(output, point, probe, create_graph=True, materialize_grads=True)

        yield LinearMap(
            output.detach(),
            jvp=_product(transposed, probe),
            vjp=_product(output, point),
            jvp_batch=_products(transposed, probe),
            vjp_batch=_products(output, point),
            input_shape=tuple(x.shape),
        )


def _product(of: Tensor, to: Tensor) -> Callable[[Tensor], Tensor]:
    """Return w ↦ ∂⟨of, w⟩/∂to."""

    def product(w: Tensor) -> Tensor:
        if not of.requires_grad:
            return torch.zeros_like(to)
        return torch.autograd.grad(of, to, w.to(of.dtype), retain_graph=True, materialize_grads=True)[0].detach()

    return product


def _products(of: Tensor, to: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the same map for a batch of vectors: in one pass where every operation has a batching rule."""
    one = _product(of, to)

    def products(w: Tensor) -> Tensor:
        if not of.requires_grad:
            return torch.zeros(w.shape[0], *to.shape, dtype=to.dtype)
        try:
            (batch,) = torch.autograd.grad(
                of, to, w.to(of.dtype), retain_graph=True, materialize_grads=True, is_grads_batched=True
            )
            return batch.detach()
        except RuntimeError:
            return torch.stack([one(vector) for vector in w])

    return products


def _prepared(function: Function) -> Callable[[Tensor], Tensor]:
    if not isinstance(function, nn.Module):
        return function
    for name, module in function.named_modules():
        if module.training and isinstance(module, _RUNNING):
            raise JacobianError(
                f"module {name or type(module).__name__!r} updates running statistics in train mode: "
                f"call eval() on the model first"
            )
        if module.training and isinstance(module, _RANDOM) and getattr(module, "p", 0) > 0:
            raise JacobianError(
                f"module {name or type(module).__name__!r} draws random numbers in train mode: "
                f"call eval() on the model first"
            )
    return copy.deepcopy(function).double().requires_grad_(False)


def _evaluate(function: Callable[[Tensor], Tensor], point: Tensor) -> Tensor:
    output = function(point)
    if not isinstance(output, Tensor) or not output.is_floating_point():
        raise JacobianError(
            f"the function returns {type(output).__name__}: wrap it so that it returns one floating-point tensor"
        )
    if not output.requires_grad:
        raise JacobianError("the output does not depend on x through differentiable operations: check the function")
    return output
