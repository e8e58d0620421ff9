"""The compiled ``native.cpp``."""

from typing import Any

from torch import Tensor
from typing_extensions import Buffer

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
    def forget(self) -> None: ...
    def close(self) -> None: ...

class Around:
    """The hooks of an :class:`Attachment`."""

    def __init__(self, *arguments: Any) -> None: ...
    def before(self, *arguments: Any) -> None: ...
    def after(self, *arguments: Any) -> None: ...
    def over(self, *arguments: Any) -> None: ...
