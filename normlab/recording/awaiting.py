"""What is known of a tensor that was seen, and the hook that reduces its gradient."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from normlab.recording.ledger import Record
from normlab.recording.native import library, sampled
from normlab.recording.tensors import Seen, arranged, by_head, quiet
from normlab.recording.watches import PortWatch

if TYPE_CHECKING:
    from normlab.recording.observer import Observer

#: Why a gradient has no value although it was there.
SEVERAL_BACKWARD: Final = "several backward passes through one forward pass"


if TYPE_CHECKING or library() is None:

    class Found(Seen):
        """A tensor that was seen, what it was reduced to, and what takes its gradient."""

        __slots__ = ("record", "bookings", "sampled")

        def __init__(self, tensor: Tensor) -> None:
            super().__init__(tensor)
            self.record: Record | None = None
            self.bookings: list[Any] | None = None
            self.sampled = sampled(tensor)

        def is_still(self, tensor: Tensor) -> bool:
            """Say whether this is ``tensor``, unchanged as far as torch counts and some of its entries tell."""
            if not super().is_still(tensor):
                return False
            now = sampled(tensor)
            # What cannot be read, as freed memory, tells nothing.
            return 0 in (now[0], self.sampled[0]) or now == self.sampled

else:
    Found = library().Found


class Awaiting:
    """A hook that reduces the gradient of one tensor, and holds no tensor itself.

    Attributes:
        ledger: the books of the step whose forward pass the tensor belongs to.
        keep: which tokens count.
        bookings: which slots take the gradient, in turn with the call's number and the dtype of the tensor.
        fired: whether the gradient has come.
        counter: for a view that may be changed in place, an empty tensor that shares its count of changes.
        version: that count when the view was seen.
    """

    __slots__ = (
        "observer", "ledger", "keep", "heads", "layout", "tokens", "bookings", "fired", "counter", "version"
    )  # fmt: skip

    def __init__(self, observer: "Observer", port: PortWatch) -> None:
        self.observer, self.ledger, self.keep, self.heads = observer, observer.ledger, observer.mask, port.heads
        self.layout, self.tokens = port.port.layout, observer.tokens
        self.bookings: list[Any] = []
        self.fired = False
        self.counter: Tensor | None = None
        self.version = 0

    def __call__(self, gradient: Tensor | None) -> None:
        """Reduce ``gradient``; there is none where only other results of the same operation are used."""
        if gradient is None or is_changed(self):
            return
        if self.heads or self.layout != "sequences first":
            with quiet():
                parts = list(by_head(arranged(gradient, self.layout, self.tokens), self.heads))
        else:
            parts = [(None, gradient)]
        self.observer.take_gradient(self, parts)


def is_changed(awaiting: Any) -> bool:
    """Whether the tensor was changed in place after it was seen, so that a part of its gradient passes it by."""
    return awaiting.counter is not None and awaiting.counter._version != awaiting.version


def through_base(awaiting: Any, base: Tensor, view: Tensor) -> Callable[[Tensor | None], None]:
    """Return a hook on what an awaited tensor is a view of, which takes its gradient if the view was changed.

    A change of a view in place is a change of its base: from then on the gradient of what stood there before comes
    to the base, and to the view's own hook only by those operations that had read it before.
    """
    awaiting.counter, awaiting.version = view.detach(), view._version
    # Its count of changes goes on being the view's, and its memory does not.
    awaiting.counter.data = view.new_empty(0)
    stride = base.stride()
    place = (view.shape, view.stride(), view.storage_offset() - base.storage_offset())

    def take(gradient: Tensor | None) -> None:
        if gradient is None or not is_changed(awaiting):
            return
        if gradient.stride() != stride:
            gradient = torch.empty_strided(gradient.shape, stride, dtype=gradient.dtype, device=gradient.device).copy_(
                gradient
            )
        awaiting.counter = None
        awaiting(gradient.as_strided(*place))

    return take


def on_base(awaiting: Any, view: Tensor) -> tuple[Tensor, Callable[[Tensor | None], None]] | None:
    """Return the tensor that an awaited one is a view of and its hook, or ``None`` where none is needed."""
    base = view._base
    if base is None or not base.requires_grad or base.dtype != view.dtype:
        return None
    with quiet():
        return base, through_base(awaiting, base, view)


def awaited(tensor: Tensor, awaiting: Awaiting, *, in_place: bool) -> tuple[list[Any], list[RemovableHandle]]:
    """Let a hook await a tensor's gradient; return what takes it, and how to take the hook off.

    Args:
        tensor: the tensor.
        awaiting: the hook.
        in_place: whether the tensor may be changed in place.
    """
    handles = [tensor.register_hook(awaiting)]
    if in_place and (found := on_base(awaiting, tensor)) is not None:
        base, hook = found
        handles.append(base.register_hook(hook))
    return awaiting.bookings, handles
