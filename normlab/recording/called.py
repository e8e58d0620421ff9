"""Calls of modules that somebody listens to.

A module calls what stands at ``_compiled_call_impl`` in its place, if anything does: torch keeps compiled code of
a module there, and leaves it out of copies and pickles. What is put there for the length of a recording runs the
module as it always runs and tells its listeners. Modules that nobody listens to are as they were, and so is the
whole process: torch calls every module on a slower path while there are process-wide hooks.
"""

import sys
from collections.abc import Iterable
from contextlib import ExitStack
from threading import RLock, get_ident
from types import FrameType
from typing import Any, Final, Protocol, runtime_checkable

from torch import nn
from torch.nn.modules import module as torch_module

from normlab.recording.native import library

_SLOT: Final = "_compiled_call_impl"
#: Letting go of a recorder that was given up may come at any moment, in here too.
_LOCK: Final = RLock()


@runtime_checkable
class Listener(Protocol):
    """Who is told of the calls of a module.

    Attributes:
        reader: compiled code that takes usual calls, without the listener being told of them; ``None`` without.
        eager: what keeps compiled code from standing in for modules.
    """

    reader: Any
    eager: Any

    def hears(self) -> bool:
        """Whether it wants to be told of what runs now, in this thread."""

    def starts(self, module: nn.Module) -> None:
        """A module is about to run."""

    def ran(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """A module has run, with the arguments that reached it."""

    def ended(self, module: nn.Module, failed: bool) -> None:
        """The call of a module is over; ``failed`` says whether by an exception."""


class PythonCalled:
    """What is called in place of a module.

    Attributes:
        module: the module.
        before: what stood in its place before.
        listeners: who is told.
    """

    __slots__ = ("module", "before", "listeners")

    def __init__(self, module: nn.Module, before: Any) -> None:
        self.module, self.before = module, before
        self.listeners: list[Listener] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module."""
        return attended(self, args, kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles of a module have nothing in this place, whatever way they are made."""
        return type(None), ()


Called: Final[Any] = PythonCalled if library() is None else library().Called


def listen(modules: Iterable[nn.Module], listener: Listener) -> None:
    """Tell a listener of the calls of some modules from now on; one that is told already stays."""
    with _LOCK:
        for module in modules:
            called = _called(module)
            if called is None:
                called = Called(module, compiled_code(module))
            if listener not in called.listeners:
                called.listeners.append(listener)
            # Meanwhile garbage may have been collected, and with it the only other listener.
            module.__dict__[_SLOT] = called


def leave(modules: Iterable[nn.Module], listener: Listener) -> None:
    """Tell a listener no more."""
    with _LOCK:
        for module in modules:
            called = _called(module)
            if called is None:
                continue
            # In one step, since meanwhile garbage may be collected, and other listeners with it.
            if listener in called.listeners:
                called.listeners.remove(listener)
            if not called.listeners:
                module.__dict__.pop(_SLOT, None)
                if called.before is not None:
                    module.__dict__[_SLOT] = called.before


def is_heard(module: nn.Module, listener: Listener) -> bool:
    """Whether a listener is told of a module's calls: it may have been compiled since."""
    called = _called(module)
    return called is not None and listener in called.listeners


def compiled_code(module: nn.Module) -> Any:
    """Return what torch compiled a module to, or ``None``."""
    found: Any = module.__dict__.get(_SLOT)
    if type(found) is not Called:
        return found
    return found.before if found.module is module else None


def _called(module: nn.Module) -> Any:
    """Return what is called in place of a module, if that is ours, and not that of a module it is a copy of."""
    found: Any = module.__dict__.get(_SLOT)
    return found if type(found) is Called and found.module is module else None


def attended(called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a module and tell its listeners."""
    module = _itself(called)
    # A tuple: listeners come and go in other threads.
    listeners = [one for one in tuple(called.listeners) if one.hears()] if module is called.module else []
    started: list[Listener] = []
    try:
        for listener in listeners:
            listener.starts(module)
            started.append(listener)
        if not listeners:
            return module._call_impl(*args, **kwargs)
        args, kwargs, inner, result = _run(module, args, kwargs)
        for listener in listeners:
            listener.ran(module, args, kwargs, inner)
    except BaseException:
        _end(started, module, failed=True)
        raise
    _end(listeners, module, failed=False)
    return result


def _end(listeners: Iterable[Listener], module: nn.Module, *, failed: bool) -> None:
    with ExitStack() as ends:  # all of them, also if one raises
        for listener in listeners:
            ends.callback(listener.ended, module, failed)


def _run(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], Any, Any]:
    """Run a module; return the arguments that reached it, its result, and what hooks around it made of that."""
    if not has_wrapping_hooks(module):
        result = module._call_impl(*args, **kwargs)
        return args, kwargs, result, result
    seen: list[Any] = []
    thread = get_ident()

    def last(ran: nn.Module, *call: Any) -> None:
        # Other threads, and copies that share their hooks with the module, come here too.
        if ran is module and get_ident() == thread:
            seen.append(call)

    # Behind all others: they may replace the result too.
    handle = module.register_forward_hook(last, with_kwargs=True)
    try:
        result = module._call_impl(*args, **kwargs)
    finally:
        handle.remove()
    # The module may have taken all its hooks off.
    return (*seen[-1], result) if seen else (args, kwargs, result, result)


def has_wrapping_hooks(module: nn.Module) -> bool:
    """Whether a module has hooks that may change its arguments, or that stand between its result and who called it."""
    return bool(
        module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or torch_module._global_forward_pre_hooks
        or torch_module._global_backward_hooks
        or torch_module._global_backward_pre_hooks
    )


def _itself(called: Any) -> nn.Module:
    """Return the module that is being called.

    ``DataParallel`` copies all that a module has, this too, and calls the copies from other threads.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not nn.Module._wrapped_call_impl.__code__:
        frame = frame.f_back
    found: nn.Module = called.module if frame is None else frame.f_locals["self"]
    return found if found.__dict__.get(_SLOT) is called else called.module
