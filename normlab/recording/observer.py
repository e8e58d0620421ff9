"""What happens when a watched module has run: its tensors are reduced at once, and their gradients awaited."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from normlab.recording.awaiting import SEVERAL_BACKWARD, Awaiting, Found, awaited
from normlab.recording.fast import exact_products
from normlab.recording.known import Known
from normlab.recording.ledger import Entry, Ledger, Record, Waiting
from normlab.recording.moments import activation_moments, gradient_moments, pair_moments
from normlab.recording.native import library
from normlab.recording.odd import silent
from normlab.recording.problems import problem_of, sequences_of, unread
from normlab.recording.scores import scores_sums
from normlab.recording.tensors import Seen, by_head, quiet, recomputing, select, tensors_in
from normlab.recording.tokens import Wanted, as_sequences
from normlab.recording.usual import reader_of
from normlab.recording.watches import Pair, PortWatch, Watch, Watches


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
        reader: compiled code that stands in for :meth:`module_ran` where everything is usual.
    """

    def __init__(self, watches: Watches, wanted: Wanted, mask: Tensor | None) -> None:
        self.watches, self.wanted, self.mask = watches, wanted, mask
        self.ledger: Ledger | None = None
        self.reasons: dict[int, str] = {}
        self.ran: set[int] = set()
        self.tokens: tuple[int, int] = (0, 0)
        self._failed = False
        self._last_gradient: tuple[Seen, Record, Tensor | None] | None = None
        self._known = Known()
        self._handles: list[Any] = []
        self.reader = reader_of(watches, wanted, (*self._known.containers, self.ran))

    def begin(self, ledger: Ledger) -> None:
        """Start a step with empty books."""
        self.ledger, self.reasons, self._failed = ledger, {}, False
        self.ran.clear()
        if self.reader is not None:
            self.reader.observer, self.reader.scaled = self, ledger.scaled
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
        """Take out what a pass that ended in an exception left, if there were others before it."""
        # One that failed alone stays until the next: it shows how far the model came.
        self._failed = failed
        if failed and self.ledger is not None and self.ledger.marked:
            # At once, since gradients of the passes before it may still come.
            self.ledger.roll_back()
            self._failed = False

    def books(self) -> Ledger:
        """Return the books, in which no tensor waits any more."""
        assert self.ledger is not None
        self.ledger.close()
        return self.ledger

    def _forget(self) -> None:
        if library() is None:
            # Products are torch's way alone.
            with quiet():
                self.wanted = replace(self.wanted, products=exact_products())
        self._known.forget()
        self._last_gradient = None
        if self.reader is not None:
            self.reader.forget()
        # Handles of graphs that are gone need no removal.
        self._handles = [handle for handle in self._handles if handle.hooks_dict_ref() is not None]

    def close(self) -> None:
        """Take the hooks off the tensors of graphs that are still alive."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if self.reader is not None:
            self.reader.close()
        self._forget()
        self.ledger = None

    def module_ran(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Reduce the tensors that are watched at ``module``."""
        identity, again = id(module), recomputing()
        watch, call = self.watches.by_module[identity], self._known.calls.get(identity, 0)
        if again and call > 1:
            # Checkpointing repeats calls in an order of its own: which one this is cannot be told.
            return
        if again:
            call = 0
        else:
            self._known.calls[identity] = 0 if self.watches.once else call + 1
            self.ran.add(identity)
        self._known.given((*args, *kwargs.values()), call)
        values: list[Any] = []
        for port in watch.ports.values():
            plan = port.port
            if plan.call is not None and plan.call != call:
                values.append(None)
                continue
            source = select(plan.side, plan.path, args, kwargs, result) if plan.path else result
            value = self._with_others(source, port) if port.others else source
            values.append(value)
            self._observe(value, source, port, call, again)
        if again:
            return
        for pair in watch.pairs:
            if pair.last.port.call in (None, call) and (problem := self._compare(pair, values, call)):
                self.reasons[pair.slot] = problem
        if watch.scores or watch.loss is not None:
            with quiet():
                self._relate(watch, call, (args, kwargs, result))

    def take_gradient(self, awaiting: Any, parts: Iterable[tuple[int | None, Tensor]]) -> None:
        """Reduce a gradient, or each head of it with its number, into the books that await it.

        Args:
            awaiting: an :class:`Awaiting`, or what the compiled reader has in its place.
            parts: the gradients.
        """
        ledger = self.ledger
        if ledger is None or ledger is not awaiting.ledger:
            return
        if awaiting.fired:
            self.reasons |= {slot: SEVERAL_BACKWARD for slots in awaiting.bookings[::3] for slot in slots}
        awaiting.fired = True
        for head, part in parts:
            record = self._reduced_gradient(part, awaiting.keep)
            every = iter(awaiting.bookings)
            for slots, call, dtype in zip(every, every, every, strict=True):
                ledger.book(record, slots, call, dtype, head)

    def without_gradient(self, port: PortWatch) -> None:
        """Take note of a tensor that no gradient will come to."""
        self.reasons |= {slot: "no gradient required" for slot in port.backward if slot not in self.reasons}

    def _reduced_gradient(self, gradient: Tensor, keep: Tensor | None) -> Record:
        """Return the record of a gradient; both terms of a sum get the same tensor, which is reduced once."""
        assert self.ledger is not None
        last = self._last_gradient
        if last is not None and last[2] is keep and last[0].is_still(gradient):
            return last[1]
        sequences = gradient
        if gradient.dim() != 3:
            with quiet():
                sequences = as_sequences(gradient)
        record = self.ledger.gradient(gradient_moments(sequences, keep, self.wanted))
        self._last_gradient = Seen(gradient), record, keep
        return record

    def _with_others(self, value: Any, port: PortWatch) -> Any:
        """Return a tensor with those added that the port says; nothing if one of them is not there."""
        with quiet():
            for other in port.others:
                term = self._known.recall(other)
                same = isinstance(value, Tensor) and term is not None and term.shape == value.shape
                value = value + term if same else None
        return value

    def _observe(self, value: object, source: Any, port: PortWatch, call: int, again: bool) -> None:
        if not isinstance(value, Tensor) and not port.planned:
            value = self._alone(value, port, call, again)
        if problem := problem_of(value, port, self.mask, self.tokens):
            self.reasons |= {slot: problem for slot in (*port.forward, *port.backward)}
            return
        assert isinstance(value, Tensor)
        if port.planned and value.dim() == 3 and port.port.layout != "flat":
            first, second, _ = value.shape
            self.tokens = (first, second) if port.port.layout == "sequences first" else (second, first)
        if call > 0 or port.port.side == "output":
            self._known.renew(value)
        found = self._known.find(value)
        if not again:
            if port.remembered:
                self._known.remember(port, value, found)
            if port.forward or port.reduced:
                self._reduce(value, port, found, call)
        if port.backward:
            # A sum's gradient is that of each of its terms.
            self._await(source, found if source is value else self._known.find(source), port, call, again)

    def _alone(self, value: object, port: PortWatch, call: int, again: bool) -> object:
        """Observe each tensor of a container for itself, and return nothing else to observe if there were any."""
        parts = [(path, part) for path, part in tensors_in(value) if silent(part) or part.is_floating_point()]
        for path, part in parts:
            self._observe(part, part, self.watches.part(port, path), call, again)
        return None if parts else value

    def _await(self, source: Tensor, found: Found, port: PortWatch, call: int, again: bool) -> None:
        if not source.requires_grad:
            self.without_gradient(port)
            return
        # A block's input was there before it ran, so its gradient is awaited already when the block is repeated.
        # Only first calls are.
        if again and port in self._known.awaited:
            return
        if not again and call == 0:
            self._known.awaited.add(port)
        if found.bookings is None:
            found.bookings, handles = awaited(source, Awaiting(self, port), in_place=self.watches.in_place)
            self._handles += handles
        found.bookings += port.backward, port.number(call), source.dtype

    def _reduce(self, x: Tensor, port: PortWatch, found: Found, call: int) -> None:
        assert self.ledger is not None
        number = port.number(call)
        if port.heads:
            for head, part in by_head(x.detach(), port.heads):
                self.ledger.book(self._activation(as_sequences(part)), port.forward, number, x.dtype, head)
            return
        if found.record is None:
            found.record = self._activation(sequences_of(x, port, self.tokens))
        if port.forward:
            self.ledger.book(found.record, port.forward, number, x.dtype)

    def _activation(self, x: Tensor) -> Record:
        assert self.ledger is not None
        return self.ledger.activation(activation_moments(x, self.mask, self.wanted))

    def _relate(self, watch: Watch, call: int, ran: tuple[Any, Any, Any]) -> None:
        assert self.ledger is not None
        for slot, scores in watch.scores:
            query, key = (select(port.side, port.path, *ran) for port in (scores.query, scores.key))
            if problem := unread(query) or unread(key):
                self.reasons[slot] = problem
                continue
            for head, sums in enumerate(scores_sums(query, key, scores, self.mask)):
                self.ledger.add(Entry(slot, call, query.dtype, head), sums)
        if watch.loss is not None:
            slot, port = watch.loss
            value = select(port.side, port.path, *ran)
            if problem := unread(value):
                self.reasons[slot] = problem
            else:
                self.ledger.book(self.ledger.loss(value), (slot,), 0, value.dtype)

    def _compare(self, pair: Pair, values: list[Any], call: int) -> str:
        """Compare update and skip, and say why that cannot be done."""
        assert self.ledger is not None
        update, skip = (
            values[port.index] if here else self._known.recall(port)
            for port, here in zip((pair.update, pair.skip), pair.here, strict=True)
        )
        total = values[pair.last.index]
        if not (isinstance(update, Tensor) and isinstance(skip, Tensor) and isinstance(total, Tensor)):
            return "changed in place before the sum was there"
        for term, port in ((update, pair.update), (skip, pair.skip), (total, pair.last)):
            if problem := problem_of(term, port, self.mask, self.tokens):
                return problem
        terms = sequences_of(update, pair.update, self.tokens), sequences_of(skip, pair.skip, self.tokens)
        stored = None if pair.residual.total is None else sequences_of(total, pair.last, self.tokens)
        if not terms[0].shape == terms[1].shape or (stored is not None and stored.shape != terms[0].shape):
            return "update, skip and sum differ in shape"
        records = self._known.find(update).record, self._known.find(skip).record
        known = [record.moments if isinstance(record, Waiting) else None for record in records]
        moments = pair_moments(*terms, stored, self.mask, (known[0], known[1]), self.wanted)
        self.ledger.book(self.ledger.pair(moments), (pair.slot,), pair.last.number(call), update.dtype)
        return ""
