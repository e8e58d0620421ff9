"""The compiled ``native.cpp``."""

from contextvars import ContextVar
from typing import Any

from torch import Tensor, nn
from typing_extensions import Buffer

from normlab.recording.called import Listener
from normlab.recording.sums import Kind

class Written(Buffer):
    """What one pass wrote about a tensor: numbers, and how many tokens entered."""

    kind: Kind
    tokens: int

class Found:
    """See :class:`normlab.recording.tensors.Seen` and :class:`normlab.recording.awaiting.Found`."""

    record: Any
    bookings: list[Any] | None
    def __init__(self, tensor: Tensor) -> None: ...
    def is_still(self, tensor: Tensor) -> bool: ...
    def tensor(self) -> Tensor | None: ...

class Reader:
    """Does what :meth:`Observer.module_ran` does, for modules whose tensors are as most are."""

    observer: Any
    armed: bool
    scaled: bool
    def __init__(self, *arguments: Any) -> None: ...
    def listen(self, thread: int, model: nn.Module, unseen: ContextVar[bool]) -> None: ...
    def forget(self) -> None: ...
    def close(self) -> None: ...

class Called:
    """What :class:`normlab.recording.called.PythonCalled` is."""

    module: nn.Module
    before: Any
    listeners: list[Listener]
    def __init__(self, module: nn.Module, before: Any) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
