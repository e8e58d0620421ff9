"""Norms that are written out in operations, in no module and no function of torch's."""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from normlab.recording.discovery.graph import Flow, Ref, Value
from normlab.recording.discovery.norms import NormKind, probed

#: A norm is not written out in more operations than this.
_MOST: Final = 24


class Written(NamedTuple):
    """A norm that is written out: what it computes, what it takes and gives, and its parameters' names and roles."""

    kind: NormKind
    taken: int
    given: int
    roles: tuple[tuple[str, str], ...]


def written_out(flow: Flow, value: Value) -> Written | None:
    """Return the norm whose division by the token's size a value is, its gain and bias with it if they follow.

    The operations run again on numbers that are known, as norm modules do.
    """
    if value.op not in ("mul", "div") or len(value.inputs) != 2 or not (value.floating and flow.live[value.index]):
        return None
    pairs = [value.inputs, value.inputs[::-1]] if value.op == "mul" else [value.inputs]
    for wide, narrow in pairs:
        if _one_a_token(flow, narrow) and flow.live[wide] and flow.values[wide].shape == value.shape:
            for given in reversed(list(_followed(flow, value.index))):
                for taken in reversed(list(_sources(flow, wide))):
                    if flow.depends(narrow, taken) and (found := _probed(flow, taken, given)) is not None:
                        return found
    return None


def _one_a_token(flow: Flow, index: int) -> bool:
    while flow.values[index].op == "expand":
        index = flow.values[index].inputs[0]
    return flow.live[index] and flow.values[index].shape[-1:] == (1,)


def _sources(flow: Flow, wide: int) -> Iterator[int]:
    """Yield what may be normalised, the nearest first: a tensor, and what it was before its mean was subtracted."""
    for _ in range(3):
        yield wide
        if flow.values[wide].op not in ("sub", "_to_copy"):
            return
        wide = flow.values[wide].inputs[0]


def _followed(flow: Flow, index: int) -> Iterator[int]:
    """Yield a value, and what is left of it after each gain, bias and cast that follows."""
    yield index
    for _ in range(4):
        if len(flow.uses[index]) != 1:
            return
        (use,) = flow.uses[index]
        value = flow.values[use]
        others = [one for one in value.inputs if one != index]
        gained = value.op in ("mul", "add") and len(others) == 1 and _of_parameter(flow, others[0])
        if not gained and value.op != "_to_copy":
            return
        index = use
        if gained:
            yield index


def _of_parameter(flow: Flow, index: int) -> bool:
    leaves = list(flow.leaves(index))
    return not flow.live[index] and any(leaf.kind == "parameter" for leaf in leaves) and len(leaves) == 1


def _probed(flow: Flow, taken: int, given: int) -> Written | None:
    names = [leaf for leaf in flow.leaves(given) if leaf.kind == "parameter" and not flow.depends(taken, leaf.index)]
    operations = _Operations(_replaying(flow, taken, given), [(leaf.index, leaf.shape) for leaf in names])
    # An ε that is written out is what it is.
    if (kind := probed(operations, flow.values[given].shape, torch.float64)) is None:
        return None
    own = {f"of_{leaf.index}": leaf.name for leaf in names}
    return Written(kind, taken, given, tuple((own[name], role) for name, role in kind.parameters))


class _Operations(nn.Module):
    """Operations of a data flow as a module."""

    def __init__(self, run: Callable[[dict[int, Tensor]], Tensor], shapes: list[tuple[int, tuple[int, ...]]]) -> None:
        super().__init__()
        self._run = run  # a plain function, so that copies of the module share the data flow
        self._numbers = [index for index, _ in shapes]
        for index, shape in shapes:
            self.register_parameter(f"of_{index}", nn.Parameter(torch.zeros(shape)))

    def forward(self, x: Tensor) -> Tensor:
        own = {index: self.get_parameter(f"of_{index}") for index in self._numbers}
        return self._run({-1: x, **own})


def _replaying(flow: Flow, taken: int, given: int) -> Callable[[dict[int, Tensor]], Tensor]:
    def run(known: dict[int, Tensor]) -> Tensor:
        return _run(flow, given, taken, {**known, taken: known[-1]})

    return run


def _run(flow: Flow, index: int, taken: int, found: dict[int, Tensor]) -> Tensor:
    if index in found:
        return found[index]
    value = flow.values[index]
    if value.function is None or len(found) > _MOST or (flow.live[index] and not flow.depends(index, taken)):
        raise TypeError  # made of something else too
    inputs = {one: _run(flow, one, taken, found) for one in value.inputs}
    if value.op in ("expand", "_to_copy"):
        found[index] = inputs[value.inputs[0]]
        return found[index]
    function, args, kwargs = value.function
    args, kwargs = tree_map(
        # What is changed in place here may be needed once more.
        lambda x: inputs[x.number].clone() if isinstance(x, Ref) else x,
        (args, kwargs),
        is_leaf=lambda x: isinstance(x, Ref),
    )
    result: Any = function(*args, **kwargs)
    found[index] = result[value.output] if isinstance(result, tuple | list) else result
    return found[index]
