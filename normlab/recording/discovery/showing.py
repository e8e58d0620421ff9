"""At which module a value of the data flow can be read."""

from collections.abc import Sequence
from typing import NamedTuple

from normlab.recording.discovery.graph import Flow, Showing
from normlab.recording.plan import Layout, Port


class Tokens(NamedTuple):
    """How the tokens of a stack are laid out.

    Attributes:
        batch: number of sequences.
        length: tokens in each.
        first: whether the tokens run along the first axis, and sequences along the second.
    """

    batch: int
    length: int
    first: bool


class Ports:
    """Finds ports in a data flow.

    Args:
        flow: the data flow.
        tokens: how the tokens are laid out.
    """

    def __init__(self, flow: Flow, tokens: Tokens) -> None:
        self._flow, self._tokens = flow, tokens
        self._order = {showing: number for number, showing in enumerate(flow.showings)}

    def port(self, value: int, after: Sequence["Found"] = (), before: "Found | None" = None) -> "Found | None":
        """Return where a value shows first, the whole gradient with it if possible.

        Args:
            value: the value.
            after: what must show before it.
            before: what must show after it.
        """
        least = max((found.order for found in after), default=-1)
        most = len(self._order) if before is None else before.order
        shown = [one for one in self._flow.seen_at.get(self._flow.same(value), ()) if least < self._order[one] < most]
        fitting = [found for one in shown if (found := self._found(one)) is not None]
        return min(fitting, key=_preference, default=None)

    def _found(self, showing: Showing) -> "Found | None":
        layout = self._layout(self._flow.values[showing.value].shape)
        if layout is None:
            return None
        call = None if self._flow.calls[showing.module] == 1 else showing.call - 1
        port = Port(showing.module, showing.side, showing.path, layout=layout, call=call)
        return Found(port, self._order[showing], self._flow.whole(showing.value))

    def _layout(self, shape: tuple[int, ...]) -> Layout | None:
        batch, length, first = self._tokens
        if len(shape) == 3:
            # The memory of cross-attention has another length, and some modules take the axes in the other order.
            if shape[1 if first else 0] == batch:
                return "tokens first" if first else "sequences first"
            if shape[:2] == ((batch, length) if first else (length, batch)):
                return "sequences first" if first else "tokens first"
            return None
        return "flat" if len(shape) == 2 and shape[0] == batch * length and not first else None


class Found(NamedTuple):
    """A port, when it shows, and whether the gradient there is the whole gradient."""

    port: Port
    order: int
    whole: bool


def _preference(found: Found) -> tuple[bool, bool, bool, int]:
    """Order ports: how often a module runs may depend on the batch, so one that runs once is better."""
    return not found.whole, found.port.call is not None, found.port.layout == "flat", found.order


def tokens_of(flow: Flow, values: Sequence[int], lengths: Sequence[int], tokens_first: bool | None) -> Tokens | None:
    """Return how the tokens of a stream are laid out, or ``None`` if none of its values has three axes.

    Args:
        flow: the data flow.
        values: the stream's values.
        lengths: the numbers of queries that attention sees in this stack.
        tokens_first: what the model says, for a batch of as many sequences as tokens.
    """
    for value in values:
        for index in (value, *(showing.value for showing in flow.seen_at.get(flow.same(value), ()))):
            shape = flow.values[index].shape
            if len(shape) == 3:
                first = shape[0] in lengths and shape[1] not in lengths
                first = bool(tokens_first) if shape[0] == shape[1] else first
                return Tokens(shape[1], shape[0], True) if first else Tokens(shape[0], shape[1], False)
    return None
