"""The streams of two models on the same input, and what each block makes of the other model's stream."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.inspection.reading import reading
from normlab.recording import Address, Architecture, Port, SitePlan
from normlab.recording.compiled import step_by_step
from normlab.recording.tensors import tensors_in

#: A tensor among the arguments of a module: a position or a keyword, and the way into containers.
_Way = tuple[int | str, ...]


class _Ways(NamedTuple):
    """Where a block takes its stream and, unless it is empty, its memory, and where it gives the stream."""

    stream: _Way
    memory: _Way
    result: _Way


@dataclass(frozen=True)
class Stream:
    """The tensors of a stream.

    Attributes:
        values: ``[sequence, token, feature]`` at each site, in order.
        ends: for each block, and 0 for the embedding, the site after it.
        memory: for each block with cross-attention what its keys and values are made of.
    """

    values: dict[Address, Tensor] = field(default_factory=dict)
    ends: dict[int, Address] = field(default_factory=dict)
    memory: dict[int, Tensor] = field(default_factory=dict)

    def after(self, layer: int) -> Float[Tensor, "sequence token feature"]:
        """Return the stream after a block."""
        return self.values[self.ends[layer]]


def streams(model: nn.Module, plan: SitePlan, run: Callable[[], Any], tokens: tuple[int, int]) -> dict[str, Stream]:
    """Run a model and return the streams of its stacks."""
    ports = {one.address: one.port for one in plan.observed if one.address.site in ("stream", "memory")}
    shown: dict[Port, Tensor] = {}

    def see(port: Port, tensor: Tensor) -> None:
        shown[port] = tensor.clone()

    with torch.no_grad(), reading(model, ports.values(), tokens, see):
        run()
    found: dict[str, Stream] = {}
    for address, port in ports.items():
        if port in shown and address.layer is not None:
            stream = found.setdefault(address.stack, Stream())
            if address.site == "memory":
                stream.memory[address.layer] = shown[port]
            else:
                stream.values[address] = shown[port]
                stream.ends[address.layer] = address
    return found


def rounded(one: Stream, two: Stream) -> Stream | None:
    """Return a stream in the dtype of another one, or nothing if that changes no number."""
    values = {at: x.to(two.values[at].dtype) if at in two.values else x for at, x in one.values.items()}
    memory = {at: x.to(two.memory[at].dtype) if at in two.memory else x for at, x in one.memory.items()}
    pairs = [
        *zip(values.values(), one.values.values(), strict=True),
        *zip(memory.values(), one.memory.values(), strict=True),
    ]
    same = all(x.to(y.dtype).allclose(y, 0, 0, True) for x, y in pairs)
    return None if same else Stream(values, one.ends, memory)


@dataclass(frozen=True)
class Fed:
    """What the blocks of a model make of streams and memories that are not their own.

    Attributes:
        after: for each block what it gives.
        reason: why that cannot be said.
    """

    after: Mapping[int, Tensor]
    reason: str = ""


def fed(model: nn.Module, found: Architecture, stack: str, run: Callable[[], Any], own: Stream, other: Stream) -> Fed:
    """Feed each block of a stack with the stream, and the memory, that another model gives its block of that number.

    What else a block takes (masks, rotations, a bias of positions) is the model's own.

    Args:
        model: the model.
        found: its architecture.
        stack: the stack.
        run: runs the model on the batch.
        own: the model's own stream.
        other: the stream to feed, of the same width.
    """
    paths = _blocks(found, stack)
    if not paths:
        return Fed({}, "the blocks are no modules of their own")
    if any(other.memory[layer].shape != own.memory[layer].shape for layer in own.memory.keys() & other.memory.keys()):
        return Fed({}, "what the cross-attention reads differs in shape")
    places: dict[int, _Ways] = {}
    with torch.no_grad(), step_by_step(), _watched(model, paths, own, places):
        run()
    if len(places) < len(paths):
        return Fed({}, "a block takes or gives something other than the stream and its memory")
    given: dict[int, Tensor] = {}
    with torch.no_grad(), step_by_step(), _replaced(model, paths, places, other, given):
        run()
    return Fed(given)


def _blocks(found: Architecture, stack: str) -> dict[int, str]:
    (own,) = [each for each in found.stacks if each.name == stack]
    paths = {part.layer: part.block for part in own.sublayers}
    return paths if all(paths.values()) and len(set(paths.values())) == len(paths) else {}


@contextmanager
def _watched(model: nn.Module, paths: Mapping[int, str], own: Stream, places: dict[int, _Ways]) -> Iterator[None]:
    """Find in each block's arguments and result the tensors that are the stream before and after it, and its memory."""

    def hook(layer: int) -> Any:
        def after(module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
            taken = _where((args, kwargs), own.after(layer - 1)) if layer - 1 in own.ends else None
            given = _where(result, own.after(layer)) if layer in own.ends else None
            memory = _where((args, kwargs), own.memory[layer]) if layer in own.memory else ()
            if taken is not None and given is not None and memory is not None:
                places[layer] = _Ways(taken, memory, given)

        return after

    handles = [
        model.get_submodule(path).register_forward_hook(hook(layer), with_kwargs=True) for layer, path in paths.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _where(values: Any, stream: Tensor) -> _Way | None:
    for way, tensor in tensors_in(values):
        # allclose and not equal: a stream with NaN is the same stream.
        if tensor.shape == stream.shape and tensor.dtype == stream.dtype and tensor.allclose(stream, 0, 0, True):
            return way
    return None


@contextmanager
def _replaced(
    model: nn.Module,
    paths: Mapping[int, str],
    places: Mapping[int, _Ways],
    other: Stream,
    given: dict[int, Tensor],
) -> Iterator[None]:
    def before(layer: int) -> Any:
        def replace(module: nn.Module, args: Any, kwargs: Any) -> Any:
            if layer - 1 not in other.ends:
                return None
            fed = {places[layer].stream: other.after(layer - 1)}
            if layer in other.memory and places[layer].memory:
                fed[places[layer].memory] = other.memory[layer]
            own, both = dict(tensors_in((args, kwargs))), (args, kwargs)
            for way, new in fed.items():
                both = _put(both, way, new.to(own[way]))
            return both

        return replace

    def after(layer: int) -> Any:
        def keep(module: nn.Module, args: Any, result: Any) -> None:
            given[layer] = dict(tensors_in(result))[places[layer].result].clone()

        return keep

    handles = []
    for layer, path in paths.items():
        module = model.get_submodule(path)
        handles.append(module.register_forward_pre_hook(before(layer), with_kwargs=True))
        handles.append(module.register_forward_hook(after(layer)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _put(container: Any, way: _Way, value: Tensor) -> Any:
    """Return a copy of nested containers in which ``value`` stands at the end of ``way``."""
    if not way:
        return value
    first, *rest = way
    if isinstance(container, Mapping):
        return {**container, first: _put(container[first], tuple(rest), value)}
    items = [_put(item, tuple(rest), value) if place == first else item for place, item in enumerate(container)]
    return type(container)(items) if isinstance(container, list) else tuple(items)
