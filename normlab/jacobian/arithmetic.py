"""Float64 all the way: a function's own casts to fewer digits are suspended, and those that remain are seen.

Many models compute their norms and their attention in float32 whatever dtype they are given, so that a copy in float64
would still have a Jacobian of seven digits.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map


class JacobianWarning(UserWarning):
    """A Jacobian with fewer digits than its dtype has."""


_NARROW: Final = (torch.float32, torch.bfloat16, torch.float16)
#: Casts by their name, and by the dtype of another tensor.
_NAMED: Final = (Tensor.float, Tensor.half, Tensor.bfloat16)
_ALIKE: Final = (Tensor.to, Tensor.type_as)


@contextmanager
def wide(values: Iterable[Any]) -> Iterator[None]:
    """Suspend casts of float64 tensors to fewer digits, unless one of ``values`` has fewer digits itself."""
    narrow = any(isinstance(value, Tensor) and value.dtype in _NARROW for value in tree_leaves(tuple(values)))
    with nullcontext() if narrow else _Wide():
        yield


class _Wide(TorchFunctionMode):
    """A cast of a float64 tensor gives a copy of it, in float64."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        values = (*args, *kwargs.values())
        if not any(_is_float64(value) for value in values):
            return _joined(func, args, kwargs)
        casts = func in _NAMED or any(_asks_for_fewer(func, value) for value in values)
        if not casts or func is Tensor.view:
            return _joined(func, args, kwargs)
        if func in _NAMED or func is Tensor.type_as:
            return args[0].clone()
        args = tuple(_widened(func, value) for value in args)
        result = func(*args, **{name: _widened(func, value) for name, value in kwargs.items()})
        # What was to be a new tensor may be written to.
        return result.clone() if result is args[0] else result


def _is_float64(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.float64


def _asks_for_fewer(func: Callable[..., Any], value: Any) -> bool:
    if isinstance(value, Tensor):
        return func in _ALIKE and value.dtype in _NARROW
    return isinstance(value, torch.dtype) and value in _NARROW


def _widened(func: Callable[..., Any], value: Any) -> Any:
    if not _asks_for_fewer(func, value):
        return value
    return value.double() if isinstance(value, Tensor) else torch.float64


def _joined(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call ``func``; where it takes no two dtypes at once, constants of fewer digits are widened."""
    try:
        return func(*args, **kwargs)
    except RuntimeError:
        given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        mixed = any(_is_float64(value) for value in given) and any(value.dtype in _NARROW for value in given)
        # A copy of what is to be written to would be written to in its place.
        if not mixed or "out" in kwargs or getattr(func, "__name__", "_").endswith("_"):
            raise
        args, kwargs = tree_map(_doubled, (args, kwargs))
        return func(*args, **kwargs)


def _doubled(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.dtype in _NARROW else value


class Digits(TorchDispatchMode):
    """Sees, while it is entered, whether anything that depends on x is computed with fewer digits than x has.

    Args:
        dtype: of x.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dtype = dtype
        self._operation = ""

    def warn(self) -> None:
        """Give a warning if digits were lost."""
        if self._operation:
            name = str(self.dtype).removeprefix("torch.")
            digits = -math.floor(math.log10(torch.finfo(self.dtype).eps))
            warnings.warn(
                f"the function computes in {name} inside ({self._operation}), which cannot be suspended: its Jacobian "
                f"is right to about {digits} digits",
                JacobianWarning,
                stacklevel=2,
            )

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        fewer = [
            value.dtype
            for value in tree_leaves(result)
            if isinstance(value, Tensor) and value.dtype in _NARROW and _eps(value.dtype) > _eps(self.dtype)
        ]
        given = tree_leaves((args, kwargs)) if fewer else ()
        if any(isinstance(value, Tensor) and value.requires_grad for value in given):
            self.dtype, self._operation = max(fewer, key=_eps), str(func)
        return result


def _eps(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps
