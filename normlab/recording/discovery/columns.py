"""Which rows of a parameter each piece of a product's result comes from."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from normlab.recording.discovery.branch import weight_of
from normlab.recording.discovery.graph import LAYOUT, Flow
from normlab.recording.discovery.replaying import lays_out, replayed


class Weights(NamedTuple):
    """The parameter of a product.

    Attributes:
        name: its name.
        axis: the axis that runs over the product's results.
        rows: for each column of the product's result the place on that axis.
        bias: the name of the parameter that is added, if there is one.
    """

    name: str
    axis: int
    rows: tuple[int, ...]
    bias: str


class Piece(NamedTuple):
    """A part of a product's result that goes on as one tensor.

    Attributes:
        value: the tensor.
        columns: the columns of the product's result that are in it.
        use: the first operation on it that is more than a change of layout.
    """

    value: int
    columns: frozenset[int]
    use: int


def weights_of(flow: Flow, product: int) -> Weights | None:
    """Return the parameter of a product, or ``None`` if its weights are not one parameter's."""
    weight = weight_of(flow, product)
    leaves = [leaf for leaf in flow.leaves(weight) if leaf.kind == "parameter"]
    if len(leaves) != 1:
        return None
    shape = leaves[0].shape
    convolved = flow.values[product].op == "convolution"
    for axis, extent in enumerate(shape):
        places = torch.arange(extent).view([-1 if one == axis else 1 for one in range(len(shape))]).expand(shape)
        found = replayed(flow, weight, {leaves[0].index: places})
        if found is None:
            return None
        columns = found.movedim(0, -1) if convolved else found
        # Two corners tell whether the axis of the columns is this one, without a tensor of the matrix's size.
        leading = range(columns.dim() - 1)
        first, last = (columns[tuple(corner for _ in leading)].tolist() for corner in (0, -1))
        if first == last and len(set(first)) == len(first):
            return Weights(leaves[0].name, axis, tuple(first), _bias(flow, product))
    return None


def _bias(flow: Flow, product: int) -> str:
    value = flow.values[product]
    candidates = [value.inputs[0]] if value.op in ("addmm", "baddbmm") else list(value.inputs[2:])
    index = product
    while value.op in ("mm", "bmm") and len(flow.uses[index]) == 1:
        index = flow.uses[index][0]
        if flow.values[index].op == "add":
            candidates = list(flow.values[index].inputs)
        if flow.values[index].op not in LAYOUT:
            break
    for one in candidates:
        leaves = [leaf for leaf in flow.leaves(one) if leaf.kind == "parameter"]
        if not flow.live[one] and len(leaves) == 1 and len(leaves[0].shape) == 1:
            return leaves[0].name
    return ""


def pieces(flow: Flow, product: int, end: int) -> list[Piece]:
    """Return the pieces of a product's result that ``end`` depends on."""
    shape = flow.values[product].shape
    axis = 1 if flow.values[product].op == "convolution" else len(shape) - 1
    columns = torch.arange(shape[axis]).view([-1 if one == axis else 1 for one in range(len(shape))]).expand(shape)
    return list(_followed(flow, product, columns, end))


def _followed(flow: Flow, index: int, columns: Tensor, end: int) -> Iterator[Piece]:
    for use in flow.uses[index]:
        if not flow.depends(end, use):
            continue
        laid = replayed(flow, use, {index: columns}) if lays_out(flow.values[use]) else None
        laid = columns if _shifts(flow, use, index) else laid
        if laid is None:
            yield Piece(index, frozenset(columns.unique().tolist()), use)
        else:
            yield from _followed(flow, use, laid, end)
    if index == end:
        yield Piece(index, frozenset(columns.unique().tolist()), index)


def _shifts(flow: Flow, use: int, index: int) -> bool:
    """Whether an operation adds a bias."""
    value = flow.values[use]
    live = [one for one in value.inputs if flow.live[one]]
    return value.op == "add" and live == [index] and value.shape == flow.values[index].shape
