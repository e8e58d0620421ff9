"""Hooks on a model that leave no trace on it.

The hooks are torch's process-wide ones and look modules up by identity. So a deep copy or a pickle of a
model that is being recorded carries none, and nothing is left on the model whatever happens. A module
that has forward hooks of its own, which may replace its result, is read by a hook that is put behind
them for the length of one call.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

Ran = Callable[[nn.Module, tuple[Any, ...], dict[str, Any], Any], None]

_UNSEEN: Final[ContextVar[bool]] = ContextVar("unseen", default=False)


@contextmanager
def unseen() -> Iterator[None]:
    """Let a model run without any recorder taking note of it."""
    token = _UNSEEN.set(True)
    try:
        yield
    finally:
        _UNSEEN.reset(token)


class Attachment:
    """Calls ``ran`` when a module of ``modules`` has run, and ``starts`` before the model itself runs.

    Args:
        model: the model.
        modules: identities of the modules to read.
        starts: called without arguments.
        ran: called with the module, its positional and keyword arguments, and its result.
    """

    def __init__(self, model: nn.Module, modules: set[int], starts: Callable[[], None], ran: Ran) -> None:
        self._model, self._modules, self._starts, self._ran = model, modules, starts, ran
        self._handles: list[RemovableHandle] = []
        self._behind: dict[int, list[RemovableHandle]] = {}

    def attach(self) -> None:
        """Start calling."""
        if not self._handles:
            self._handles = [
                register_module_forward_pre_hook(self._before),
                register_module_forward_hook(self._after, with_kwargs=True),
            ]

    def detach(self) -> None:
        """Stop calling."""
        for handle in (*self._handles, *(handle for handles in self._behind.values() for handle in handles)):
            handle.remove()
        self._handles, self._behind = [], {}

    def _before(self, module: nn.Module, args: Any) -> None:
        if _UNSEEN.get():
            return
        if module is self._model:
            self._starts()
        if module._forward_hooks and id(module) in self._modules:
            handle = module.register_forward_hook(self._last, with_kwargs=True)
            self._behind.setdefault(id(module), []).append(handle)

    def _after(self, module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        if id(module) in self._modules and not self._behind.get(id(module)) and not _UNSEEN.get():
            self._ran(module, args, kwargs, result)

    def _last(self, module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        self._behind[id(module)].pop().remove()
        self._ran(module, args, kwargs, result)
