"""What is known of the tensors of one pass, so that each is reduced once however many modules get it."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from normlab.recording.awaiting import Found
from normlab.recording.watches import PortWatch


class Known:
    """What is known of one pass. The compiled reader uses these containers too, so that they stay the same ones.

    Attributes:
        found: what is known of each tensor that was seen, by its identity.
        remembered: tensors that sums need later, what is known of them, and how many sums still do.
        awaited: ports whose first gradient is awaited.
        calls: how often each module was called, by its identity.
    """

    def __init__(self) -> None:
        self.found: dict[int, Found] = {}
        self.remembered: dict[PortWatch, tuple[Tensor, Found, int]] = {}
        self.awaited: set[PortWatch] = set()
        self.calls: dict[int, int] = {}
        self._given: set[int] = set()

    @property
    def containers(self) -> tuple[Any, ...]:
        """The four of them in the order in which the compiled reader takes them."""
        return self.found, self.remembered, self.awaited, self.calls

    def forget(self) -> None:
        """Forget everything: another pass begins."""
        for container in self.containers:
            container.clear()

    def given(self, arguments: Iterable[Any], call: int) -> None:
        """Take note of the arguments of the call that is read now, and of its number."""
        self._given = {id(argument) for argument in arguments} if call == 0 else set()

    def renew(self, tensor: Tensor) -> None:
        """Forget a tensor that the call gives and was not given, or that any later call reads.

        A kernel may have written it into memory that has been seen, past what torch counts.
        """
        if id(tensor) not in self._given:
            self._given.add(id(tensor))
            self.found.pop(id(tensor), None)

    def find(self, tensor: Tensor) -> Found:
        """Return what is known of a tensor as it is now."""
        found = self.found.get(id(tensor))
        if found is None or not found.is_still(tensor):
            found = self.found[id(tensor)] = Found(tensor)
        return found

    def remember(self, port: PortWatch, tensor: Tensor, found: Found) -> None:
        """Hold a tensor until the last sum that needs it."""
        self.remembered[port] = (tensor, found, port.remembered)

    def recall(self, port: PortWatch) -> Tensor | None:
        """Return a tensor that was remembered, if it is unchanged, and let go of it after its last use."""
        kept = self.remembered.pop(port, None)
        if kept is None:
            return None
        tensor, found, uses = kept
        if uses > 1:
            self.remembered[port] = (tensor, found, uses - 1)
        return found.tensor()
