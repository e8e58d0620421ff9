"""Hooks on a model that leave no trace on it.

The hooks are torch's process-wide ones and look modules up by identity. So a deep copy or a pickle of a
model that is being recorded carries none, and nothing is left on the model whatever happens. A module
that has forward hooks of its own, which may replace its result, is read by a hook that is put behind
them for the length of one call.

What other threads run is not seen: only the thread that attached, and those in which autograd repeats its
checkpointed modules.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from torch import nn
from torch.nn.modules import module as torch_module
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from normlab.recording.compiled import Eager
from normlab.recording.native import library
from normlab.recording.tensors import recomputing

if TYPE_CHECKING:
    from normlab.recording._native import Reader

Ran = Callable[[nn.Module, tuple[Any, ...], dict[str, Any], Any], None]

_UNSEEN: Final[ContextVar[bool]] = ContextVar("unseen", default=False)


class Calls(NamedTuple):
    """Who is told.

    Attributes:
        starts: called without arguments before the model itself runs.
        ran: called when a module has run with it, its positional and keyword arguments, and its result.
        ended: called when the model itself is over, with whether an exception ended it.
    """

    starts: Callable[[], None]
    ran: Ran
    ended: Callable[[bool], None]


@contextmanager
def unseen() -> Iterator[None]:
    """Let a model run without any recorder taking note of it."""
    token = _UNSEEN.set(True)
    try:
        yield
    finally:
        _UNSEEN.reset(token)


def take_off(handle: RemovableHandle) -> None:
    """Remove a hook, and what torch keeps of a process-wide one that took keywords."""
    handle.remove()
    torch_module._global_forward_hooks_with_kwargs.pop(handle.id, None)


class Attachment:
    """Says when a model starts and ends, and when some of its modules have run.

    Args:
        model: the model.
        modules: identities of the modules to read.
    """

    def __init__(self, model: nn.Module, modules: set[int]) -> None:
        self._model, self._modules = model, modules
        self._handles: list[RemovableHandle] = []
        self._behind: dict[int, list[RemovableHandle]] = {}
        self._done: nn.Module | None = None
        self._calls: Calls | None = None
        self._eager = Eager()
        self._thread = 0

    def attach(self, calls: Calls, reader: "Reader | None" = None) -> None:
        """Start calling.

        Args:
            calls: who is told.
            reader: compiled code that takes calls in place of ``calls.ran``, where it can.

        Raises:
            RecordingError: compiled code is running, which runs past hooks.
        """
        self._eager.check()
        self._calls, self._thread = calls, get_ident()
        if not self._handles:
            before, after, over = self._before, self._after, self._over
            if reader is not None:
                around = library().Around(self, reader, self._model, _UNSEEN, self._thread)
                before, after, over = around.before, around.after, around.over
            self._handles = [
                register_module_forward_pre_hook(before),
                register_module_forward_hook(after, with_kwargs=True),
                register_module_forward_hook(over, always_call=True),
            ]

    def detach(self) -> None:
        """Stop calling, and let go of who was called: they hold this in turn."""
        for handle in (*self._handles, *(handle for handles in self._behind.values() for handle in handles)):
            take_off(handle)
        self._handles, self._behind, self._done, self._calls = [], {}, None, None
        self._eager.leave()

    def _before(self, module: nn.Module, args: Any) -> None:
        if _UNSEEN.get() or self._calls is None or (get_ident() != self._thread and not recomputing()):
            return
        if not self._eager.forced:
            self._eager.check()
        if module is self._model:
            self._calls.starts()
        if module._forward_hooks and id(module) in self._modules:
            handle = module.register_forward_hook(self._last, with_kwargs=True)
            self._behind.setdefault(id(module), []).append(handle)

    def _after(self, module: nn.Module, args: Any, *rest: Any) -> None:
        # What other threads run is not seen. While hooks come and go, torch may call those of theirs without keywords.
        if (get_ident() != self._thread and not recomputing()) or len(rest) < 2:
            return
        identity = id(module)
        if identity in self._modules and identity not in self._behind and not _UNSEEN.get():
            self._tell(module, args, *rest)
        self._done = module

    def _over(self, module: nn.Module, args: Any, result: Any) -> None:
        if get_ident() != self._thread and not recomputing():
            return
        # This one is called after an exception too, and then it alone.
        failed, self._done = self._done is not module, None
        if failed and id(module) in self._behind:
            self._take_off_behind(module)
        if module is self._model and self._calls is not None and not _UNSEEN.get():
            self._calls.ended(failed)

    def _last(self, module: nn.Module, args: Any, *rest: Any) -> None:
        if get_ident() == self._thread or recomputing():
            self._take_off_behind(module)
            self._tell(module, args, *rest)

    def _take_off_behind(self, module: nn.Module) -> None:
        handles = self._behind[id(module)]
        handles.pop().remove()
        if not handles:
            # Compiled code takes nothing while there are any.
            del self._behind[id(module)]

    def _tell(self, module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        if self._calls is not None:
            self._calls.ran(module, args, kwargs, result)
