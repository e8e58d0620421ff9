"""What is known of a tensor that was seen, and the hook that reduces its gradient."""

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor

from normlab.recording.ledger import Record
from normlab.recording.tensors import Seen, arranged, by_head, quiet
from normlab.recording.watches import PortWatch

if TYPE_CHECKING:
    from normlab.recording.observer import Observer

#: Why a gradient has no value although it was there.
SEVERAL_BACKWARD: Final = "several backward passes through one forward pass"


class Found(Seen):
    """A tensor that was seen, what it was reduced to, and who awaits its gradient."""

    __slots__ = ("record", "awaiting")

    def __init__(self, tensor: Tensor) -> None:
        super().__init__(tensor)
        self.record: Record | None = None
        self.awaiting: Awaiting | None = None


class Kept(NamedTuple):
    """A tensor that a sum needs later, what was found out about it, and how many sums still do."""

    tensor: Tensor
    found: Found
    uses: int


class Awaiting:
    """A hook that reduces the gradient of one tensor, and holds no tensor itself.

    Attributes:
        bookings: which slots take the gradient, in turn with the call's number and the dtype of the tensor.
    """

    __slots__ = ("observer", "ledger", "keep", "heads", "layout", "tokens", "bookings", "fired")

    def __init__(self, observer: "Observer", port: PortWatch) -> None:
        self.observer, self.ledger, self.keep, self.heads = observer, observer.ledger, observer.mask, port.heads
        self.layout, self.tokens = port.port.layout, observer.tokens
        self.bookings: list[Any] = []
        self.fired = False

    def __call__(self, gradient: Tensor) -> None:
        """Reduce ``gradient`` into the books of the step whose forward pass it belongs to."""
        observer, ledger = self.observer, self.ledger
        if ledger is None or ledger is not observer.ledger:
            return
        if self.fired:
            observer.reasons |= {slot: SEVERAL_BACKWARD for slots in self.bookings[::3] for slot in slots}
        self.fired = True
        if self.heads or self.layout != "sequences first":
            with quiet():
                parts = list(by_head(arranged(gradient, self.layout, self.tokens), self.heads))
        else:
            parts = [(None, gradient)]
        for head, part in parts:
            record = observer.reduced_gradient(part, self.keep)
            every = iter(self.bookings)
            for slots, call, dtype in zip(every, every, every, strict=True):
                ledger.book(record, slots, call, dtype, head)

    def through_base(self, shape: torch.Size, gradient: Tensor) -> None:
        """Reduce the gradient of the tensor that the awaited one is a view of, if its own did not come."""
        if not self.fired:
            self(gradient.reshape(shape))
