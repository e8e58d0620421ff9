"""From tensors to kernels: what a call of each operation asks dispatch for, and what its kernels are handed."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from normlab.cupy_kernels.arguments import Value
from normlab.cupy_kernels.dispatch import widest_vector
from normlab.cupy_kernels.plans import Request
from normlab.errors import NormlabError

#: The short names of the storage types.
SHORT: Final[dict[torch.dtype, str]] = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}

#: Where an array starts, given its name: its own address, unless whoever runs the kernels will place it elsewhere.
Address: TypeAlias = Callable[[str, Tensor], int]


@dataclass(frozen=True)
class Call:
    """An operation on tensors.

    Attributes:
        request: what the choice of kernels depends on.
        values: tensors and numbers by the names of the kernels' arguments; outputs are there, to be written to.
    """

    request: Request
    values: Mapping[str, Tensor | Value]


def own_address(name: str, x: Tensor) -> int:
    """Return where ``x`` is."""
    return x.data_ptr()


def rows_of(x: Tensor) -> tuple[int, int, int] | None:
    """Return where the rows of ``x`` are, its last axis being a row.

    Returns:
        Elements between rows, rows a group (0: all are equally far apart) and elements between groups; ``None``
        where no such three numbers say it, or where a row's elements are not neighbours.
    """
    return None if x.shape[-1] > 1 and x.stride(-1) != 1 else _levels(x)


def _levels(x: Tensor) -> tuple[int, int, int] | None:
    """Return :func:`rows_of`, whatever lies between the elements of a row."""
    levels: list[tuple[int, int]] = []
    for size, stride in reversed(list(zip(x.shape[:-1], x.stride()[:-1], strict=True))):
        if levels and stride == levels[-1][0] * levels[-1][1]:
            levels[-1] = (levels[-1][0] * size, levels[-1][1])
        elif size != 1:
            levels.append((size, stride))
    if not levels:
        return x.shape[-1], 0, 0
    (rows, stride), *more = levels
    return (stride, 0, 0) if not more else (stride, rows, more[0][1]) if len(more) == 1 else None


def norm_call(
    arrays: Mapping[str, Tensor | None],
    *,
    statistic: str,
    eps: float,
    cast_first: bool,
    one_gain: bool = False,
    address: Address = own_address,
) -> Call:
    """Return the call of a norm's forward, or of its backward where ``dy`` is among the arrays.

    Args:
        arrays: x, gain, bias, residual, y, z, shifts, rstds; backward: dy, x, gain, shifts, rstds, dz, dx, and of
            dgain and dbias those that are wanted. Rows as :func:`rows_of` says; residual, z and dz without groups.
        statistic: ``rms``, ``layer``, or ``l2``, which the kernels of ``rms`` serve.
        eps: as the kernels take it.
        cast_first: whether half precision is rounded before the gain multiplies.
        one_gain: whether the gain is a single number.
        address: where arrays will be.
    """
    given = {name: array for name, array in arrays.items() if array is not None}
    backward = "dy" in given
    ends = ("dy", "x", "dx") if backward else ("x", "y")
    rows = {"dz" if backward else "residual": given.get("dz" if backward else "residual")}
    beside = {f"{name}_stride": _stride(array) for name, array in rows.items()}
    wanted = {"gain": "dgain" in given, "bias": "dbias" in given}
    options: dict[str, Any] = wanted if backward else {"add": "residual" in given}
    wide = {name: given[name] for name in (*ends, "residual", "z", "dz") if name in given}
    weights = {name: given[name] for name in ("gain", "bias") if name in given and not (name == "gain" and one_gain)}
    kind = "layer" if statistic == "layer" else "rms"
    request = _request(
        *("norm_backward" if backward else "norm_forward", {**wide, **weights}, kind, address),
        weight=next((given[name] for name in ("gain", "bias", "dbias") if name in given), None),
        **options,
        one_gain=one_gain,
    )
    how = {"by_length": statistic == "l2", "one_gain": one_gain, "cast_first": cast_first}
    numbers = {"rows": request.rows, "d": request.d, "eps": eps, **how}
    return Call(request, {**arrays, **numbers, **beside, **_places(given, ends)})


def squash_call(arrays: Mapping[str, Tensor | None], *, function: str, address: Address = own_address) -> Call:
    """Return the call of DyT (``tanh``) or Derf (``erf``), or of its backward where ``dy`` is among the arrays.

    Args:
        arrays: x, alpha, shift, gain, bias, y; backward: dy, x, alpha, shift, gain, dx, dalpha, dshift, and of dgain
            and dbias those that are wanted.
        function: which of the two.
        address: where arrays will be.
    """
    given = {name: array for name, array in arrays.items() if array is not None}
    backward = "dy" in given
    ends = ("dy", "x", "dx") if backward else ("x", "y")
    vectors = {name: given[name] for name in (*ends, "gain", "bias") if name in given}
    options: dict[str, Any] = {"gain": "dgain" in given, "bias": "dbias" in given} if backward else {}
    operation = "squash_backward" if backward else "squash_forward"
    request = _request(operation, vectors, function, address, weight=given["alpha"], **options)
    return Call(request, {**arrays, "rows": request.rows, "d": request.d, **_places(given, ends)})


def moments_call(arrays: Mapping[str, Tensor | None], *, length: int = 0, address: Address = own_address) -> Call:
    """Return the call of ``tensor_moments``; of ``pair_moments`` given ``other``; of ``sequence_sums`` given ``norms``.

    Args:
        arrays: x, mask, moments, tokens; with other also stored and lost; or x, norms, parts. The elements of a row
            of x may be any number apart in ``tensor_moments``, and are neighbours elsewhere.
        length: tokens of a sequence, for ``sequence_sums``.
        address: where arrays will be.
    """
    given = {name: array for name, array in arrays.items() if array is not None}
    operation = "pair_moments" if "other" in given else "sequence_sums" if "norms" in given else "tensor_moments"
    ends = ("x", "other", "stored") if operation == "pair_moments" else ("x",)
    request = _request(operation, {name: given[name] for name in ends if name in given}, "", address, length=length)
    apart = x.stride(-1) if (x := given["x"]).shape[-1] > 1 else 1
    numbers = {"rows": request.rows, "columns": request.d, "d": request.d, "column_stride": apart}
    return Call(request, {**arrays, **numbers, **_places(given, ends)})


def _request(
    operation: str,
    arrays: Mapping[str, Tensor],
    statistic: str,
    address: Address,
    weight: Tensor | None = None,
    **options: Any,
) -> Request:
    x = arrays["x"]
    for each in (x, weight):
        if each is not None and each.dtype not in SHORT:
            raise NormlabError(f"there is no kernel for {each.dtype}: give one of {', '.join(map(str, SHORT))}")
    d, size = x.shape[-1], x.element_size()
    places = ((address(name, each), each.element_size(), _steps(each)) for name, each in arrays.items())
    vec = widest_vector(d, places, size) if d == 1 or x.stride(-1) == 1 else 1
    dtype = SHORT[x.dtype]
    kind = dtype if weight is None else SHORT[weight.dtype]
    return Request(operation, dtype, kind, x.numel() // d if d else 0, d, vec, statistic, **options)


def _steps(x: Tensor) -> Iterable[int]:
    """Return the strides by which rows start."""
    if x.dim() < 2:
        return ()
    stride, _, group_stride = _rows(x)
    return stride, group_stride


def _rows(x: Tensor) -> tuple[int, int, int]:
    found = _levels(x)
    assert found is not None, "laid out before it came here"
    return found


def _stride(x: Tensor | None) -> int:
    return 0 if x is None else _rows(x)[0]


def _places(given: Mapping[str, Tensor], ends: Iterable[str]) -> dict[str, int]:
    """Return the arguments that say where rows are; zeros for an array that is absent."""
    names = ("stride", "group", "group_stride")
    return {
        f"{end}_{name}": value
        for end in ends
        for name, value in zip(names, _rows(given[end]) if end in given else (0, 0, 0), strict=True)
    }
