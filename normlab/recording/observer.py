"""What happens when a watched module has run: its tensors are reduced at once, and their gradients awaited."""

from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from normlab.errors import RecordingError
from normlab.recording.fast import exact_products
from normlab.recording.ledger import Booking, Entry, Ledger, Record
from normlab.recording.moments import activation_moments, gradient_moments, pair_moments
from normlab.recording.native import library
from normlab.recording.plan import Port, Residual
from normlab.recording.scores import scores_sums
from normlab.recording.tensors import Seen, arranged, by_head, dtype_name, quiet, recomputing, select, tensors_in
from normlab.recording.tokens import Wanted, as_sequences
from normlab.recording.watches import Place, PortWatch, Watch, Watches, place, together

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
        bookings: which slots take the gradient.
    """

    __slots__ = ("observer", "ledger", "keep", "heads", "layout", "tokens", "bookings", "fired")

    def __init__(self, observer: "Observer", port: PortWatch) -> None:
        self.observer, self.ledger, self.keep, self.heads = observer, observer.ledger, observer.mask, port.heads
        self.layout, self.tokens = port.port.layout, observer.tokens
        self.bookings: list[Booking] = []
        self.fired = False

    def __call__(self, gradient: Tensor) -> None:
        """Reduce ``gradient`` into the books of the step whose forward pass it belongs to."""
        if self.ledger is None or self.ledger is not self.observer.ledger:
            return
        if self.fired:
            self.observer.reasons |= {slot: SEVERAL_BACKWARD for booking in self.bookings for slot in booking.slots}
        self.fired = True
        self._reduce(gradient)

    def through_base(self, shape: torch.Size, gradient: Tensor) -> None:
        """Reduce the gradient of the tensor that the awaited one is a view of, if its own did not come."""
        if not self.fired:
            self(gradient.reshape(shape))

    def _reduce(self, gradient: Tensor) -> None:
        observer, ledger = self.observer, self.ledger
        assert ledger is not None
        with quiet():
            for head, part in by_head(arranged(gradient, self.layout, self.tokens), self.heads):
                record = observer.reduced_gradient(part, self.keep)
                for booking in self.bookings:
                    ledger.book(record, booking if head is None else booking._replace(head=head))


class Observer:
    """Reduces tensors into a ledger, as a plan's watches say.

    Args:
        watches: the compiled plan.
        wanted: which numbers are computed.
        mask: which tokens are real; all where there is none.

    Attributes:
        ledger: the books of the current step; ``None`` while nothing is recorded.
        reasons: why a slot has no value although its module ran.
        ran: identities of the modules that ran.
        tokens: numbers of sequences and tokens of the last tensor of a plan that had both.
    """

    def __init__(self, watches: Watches, wanted: Wanted, mask: Tensor | None) -> None:
        self.watches, self.wanted, self.mask = watches, wanted, mask
        self.ledger: Ledger | None = None
        self.reasons: dict[int, str] = {}
        self.ran: set[int] = set()
        self.tokens: tuple[int, int] = (0, 0)
        self._calls: dict[int, int] = {}
        self._awaited: set[tuple[int, int]] = set()
        self._failed = False
        self._found: dict[int, Found] = {}
        self._remembered: dict[Port, Kept] = {}
        self._handles: list[Any] = []
        self._last_gradient: tuple[Seen, Record, Tensor | None] | None = None

    def begin(self, ledger: Ledger) -> None:
        """Start a step with empty books."""
        self.ledger, self.reasons, self.ran, self._failed = ledger, {}, set(), False
        self._forget()

    def start_pass(self) -> None:
        """Forget the tensors of the pass before, and its numbers too if it failed: what runs now are first calls."""
        if self.ledger is not None:
            if self._failed:
                self.ledger.roll_back()
            else:
                with quiet():
                    self.ledger.mark()
        self._failed = False
        self._forget()

    def end_pass(self, failed: bool) -> None:
        """Take note of whether the pass ended in an exception."""
        self._failed = failed

    def settle(self) -> Ledger:
        """Return the books in order, without a pass that failed after others."""
        assert self.ledger is not None
        # One that failed alone stays: it shows how far the model came.
        if self._failed and self.ledger.marked:
            self.ledger.roll_back()
        self.ledger.settle()
        return self.ledger

    def _forget(self) -> None:
        with quiet():
            # Products are torch's way alone.
            self.wanted = replace(self.wanted, products=library() is None and exact_products())
        self._awaited = set()
        self._calls, self._found, self._remembered, self._last_gradient = {}, {}, {}, None
        # Handles of graphs that are gone need no removal.
        self._handles = [handle for handle in self._handles if handle.hooks_dict_ref() is not None]

    def close(self) -> None:
        """Take the hooks off the tensors of graphs that are still alive."""
        for handle in self._handles:
            handle.remove()
        self._forget()
        self._handles, self.ledger = [], None

    def module_ran(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Reduce the tensors that are watched at ``module``."""
        identity, again = id(module), recomputing()
        watch, call = self.watches.by_module[identity], self._calls.get(identity, 0)
        if again and call > 1:
            # Checkpointing repeats calls in an order of its own: which one this is cannot be told.
            return
        if again:
            call = 0
        else:
            self._calls[identity] = 0 if self.watches.once else call + 1
            self.ran.add(identity)
        with quiet():
            ran = args, kwargs, result
            values: dict[Place, Any] = {}
            for where, port in watch.ports.items():
                if port.port.call is not None and port.port.call != call:
                    continue
                source = select(port.port.side, port.port.path, *ran)
                values[where] = self._with_others(source, port.port)
                self._observe(values[where], source, port, call, again)
            if not again:
                self._relate(watch, values, call, ran)

    def reduced_gradient(self, gradient: Tensor, keep: Tensor | None) -> Record:
        """Return the record of a gradient; both terms of a sum get the same tensor, which is reduced once."""
        assert self.ledger is not None
        last = self._last_gradient
        if last is not None and last[2] is keep and last[0].is_still(gradient):
            return last[1]
        record = self.ledger.gradient(gradient_moments(as_sequences(gradient.detach()), keep, self.wanted))
        self._last_gradient = Seen(gradient), record, keep
        return record

    def _with_others(self, value: Any, port: Port) -> Any:
        """Return a tensor with those added that the port says; nothing if one of them is not there."""
        for other in port.plus:
            term = self._recalled(other)
            same = isinstance(value, Tensor) and term is not None and term.shape == value.shape
            value = value + term if same else None
        return value

    def _observe(self, value: object, source: Any, port: PortWatch, call: int, again: bool) -> None:
        if not port.planned and not isinstance(value, Tensor):
            value = self._alone(value, port, call, again)
        if problem := self._problem(value, port):
            self.reasons |= {slot: problem for slot in (*port.forward, *port.backward)}
            return
        assert isinstance(value, Tensor)
        self._take_tokens(value, port)
        found = self._find(value)
        if port.remembered and not again:
            self._remembered[port.port] = Kept(value, found, port.remembered)
        if (port.forward or port.reduced) and not again:
            self._reduce(value, port, found, call)
        if not port.backward:
            return
        # A sum's gradient is that of each of its terms.
        self._await(source, port, call, again)

    def _alone(self, value: object, port: PortWatch, call: int, again: bool) -> object:
        """Observe each tensor of a container for itself, and return nothing else to observe if there were any."""
        parts = [(path, part) for path, part in tensors_in(value) if part.is_floating_point()]
        for path, part in parts:
            self._observe(part, part, self.watches.part(port, path), call, again)
        return None if parts else value

    def _await(self, source: Tensor, port: PortWatch, call: int, again: bool) -> None:
        if not source.requires_grad:
            self.reasons |= {slot: "no gradient required" for slot in port.backward if slot not in self.reasons}
            return
        # A block's input was there before it ran, so its gradient is awaited already when the block is repeated.
        slots = [slot for slot in port.backward if not (again and (slot, call) in self._awaited)]
        if not slots:
            return
        if not again:
            self._awaited.update((slot, call) for slot in slots)
        found = self._find(source)
        if found.awaiting is None:
            found.awaiting = Awaiting(self, port)
            self._handles.append(source.register_hook(found.awaiting))
            base = source._base if self.watches.in_place else None
            if base is not None and base.requires_grad and base.numel() == source.numel() and base.is_contiguous():
                # An in-place change of a view takes its hooks out of the graph; those of its base stay.
                self._handles.append(base.register_hook(partial(found.awaiting.through_base, source.shape)))
        found.awaiting.bookings.append(Booking(slots, port.number(call), dtype_name(source)))

    def _take_tokens(self, value: Tensor, port: PortWatch) -> None:
        if value.dim() == 3 and port.port.layout != "flat" and port.planned:
            first, second = value.shape[:2]
            self.tokens = (first, second) if port.port.layout == "sequences first" else (second, first)

    def _problem(self, value: object, port: PortWatch) -> str:
        """Say why ``value`` cannot be reduced, or nothing."""
        if value is None:
            return "not there"
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return "not a floating-point tensor"
        if port.port.layout == "flat" and value.shape[0] != self.tokens[0] * self.tokens[1]:
            return "a flat tensor of tokens of sequences that are not known"
        if self.mask is None:
            return ""
        tokens = tuple((value[:, 0] if port.heads else self._sequences(value, port.port)).shape[:2])
        if tokens == tuple(self.mask.shape):
            return ""
        what = f"the mask {list(self.mask.shape)} does not fit {list(tokens)} tokens"
        if port.planned:
            raise RecordingError(f"{what} at {port.port.module!r}: give a mask [batch, tokens], True for real tokens")
        return what

    def _reduce(self, x: Tensor, port: PortWatch, found: Found, call: int) -> None:
        assert self.ledger is not None
        booking = Booking(port.forward, port.number(call), dtype_name(x))
        for head, part in by_head(x, port.heads):
            record = found.record if head is None else None
            if record is None:
                sequences = part if head is not None else self._sequences(part, port.port)
                moments = activation_moments(as_sequences(sequences.detach()), self.mask, self.wanted)
                found.record = record = self.ledger.activation(moments)
            self.ledger.book(record, booking if head is None else booking._replace(head=head))

    def _relate(self, watch: Watch, values: dict[Place, Any], call: int, ran: tuple[Any, Any, Any]) -> None:
        assert self.ledger is not None
        for slot, residual in watch.residuals:
            if residual.last.call not in (None, call):
                continue
            if problem := self._compare(slot, residual, values, call):
                self.reasons[slot] = problem
        for slot, scores in watch.scores:
            query, key = (select(port.side, port.path, *ran) for port in (scores.query, scores.key))
            for head, sums in enumerate(scores_sums(query, key, scores, self.mask)):
                self.ledger.add(Entry(slot, call, dtype_name(query), head), sums)
        if watch.loss is not None:
            slot, port = watch.loss
            value = select(port.side, port.path, *ran)
            self.ledger.book(self.ledger.loss(value), Booking((slot,), 0, dtype_name(value)))

    def _compare(self, slot: int, residual: Residual, values: dict[Place, Any], call: int) -> str:
        """Compare update and skip, and say why that cannot be done."""
        assert self.ledger is not None
        last = residual.last
        update, skip, total = (self._value(port, last, values) for port in (residual.update, residual.skip, last))
        if update is None or skip is None or total is None:
            return "changed in place before the sum was there"
        one, two = (self._find(tensor).record for tensor in (update, skip))
        if one is None or two is None:
            return "not reduced"
        terms = self._sequences(update, residual.update).detach(), self._sequences(skip, residual.skip).detach()
        stored = None if residual.total is None else self._sequences(total, residual.total).detach()
        if not terms[0].shape == terms[1].shape or (stored is not None and stored.shape != terms[0].shape):
            return "update, skip and sum differ in shape"
        moments = pair_moments(*terms, stored, self.mask, (one.moments, two.moments), self.wanted)
        number = call if last.call is None else 0
        self.ledger.book(self.ledger.pair(moments), Booking((slot,), number, dtype_name(update)))
        return ""

    def _value(self, port: Port, last: Port, values: dict[Place, Any]) -> Tensor | None:
        """Return a tensor of a residual sum as it was when it was seen, or ``None``."""
        if together(port, last):
            value = values[place(port)]
            return value if isinstance(value, Tensor) else None
        return self._recalled(port)

    def _recalled(self, port: Port) -> Tensor | None:
        """Return a tensor that was remembered, if it is unchanged, and let go of it after its last use."""
        kept = self._remembered.pop(port, None)
        if kept is None:
            return None
        if kept.uses > 1:
            self._remembered[port] = kept._replace(uses=kept.uses - 1)
        return kept.found.tensor()

    def _sequences(self, tensor: Tensor, port: Port) -> Tensor:
        return as_sequences(arranged(tensor, port.layout, self.tokens))

    def _find(self, tensor: Tensor) -> Found:
        found = self._found.get(id(tensor))
        if found is None or not found.is_still(tensor):
            found = self._found[id(tensor)] = Found(tensor)
        return found
