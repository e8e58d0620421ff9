"""The operations as operators of torch: schemas, shapes, derivatives, and what runs on CUDA tensors.

``torch.ops.normlab`` has them once this module is imported. ``normlab.norms`` adds what runs on a CPU, and the
formulas (:func:`set_formula`) that second derivatives are taken of: those of kernels are not written as kernels.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor
from torch.library import Library

from normlab.cupy_kernels.launch import CupyDriver, Driver
from normlab.cupy_kernels.operations import (
    MOMENTS,
    PAIR_MOMENTS,
    TOKEN_MOMENTS,
    Operations,
    gradient,
    statistics,
)
from normlab.errors import NormlabError

SCHEMAS: Final = {
    "norm": "(Tensor x, Tensor? gain, Tensor? bias, str statistic, float eps, bool cast_first) "
    "-> (Tensor, Tensor, Tensor)",
    "add_norm": "(Tensor x, Tensor residual, Tensor? gain, Tensor? bias, str statistic, float eps, bool cast_first) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    "norm_backward": "(Tensor dy, Tensor x, Tensor? gain, Tensor? bias, Tensor shifts, Tensor rstds, Tensor? dz, "
    "str statistic, float eps, bool cast_first, bool gain_wanted, bool bias_wanted) -> (Tensor, Tensor, Tensor)",
    "squash": "(Tensor x, Tensor alpha, Tensor? shift, Tensor? gain, Tensor? bias, str function) -> Tensor",
    "squash_backward": "(Tensor dy, Tensor x, Tensor alpha, Tensor? shift, Tensor? gain, Tensor? bias, str function) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    "moments": "(Tensor x, Tensor? mask) -> Tensor",
    "pair_moments": "(Tensor x, Tensor other, Tensor? stored, Tensor? mask) -> (Tensor, Tensor)",
    "token_moments": "(Tensor x, Tensor? mask) -> Tensor",
    "sequence_sums": "(Tensor x, Tensor norms) -> Tensor",
}
#: ``norm(x, gain, bias, statistic, eps, cast_first)`` and ``squash(x, alpha, shift, gain, bias, function)`` in
#: differentiable operations of torch.
_FORMULAS: dict[str, Callable[..., Tensor]] = {}


def set_formula(name: str, formula: Callable[..., Tensor]) -> None:
    """Say what the second derivatives of ``norm`` or ``squash`` are taken of."""
    _FORMULAS[name] = formula


def register(namespace: str, key: str, driver: Driver) -> Library:
    """Define all operators in ``namespace``, run by ``driver`` on tensors of the dispatch key ``key``.

    Returns:
        The library; the operators live as long as it does.
    """
    library, operations = Library(namespace, "FRAGMENT"), Operations(driver)
    for name, schema in SCHEMAS.items():
        library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
        library.impl(name, getattr(operations, name), key)
        torch.library.register_fake(f"{namespace}::{name}", _SHAPES[name], lib=library)
    operators = getattr(torch.ops, namespace)
    for name, (setup, backward) in _DERIVATIVES.items():
        torch.library.register_autograd(
            f"{namespace}::{name}", partial(backward, operators), setup_context=setup, lib=library
        )
    return library


# Shapes: the same allocations as the operations make.


def _norm_shapes(x: Tensor, gain: Tensor | None, bias: Tensor | None, statistic: str, *_: object) -> tuple[Tensor, ...]:
    return x.new_empty(x.shape), *statistics(x, statistic)


def _add_norm_shapes(
    x: Tensor, residual: Tensor, gain: Tensor | None, bias: Tensor | None, statistic: str, *_: object
) -> tuple[Tensor, ...]:
    return x.new_empty(x.shape), x.new_empty(x.shape), *statistics(x, statistic)


def _norm_backward_shapes(
    dy: Tensor, x: Tensor, gain: Tensor | None, bias: Tensor | None, *rest: Any
) -> tuple[Tensor, ...]:
    gain_wanted, bias_wanted = rest[-2:]
    return (
        x.new_empty(x.shape),
        *(gradient(each, x, wanted=wanted) for each, wanted in ((gain, gain_wanted), (bias, bias_wanted))),
    )


def _squash_backward_shapes(dy: Tensor, x: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return x.new_empty(x.shape), *(gradient(each, x, wanted=each is not None) for each in rest[:4])


def _pair_shapes(x: Tensor, other: Tensor, stored: Tensor | None, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    moments = x.new_empty((*x.shape[:-1], len(PAIR_MOMENTS)), dtype=torch.float64)
    return moments, x.new_empty(x.shape[:-1] if stored is not None else (0,), dtype=torch.float64)


_SHAPES: Final[dict[str, Callable[..., Any]]] = {
    "norm": _norm_shapes,
    "add_norm": _add_norm_shapes,
    "norm_backward": _norm_backward_shapes,
    "squash": lambda x, *_: x.new_empty(x.shape),
    "squash_backward": _squash_backward_shapes,
    "moments": lambda x, mask: x.new_empty((*x.shape[:-1], len(MOMENTS)), dtype=torch.float64),
    "pair_moments": _pair_shapes,
    "token_moments": lambda x, mask: x.new_empty((len(TOKEN_MOMENTS), *x.shape[:-1]), dtype=torch.float64),
    "sequence_sums": lambda x, norms: x.new_empty((x.shape[0], 2, x.shape[2]), dtype=torch.float64),
}


# First derivatives: a second operator, so that a compiler can trace it.


def _keep_norm(ctx: Any, inputs: Any, output: Any) -> None:
    x, gain, bias, *ctx.options = inputs
    _, shifts, rstds = output
    _keep(ctx, x, gain, bias, shifts, rstds)


def _norm_backward(operators: Any, ctx: Any, dy: Tensor | None, *_: object) -> tuple[Tensor | None, ...]:
    if dy is None:
        return (None,) * 6
    return *_norm_gradients(operators, ctx, dy, None, 1), None, None, None


def _keep_add_norm(ctx: Any, inputs: Any, output: Any) -> None:
    _, _, gain, bias, *ctx.options = inputs
    _, z, shifts, rstds = output
    _keep(ctx, z, gain, bias, shifts, rstds)


def _add_norm_backward(
    operators: Any, ctx: Any, dy: Tensor | None, dz: Tensor | None, *_: object
) -> tuple[Tensor | None, ...]:
    if dy is None:
        return dz, dz, None, None, None, None, None
    dx, dgain, dbias = _norm_gradients(operators, ctx, dy, dz, 2)
    return dx, dx, dgain, dbias, None, None, None


def _keep(ctx: Any, *tensors: Tensor | None) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)
    ctx.mark_non_differentiable(*tensors[3:])


def _norm_gradients(
    operators: Any, ctx: Any, dy: Tensor, dz: Tensor | None, first_weight: int
) -> tuple[Tensor | None, ...]:
    x, gain, bias, shifts, rstds = ctx.saved_tensors
    wanted = ctx.needs_input_grad[first_weight : first_weight + 2]
    found = operators.norm_backward(dy, x, gain, bias, shifts, rstds, dz, *ctx.options, *wanted)
    return found[0], *(each if is_wanted else None for each, is_wanted in zip(found[1:], wanted, strict=True))


def _keep_squash(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, ctx.function = inputs
    ctx.save_for_backward(*tensors)


def _squash_backward(operators: Any, ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    found = operators.squash_backward(dy, *ctx.saved_tensors, ctx.function)
    return *(d if each is not None else None for d, each in zip(found, ctx.saved_tensors, strict=True)), None


# Second derivatives: those of the formula.


def _keep_norm_backward(ctx: Any, inputs: Any, output: Any) -> None:
    dy, x, gain, bias, _, _, dz, *ctx.options, gain_wanted, bias_wanted = inputs
    ctx.set_materialize_grads(False)
    ctx.wanted, ctx.has_dz = (True, gain_wanted, bias_wanted), dz is not None
    ctx.save_for_backward(dy, x, gain, bias)


def _norm_twice(operators: Any, ctx: Any, *seconds: Tensor | None) -> tuple[Tensor | None, ...]:
    dy, x, gain, bias = ctx.saved_tensors
    formula = partial(_formula("norm"), statistic=ctx.options[0], eps=ctx.options[1], cast_first=ctx.options[2])
    ddy, dx, dgain, dbias = _twice(formula, dy, (x, gain, bias), ctx.wanted, seconds)
    return ddy, dx, dgain, dbias, None, None, seconds[0] if ctx.has_dz else None, *(None,) * 5


def _keep_squash_backward(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, ctx.function = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)


def _squash_twice(operators: Any, ctx: Any, *seconds: Tensor | None) -> tuple[Tensor | None, ...]:
    dy, *inputs = ctx.saved_tensors
    formula = partial(_formula("squash"), function=ctx.function)
    return *_twice(formula, dy, inputs, [each is not None for each in inputs], seconds), None


def _formula(name: str) -> Callable[..., Tensor]:
    if name not in _FORMULAS:
        raise NormlabError(f"the second derivative of {name} needs its formula: import normlab.norms")
    return _FORMULAS[name]


def _twice(formula: Any, dy: Tensor, inputs: Any, wanted: Any, seconds: Any) -> tuple[Tensor | None, ...]:
    """Return the gradients of dy and of ``inputs``, given those of the inputs' own gradients."""
    third = torch.is_grad_enabled()
    with torch.enable_grad():
        leaves = [None if each is None else _apart(each) for each in inputs]
        upstream = _apart(dy)
        chosen = [leaf for leaf, is_wanted in zip(leaves, wanted, strict=True) if leaf is not None and is_wanted]
        firsts = torch.autograd.grad(formula(*leaves), chosen, upstream, create_graph=True)
        given = [second for second, is_wanted in zip(seconds, wanted, strict=True) if is_wanted]
        pairs = [(first, second) for first, second in zip(firsts, given, strict=True) if second is not None]
        if not pairs:
            return (None,) * (1 + len(leaves))
        present = [upstream, *(leaf for leaf in leaves if leaf is not None)]
        found = iter(
            torch.autograd.grad(
                [first for first, _ in pairs],
                present,
                [second for _, second in pairs],
                allow_unused=True,
                create_graph=third,
            )
        )
    return next(found), *(None if leaf is None else next(found) for leaf in leaves)


def _apart(x: Tensor) -> Tensor:
    """Return ``x`` as a variable of its own: dy may depend on x, and partial derivatives hold it fixed."""
    return x.view_as(x) if x.requires_grad else x.detach().requires_grad_()


_DERIVATIVES: Final[dict[str, tuple[Callable[..., None], Callable[..., Any]]]] = {
    "norm": (_keep_norm, _norm_backward),
    "add_norm": (_keep_add_norm, _add_norm_backward),
    "squash": (_keep_squash, _squash_backward),
    "norm_backward": (_keep_norm_backward, _norm_twice),
    "squash_backward": (_keep_squash_backward, _squash_twice),
}

LIBRARY: Final = register("normlab", "CUDA", CupyDriver())
