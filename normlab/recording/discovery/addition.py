"""Sums in other words than +, as the products and plain sums that they are made of."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from normlab.recording.discovery.graph import Flow, Ref

_aten: Final = torch.ops.aten

Run = Callable[..., Tensor]


def taken_apart(func: Any, args: Sequence[Any], kwargs: dict[str, Any], run: Run) -> Tensor | None:
    """Run an operation that adds one tensor to another as what it is made of; nothing if it is no such operation.

    Args:
        func: the operation; of one that changes a tensor in place, or fills a given one, the result is copied there.
        args: its arguments.
        kwargs: those by keyword.
        run: runs each part.
    """
    name = func.overloadpacket.__name__
    parts = _PARTS.get(name.removesuffix("_"))
    if parts is None or not _fit(*args[:2]):
        return None
    into = kwargs.get("out", args[0] if name.endswith("_") else None)
    plain = name == "add_" or (name == "add" and "out" not in kwargs)
    if (plain and kwargs.get("alpha", 1) == 1) or (into is not None and into.dtype != args[1].dtype):
        return None
    result = parts(run, *args, **{key: value for key, value in kwargs.items() if key != "out"})
    if result is None or into is None:
        return result
    if into.shape != result.shape:
        into.resize_(result.shape)
    return run(_aten.copy_.default, into, result)


def _fit(one: Any, two: Any = None, *_: Any) -> bool:
    both = isinstance(one, Tensor) and isinstance(two, Tensor)
    return both and one.is_floating_point() and two.is_floating_point()


def _times(run: Run, x: Tensor, factor: Any) -> Tensor:
    if isinstance(factor, Tensor):
        return run(_aten.mul.Tensor, x, factor)
    return x if factor == 1 else run(_aten.mul.Tensor, x, float(factor))


def _add(run: Run, one: Tensor, two: Tensor, alpha: float = 1) -> Tensor | None:
    return run(_aten.add.Tensor, one, _times(run, two, alpha)) if one.shape == two.shape else None


def _sub(run: Run, one: Tensor, two: Tensor, alpha: float = 1) -> Tensor | None:
    return _add(run, one, two, -alpha)


def _rsub(run: Run, one: Tensor, two: Tensor, alpha: float = 1) -> Tensor | None:
    return _add(run, two, one, -alpha)


def _lerp(run: Run, one: Tensor, two: Tensor, weight: Any) -> Tensor | None:
    left = run(_aten.rsub.Scalar, weight, 1) if isinstance(weight, Tensor) else 1 - weight
    return _add(run, _times(run, one, left), _times(run, two, weight)) if one.shape == two.shape else None


def _addcmul(run: Run, one: Tensor, two: Tensor, three: Tensor, *, value: float = 1) -> Tensor | None:
    return _add(run, one, run(_aten.mul.Tensor, two, three), value)


def _addcdiv(run: Run, one: Tensor, two: Tensor, three: Tensor, *, value: float = 1) -> Tensor | None:
    return _add(run, one, run(_aten.div.Tensor, two, three), value)


def _addmm(run: Run, one: Tensor, two: Tensor, three: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor | None:
    """Add a product with a matrix to a whole tensor: what all rows have is a bias, and 0 times a tensor is nothing."""
    if beta == 0 or one.shape != (*two.shape[:-1], three.shape[-1]):
        return None
    product = run(_aten.mm.default if two.dim() == 2 else _aten.bmm.default, two, three)
    return _add(run, _times(run, one, beta), product, alpha)


_PARTS: Final[dict[str, Callable[..., Tensor | None]]] = {
    "add": _add,
    "sub": _sub,
    "rsub": _rsub,
    "lerp": _lerp,
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
    "addmm": _addmm,
    "baddbmm": _addmm,
}


class Operation(NamedTuple):
    """What a value is computed by.

    Attributes:
        name: the operation's name.
        inputs: the values that it takes.
        function: the operation, and its arguments with values in place of tensors.
    """

    name: str
    inputs: tuple[int, ...]
    function: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def put_plainly(flow: Flow, own: Operation, module: str) -> Operation:
    """Return an operation as the last of plain ones, the others of which are written into the data flow.

    These are sums over an axis along which tensors were stacked, and x + a (f - x), which is (1 - a) x + a f.
    """
    if own.name in ("sum", "mean"):
        return _of_stacked(flow, own, module)
    if own.name == "add" and len({flow.values[one].shape for one in own.inputs}) == 1 < len(own.inputs):
        for one, two in (own.inputs, own.inputs[::-1]):
            if (found := _distributed(flow, one, two, module)) is not None:
                return found
    return own


def _write(flow: Flow, own: Operation, like: int, module: str) -> int:
    """Write a value that no tensor of the model holds."""
    index = len(flow.values)
    flow.values.append(
        replace(
            flow.values[like],
            index=index,
            kind="op",
            op=own.name,
            inputs=own.inputs,
            module=module,
            name="",
            function=own.function,
            output=0,
            data=None,
        )
    )
    return index


def _binary(name: str, one: int, two: int | float) -> Operation:
    """Return a sum or a product of two values, or of a value and a number."""
    number = isinstance(two, float)
    inputs = (one,) if number else (one, int(two))
    function = {"add": _aten.add, "mul": _aten.mul}[name].Tensor
    return Operation(name, inputs, (function, (Ref(one), two if number else Ref(int(two))), {}))


def _of_stacked(flow: Flow, own: Operation, module: str) -> Operation:
    """Put a sum, or a mean, over the axis along which tensors were stacked as sums of two."""
    _, args, kwargs = own.function
    axes = args[1] if len(args) > 1 else kwargs.get("dim")
    if not axes or len(axes) != 1 or (len(args) > 2 and args[2]) or kwargs.get("keepdim") or kwargs.get("dtype"):
        return own
    terms = _stacked(flow, own.inputs[0], axes[0])
    if len(terms) < 2:
        return own
    if own.name == "mean":
        terms = tuple(_write(flow, _binary("mul", one, 1 / len(terms)), one, module) for one in terms)
    total, *others, last = terms
    for one in others:
        total = _write(flow, _binary("add", total, one), total, module)
    return _binary("add", total, last)


def _stacked(flow: Flow, index: int, axis: int) -> tuple[int, ...]:
    """Return the tensors that were stacked along an axis, or nothing."""
    value = flow.values[index]
    while value.op in ("permute", "transpose") and value.function is not None:
        axis = _axis_before(value.function[1], value.op, axis % len(value.shape), len(value.shape))
        value = flow.values[value.inputs[0]]
    if value.op not in ("stack", "cat") or value.function is None:
        return ()
    _, args, kwargs = value.function
    along = (args[1] if len(args) > 1 else kwargs.get("dim", 0)) % len(value.shape)
    if along != axis % len(value.shape) or value.shape[along] != len(value.inputs):
        return ()
    if value.op == "stack":
        return value.inputs
    laid = [flow.values[one] for one in value.inputs]
    alone = all(one.op in ("unsqueeze", "view") and flow.unchanged(one.index) is not None for one in laid)
    return tuple(one.inputs[0] for one in laid) if alone else ()


def _axis_before(args: Sequence[Any], op: str, axis: int, rank: int) -> int:
    if op == "permute":
        return int(args[1][axis])
    one, two = (place % rank for place in args[1:3])
    return two if axis == one else one if axis == two else axis


def _distributed(flow: Flow, skip: int, update: int, module: str) -> Operation | None:
    """Return x + c x as (1 + c) x, and x + a (f + c x) as (1 + a c) x + a f; nothing where it is something else."""
    stream, number, factors = _root(flow, skip), 1.0, []
    if (times := _multiple(flow, update, stream)) is not None and times not in (1, -1):
        return _binary("mul", skip, 1 + times)
    value = flow.values[_root(flow, update)]
    while value.op == "mul":
        scale = _number(value.function)
        if scale is not None:
            number, value = number * scale, flow.values[_root(flow, value.inputs[0])]
            continue
        sums = [one for one in value.inputs if _holds(flow, one, stream)]
        if len(value.inputs) != 2 or len(sums) != 1:
            return None
        factors += [one for one in value.inputs if one != sums[0]]
        value = flow.values[_root(flow, sums[0])]
    if value.op != "add" or len(value.inputs) != 2:
        return None
    for own, other in (value.inputs, value.inputs[::-1]):
        if (scale := _multiple(flow, own, stream)) is not None and _multiple(flow, other, stream) is None:
            flow.undone.add(value.index)
            return _apart(flow, skip, other, (number, scale * number), factors, module)
    return None


def _apart(
    flow: Flow, skip: int, other: int, numbers: tuple[float, float], factors: Sequence[int], module: str
) -> Operation:
    """Write what x + a (f + c x) is: the numbers are those of f and of x, the factors are the rest of a."""
    of_other, of_skip = numbers

    def put(own: Operation, like: int) -> int:
        return _write(flow, own, like, module)

    if of_other != 1:
        other = put(_binary("mul", other, of_other), other)
    for one in factors:
        other = put(_binary("mul", other, one), other)
    if not factors:
        left = 1 + of_skip
        if not left:
            return Operation("alias", (other,), (_aten.alias.default, (Ref(other),), {}))
        return _binary("add", skip if left == 1 else put(_binary("mul", skip, left), skip), other)
    whole = factors[0]
    for one in factors[1:]:
        whole = put(_binary("mul", whole, one), whole)
    if of_skip == -1:
        rest = put(Operation("rsub", (whole,), (_aten.rsub.Scalar, (Ref(whole), 1), {})), whole)
    else:
        rest = put(_binary("add", put(_binary("mul", whole, of_skip), whole), 1.0), whole)
    return _binary("add", put(_binary("mul", skip, rest), skip), other)


def _root(flow: Flow, index: int) -> int:
    while (before := flow.unchanged(index)) is not None:
        index = before
    return index


def _number(function: Any) -> float | None:
    return next((float(one) for one in function[1] if isinstance(one, int | float)), None) if function else None


def _multiple(flow: Flow, index: int, stream: int) -> float | None:
    """Return what a value is the multiple of the stream by, if it is one."""
    number, index = 1.0, _root(flow, index)
    while index != stream:
        value = flow.values[index]
        scale = _number(value.function) if value.op == "mul" and len(value.inputs) == 1 else None
        if scale is None:
            return None
        number, index = number * scale, _root(flow, value.inputs[0])
    return number


def _holds(flow: Flow, index: int, stream: int) -> bool:
    """Whether a value is, but for numbers, a sum of which the stream is a term."""
    value = flow.values[_root(flow, index)]
    while value.op == "mul" and len(value.inputs) == 1:
        value = flow.values[_root(flow, value.inputs[0])]
    return value.op == "add" and any(_multiple(flow, one, stream) is not None for one in value.inputs)
