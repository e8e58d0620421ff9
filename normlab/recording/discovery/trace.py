"""Running a model once and writing down what is computed from what."""

import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from normlab.recording.attachment import unseen
from normlab.recording.buffers import buffers_as_before
from normlab.recording.compiled import step_by_step
from normlab.recording.discovery.addition import Operation, put_plainly, taken_apart
from normlab.recording.discovery.causality import causal, counted
from normlab.recording.discovery.graph import SHAPED, Flow, Kind, Ref, Showing, Value
from normlab.recording.discovery.probing import is_foreign
from normlab.recording.tensors import tensors_in


def trace(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Flow:
    """Run ``model`` once and return its data flow.

    No gradient is taken; buffers and random states are as before afterwards.

    Args:
        model: the model.
        args: what it is called with.
        kwargs: and by keyword.
    """
    writer = Writer(model)
    with ExitStack() as stack:
        for context in (unseen(), _undisturbed(model), step_by_step(), writer.watching(), torch.no_grad(), writer):
            stack.enter_context(context)
        writer.takes(args, kwargs)
        model(*args, **kwargs)
    return writer.flow


class Writer(TorchDispatchMode):
    """Writes operations into a data flow, below autograd and every composite operation.

    Args:
        model: the model whose modules are told apart.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flow = Flow(training=model.training)
        self._paths = {id(module): path for path, module in model.named_modules()}
        self._running: list[str] = []
        self._known = WeakTensorKeyDictionary()
        self._sharing: dict[int, list[weakref.ref[Tensor]]] = {}
        for name, parameter in model.named_parameters():
            self._add(parameter, "parameter", name=name)
        for name, buffer in model.named_buffers():
            self._add(buffer, "constant", name=name)

    def takes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take note of the model's inputs."""
        for _, tensor in tensors_in((args, kwargs)):
            self._add(tensor, "input")

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation and write down its results."""
        kwargs = kwargs or {}
        apart = taken_apart(func, args, kwargs, lambda part, *rest: self.__torch_dispatch__(part, types, rest))
        if apart is not None:
            return apart
        inputs = [self._index(tensor) for _, tensor in tensors_in((args, kwargs))]
        changed = _changed(func, args, kwargs)
        template = tree_map(lambda x: Ref(self._index(x)) if isinstance(x, Tensor) else x, (args, kwargs))
        if func is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:
            # Without entries, whatever a model asks about its batch is true: nothing is padded, nothing packed.
            return args[0].dtype == torch.bool if not args[0].is_floating_point() else 0.0
        if is_foreign(func):
            whole = [one for _, one in tensors_in((args, kwargs)) if not (one.is_floating_point() or one.is_meta)]
            self.flow.entries |= {self._index(one): one.detach().cpu().clone() for one in whole}
        result = func(*args, **kwargs)
        name = func.overloadpacket.__name__.rstrip("_") or func.overloadpacket.__name__
        inputs = [] if name in SHAPED else inputs
        own = put_plainly(self.flow, Operation(name, tuple(inputs), (func, *template)), self._module)
        for tensor in changed:
            self._overwrite(tensor, own)
        for place, (_, tensor) in enumerate(tensors_in(result)):
            if not any(tensor is one for one in changed):
                if name == "embedding" and counted(args[1]):
                    self.flow.counting.add(len(self.flow.values))
                index = self._add(tensor, "op", own.name, own.inputs, function=own.function, output=place)
                if place == 0 and (known := causal(name, args, kwargs, tensor)) is not None:
                    self.flow.causal[index] = known
        return result

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Keep track of which module runs, and of what it takes and gives."""
        handles = [
            register_module_forward_pre_hook(self._starts),
            register_module_forward_hook(self._ends, with_kwargs=True),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
                # torch keeps what it was told of keywords.
                torch_module._global_forward_hooks_with_kwargs.pop(handle.id, None)

    def _starts(self, module: nn.Module, args: Any) -> None:
        if id(module) in self._paths:
            self._running.append(self._paths[id(module)])

    def _ends(self, module: nn.Module, args: Any, *rest: Any) -> None:
        path = self._paths.get(id(module))
        # While hooks come and go, torch may call those of other threads without keywords.
        if path is None or len(rest) < 2:
            return
        kwargs, result = rest
        while self._running and self._running.pop() != path:
            pass
        call = self.flow.calls[path] = self.flow.calls.get(path, 0) + 1
        for side, values in (("input", args), ("input", kwargs), ("output", result)):
            for where, tensor in tensors_in(values):
                if tensor in self._known:
                    self.flow.showings.append(Showing(self._known[tensor], path, side, where, call))  # type: ignore[arg-type]

    @property
    def _module(self) -> str:
        return self._running[-1] if self._running else ""

    def _index(self, tensor: Tensor) -> int:
        return self._known[tensor] if tensor in self._known else self._add(tensor, "constant")

    def _add(
        self,
        tensor: Tensor,
        kind: Kind,
        op: str = "",
        inputs: tuple[int, ...] = (),
        name: str = "",
        function: Any = None,
        output: int = 0,
    ) -> int:
        index = len(self.flow.values)
        self.flow.values.append(
            Value(
                index,
                kind,
                op,
                inputs,
                tuple(tensor.shape),
                tensor.is_floating_point(),
                str(tensor.dtype),
                self._module,
                name,
                function,
                output,
                _data(tensor) if kind == "constant" and not name else None,
            )
        )
        if tensor not in self._known:
            storage = _storage(tensor)
            sharing = [ref for ref in self._sharing.get(storage, ()) if ref() is not None]
            self._sharing[storage] = [*sharing, weakref.ref(tensor)]
        self._known[tensor] = index
        return index

    def _overwrite(self, tensor: Tensor, own: Operation) -> None:
        """Give new values to a tensor that was changed in place, and to all that share its memory."""
        before = self._index(tensor)
        replaced = own.name in ("copy", "fill", "zero")
        inputs = tuple(one for one in own.inputs if one != before) if replaced else own.inputs
        index = self._add(tensor, "op", own.name, inputs, function=own.function)
        for ref in self._sharing.get(_storage(tensor), ()):
            other = ref()
            if other is not None and other is not tensor:
                old = self._known[other]
                if other.numel() == tensor.numel():
                    self._add(other, "op", "alias", (index,))
                else:
                    self._add(other, "op", "written", (old, index), function=_write(old, other, index, tensor))


def _changed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """Return the tensors that an operation changes in place."""
    if not func._schema.is_mutable:
        return []
    found: list[Tensor] = []
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            found += [tensor for _, tensor in tensors_in(value)]
    return found


def _write(old: int, whole: Tensor, new: int, part: Tensor) -> Any:
    """Return what a tensor is after another one in its memory was changed, or nothing where that is not plain."""
    if part.numel() < whole.numel() and whole.is_contiguous():
        places = part.size(), part.stride(), part.storage_offset() - whole.storage_offset()
        return torch.ops.aten.as_strided_scatter.default, (Ref(old), Ref(new), *places), {}
    if part.numel() > whole.numel() and part.is_contiguous():
        places = whole.size(), whole.stride(), whole.storage_offset() - part.storage_offset()
        return torch.ops.aten.as_strided.default, (Ref(new), *places), {}
    return None


def _data(tensor: Tensor) -> Any:
    """Return the entries of a small tensor of whole numbers: an index that is written into the code."""
    small = tensor.numel() <= 16 and not tensor.is_floating_point() and not tensor.is_complex() and not tensor.is_meta
    return tensor.tolist() if small else None


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


@contextmanager
def _undisturbed(model: nn.Module) -> Iterator[None]:
    """Put buffers and random states back afterwards."""
    devices = sorted({tensor.device.index or 0 for tensor in model.parameters() if tensor.device.type == "cuda"})
    with torch.random.fork_rng(devices=devices), buffers_as_before(model):
        yield
