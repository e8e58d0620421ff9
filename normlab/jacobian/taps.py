"""Reading and replacing tensors at the ports of a model while it runs."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.hooks import RemovableHandle

from normlab.errors import NormlabError
from normlab.jacobian.evaluating import JacobianError, evaluate
from normlab.recording.discovery.finding import arguments
from normlab.recording.plan import Port
from normlab.recording.tensors import select

#: What shall stand at a port, given what does.
Replace: TypeAlias = Callable[[Tensor], Tensor]
#: Positional and keyword arguments of a model.
Inputs: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


def run(
    model: nn.Module,
    inputs: Inputs,
    *,
    reads: Iterable[Port] = (),
    writes: Mapping[Port, Replace] | None = None,
) -> dict[Port, Tensor]:
    """Run ``model`` once and return a copy of what stood at each port of ``reads``, on its graph.

    Args:
        model: the model.
        inputs: its positional and keyword arguments.
        reads: ports to read.
        writes: for a port what shall stand there instead, given what does. A module's result is replaced; an
            argument is overwritten in place, so that whatever else uses that tensor from then on sees it too.

    Raises:
        JacobianError: a port was not seen, or was seen twice; the model draws random numbers or updates statistics.
    """
    reads, writes = list(reads), dict(writes or {})
    found: dict[Port, Tensor] = {}
    with _hooked(model, reads, writes, found):
        call(model, inputs)
    for port in reads:
        if port not in found:
            raise JacobianError(f"module {port.module!r} did not run: give a batch with which the model uses it")
    return {port: _total(port, found) for port in reads}


def call(model: nn.Module, inputs: Inputs) -> Any:
    """Run ``model`` as a function.

    Raises:
        JacobianError: it does not run on these inputs, draws random numbers or updates statistics.
    """
    try:
        return evaluate(model, *inputs[0], **inputs[1])
    except NormlabError:
        raise
    except Exception as error:  # whatever a stranger's model raises
        line = (str(error).splitlines() or [""])[0]
        raise JacobianError(
            f"{type(model).__name__} does not run on this batch ({type(error).__name__}: {line}): give the tensor that "
            f"it is called with, a tuple of positional arguments or a dictionary of keyword arguments"
        ) from error


def inputs_of(batch: Any) -> Inputs:
    """Return the arguments of a model, in float64 where they are numbers.

    Raises:
        JacobianError: the batch holds no tensor.
    """
    given = arguments(batch)
    if not any(isinstance(one, Tensor) for one in tree_leaves(given)):
        raise JacobianError(
            f"the batch is a {type(batch).__name__} without a tensor: give a tensor, a tuple of positional arguments "
            f"or a dictionary of keyword arguments"
        )
    return with_dtype(given, torch.float64)


def with_dtype(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """Return the arguments of a model with floating-point tensors in another dtype."""

    def one(value: Any) -> Any:
        return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value

    args, kwargs = tree_map(one, inputs)
    return args, kwargs


def _total(port: Port, found: Mapping[Port, Tensor]) -> Tensor:
    total = found[port]
    for other in port.plus:
        total = total + found[other].reshape(total.shape)
    return total


@contextmanager
def _hooked(
    model: nn.Module, reads: Sequence[Port], writes: Mapping[Port, Replace], found: dict[Port, Tensor]
) -> Iterator[None]:
    handles: list[RemovableHandle] = []
    written: set[Port] = set()
    try:
        for port, replace in writes.items():
            handles.append(_replacing(model, port, replace, written))
        for seen in dict.fromkeys(one for port in reads for one in (port, *port.plus)):
            handles.append(_reading(model.get_submodule(seen.module), seen, found))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _reading(module: nn.Module, port: Port, found: dict[Port, Tensor]) -> RemovableHandle:
    def read(_: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        tensor = select(port.side, port.path, args, kwargs, result)
        _once(port, port in found)
        if isinstance(tensor, Tensor):
            found[port] = tensor.clone()

    return module.register_forward_hook(read, with_kwargs=True)


def _replacing(model: nn.Module, port: Port, replace: Replace, written: set[Port]) -> RemovableHandle:
    module = model.get_submodule(port.module)

    def given(_: nn.Module, args: Any, kwargs: Any) -> None:
        tensor = select("input", port.path, args, kwargs, None)
        _once(port, port in written)
        written.add(port)
        tensor.copy_(replace(tensor))

    def made(_: nn.Module, args: Any, kwargs: Any, result: Any) -> Any:
        _once(port, port in written)
        written.add(port)
        return _put(result, port.path, replace(select("output", port.path, args, kwargs, result)))

    if port.side == "input":
        return module.register_forward_pre_hook(given, with_kwargs=True)
    return module.register_forward_hook(made, with_kwargs=True)


def _once(port: Port, before: bool) -> None:
    if before:
        raise JacobianError(
            f"module {port.module!r} runs more than once in a pass: give a part between modules that run once"
        )


def _put(value: Any, path: Sequence[int | str], new: Tensor) -> Any:
    """Return a container as ``value`` with ``new`` at the end of ``path``."""
    if not path:
        return new
    step, rest = path[0], path[1:]
    if isinstance(value, tuple):
        items = [_put(item, rest, new) if place == step else item for place, item in enumerate(value)]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    changed = copy.copy(value)
    try:
        changed[step] = _put(value[step], rest, new)
    except (KeyError, TypeError):
        setattr(changed, str(step), _put(getattr(value, str(step)), rest, new))
    return changed
