"""What is known of a tensor that was seen, and the hook that reduces its gradient."""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from normlab.recording.ledger import Record
from normlab.recording.native import library
from normlab.recording.tensors import Seen, arranged, by_head, quiet
from normlab.recording.watches import PortWatch

if TYPE_CHECKING:
    from normlab.recording.observer import Observer

#: Why a gradient has no value although it was there.
SEVERAL_BACKWARD: Final = "several backward passes through one forward pass"


if TYPE_CHECKING or library() is None:

    class Found(Seen):
        """A tensor that was seen, what it was reduced to, and what takes its gradient."""

        __slots__ = ("record", "bookings")

        def __init__(self, tensor: Tensor) -> None:
            super().__init__(tensor)
            self.record: Record | None = None
            self.bookings: list[Any] | None = None

else:
    Found = library().Found


class Awaiting:
    """A hook that reduces the gradient of one tensor, and holds no tensor itself.

    Attributes:
        ledger: the books of the step whose forward pass the tensor belongs to.
        keep: which tokens count.
        bookings: which slots take the gradient, in turn with the call's number and the dtype of the tensor.
        fired: whether the gradient has come.
    """

    __slots__ = ("observer", "ledger", "keep", "heads", "layout", "tokens", "bookings", "fired")

    def __init__(self, observer: "Observer", port: PortWatch) -> None:
        self.observer, self.ledger, self.keep, self.heads = observer, observer.ledger, observer.mask, port.heads
        self.layout, self.tokens = port.port.layout, observer.tokens
        self.bookings: list[Any] = []
        self.fired = False

    def __call__(self, gradient: Tensor | None) -> None:
        """Reduce ``gradient``; there is none where only other results of the same operation are used."""
        if gradient is None:
            return
        if self.heads or self.layout != "sequences first":
            with quiet():
                parts = list(by_head(arranged(gradient, self.layout, self.tokens), self.heads))
        else:
            parts = [(None, gradient)]
        self.observer.take_gradient(self, parts)


def through_base(awaiting: Any, shape: torch.Size, gradient: Tensor | None) -> None:
    """Reduce the gradient of the tensor that an awaited one is a view of, if its own did not come."""
    if gradient is not None and not awaiting.fired:
        awaiting(gradient.reshape(shape))


def awaited(tensor: Tensor, awaiting: Awaiting, *, in_place: bool) -> tuple[list[Any], list[RemovableHandle]]:
    """Let a hook await a tensor's gradient; return what takes it, and how to take the hook off.

    Args:
        tensor: the tensor.
        awaiting: the hook.
        in_place: whether the tensor may be changed in place.
    """
    handles = [tensor.register_hook(awaiting)]
    base = tensor._base if in_place else None
    if base is not None and base.requires_grad and base.numel() == tensor.numel() and base.is_contiguous():
        # An in-place change of a view takes its hooks out of the graph; those of its base stay.
        handles.append(base.register_hook(partial(through_base, awaiting, tensor.shape)))
    return awaiting.bookings, handles
