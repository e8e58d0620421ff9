"""Doing again to other tensors what a traced pass did to the layout of its own."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from normlab.recording.discovery.graph import LAYOUT, Flow, Ref, Value


def lays_out(value: Value) -> bool:
    """Whether an operation only moves entries, or casts them."""
    return value.op in LAYOUT - {"copy"} or value.op in ("index", "_to_copy")


def replayed(flow: Flow, index: int, known: dict[int, Tensor]) -> Tensor | None:
    """Do to ``known`` tensors what was done to others of their shapes; ``None`` if that is not only layout."""
    if index in known:
        return known[index]
    value = flow.values[index]
    if value.kind == "constant" and value.data is not None:
        return torch.tensor(value.data)
    if value.function is None or not lays_out(value):
        return None
    inputs = {one: replayed(flow, one, known) for one in value.inputs}
    first = inputs[value.inputs[0]]
    if value.op == "_to_copy" or value.op == "lift_fresh":
        return first
    if value.op == "index" and first is not None and any(one is None for one in inputs.values()):
        # Some of the weights, chosen by a router: all choices have the same layout.
        return first[:1].expand(value.shape) if first.dim() == len(value.shape) else None
    if any(one is None for one in inputs.values()):
        return None
    return _run(value, inputs)


def _run(value: Value, inputs: dict[int, Tensor | None]) -> Tensor | None:
    assert value.function is not None
    first = inputs[value.inputs[0]]
    if value.op in ("view", "_unsafe_view") and first is not None:
        # The strides are not those of the tensor that the model had.
        return first.reshape(value.shape)
    function, args, kwargs = value.function
    args, kwargs = tree_map(
        lambda x: inputs[x.number] if isinstance(x, Ref) else x, (args, kwargs), is_leaf=lambda x: isinstance(x, Ref)
    )
    result: Any = function(*args, **{key: one for key, one in kwargs.items() if key not in ("dtype", "device")})
    found = result[value.output] if isinstance(result, tuple | list) else result
    return found if isinstance(found, Tensor) else None
