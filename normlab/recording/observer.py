"""What happens when a watched module has run: its tensors are reduced at once, and their gradients awaited."""

from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from normlab.errors import RecordingError
from normlab.recording.awaiting import Awaiting, Found, Kept
from normlab.recording.fast import exact_products
from normlab.recording.ledger import Entry, Ledger, Record
from normlab.recording.moments import activation_moments, gradient_moments, pair_moments
from normlab.recording.native import Memory, library
from normlab.recording.scores import scores_sums
from normlab.recording.tensors import Seen, arranged, by_head, quiet, recomputing, select, tensors_in
from normlab.recording.tokens import Wanted, as_sequences
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
    """

    def __init__(self, watches: Watches, wanted: Wanted, mask: Tensor | None) -> None:
        self.watches, self.wanted, self.mask = watches, wanted, mask
        self.ledger: Ledger | None = None
        self.reasons: dict[int, str] = {}
        self.ran: set[int] = set()
        self.tokens: tuple[int, int] = (0, 0)
        self._calls: dict[int, int] = {}
        self._memory = Memory()
        self._awaited: set[PortWatch] = set()
        self._failed = False
        self._found: dict[int, Found] = {}
        self._remembered: dict[PortWatch, Kept] = {}
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
        # Nobody holds a record any more.
        self._memory.clear()
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

    def reduced_gradient(self, gradient: Tensor, keep: Tensor | None) -> Record:
        """Return the record of a gradient; both terms of a sum get the same tensor, which is reduced once."""
        assert self.ledger is not None
        last = self._last_gradient
        if last is not None and last[2] is keep and last[0].is_still(gradient):
            return last[1]
        sequences = gradient
        if gradient.dim() != 3:
            with quiet():
                sequences = as_sequences(gradient)
        record = self.ledger.gradient(gradient_moments(sequences, keep, self.wanted, self._memory))
        self._last_gradient = Seen(gradient), record, keep
        return record

    def _with_others(self, value: Any, port: PortWatch) -> Any:
        """Return a tensor with those added that the port says; nothing if one of them is not there."""
        with quiet():
            for other in port.others:
                term = self._recalled(other)
                same = isinstance(value, Tensor) and term is not None and term.shape == value.shape
                value = value + term if same else None
        return value

    def _observe(self, value: object, source: Any, port: PortWatch, call: int, again: bool) -> None:
        if not isinstance(value, Tensor) and not port.planned:
            value = self._alone(value, port, call, again)
        if problem := self._problem(value, port):
            self.reasons |= {slot: problem for slot in (*port.forward, *port.backward)}
            return
        assert isinstance(value, Tensor)
        if port.planned and value.dim() == 3 and port.port.layout != "flat":
            first, second, _ = value.shape
            self.tokens = (first, second) if port.port.layout == "sequences first" else (second, first)
        found = self._find(value)
        if not again:
            if port.remembered:
                self._remembered[port] = Kept(value, found, port.remembered)
            if port.forward or port.reduced:
                self._reduce(value, port, found, call)
        if port.backward:
            # A sum's gradient is that of each of its terms.
            self._await(source, found if source is value else self._find(source), port, call, again)

    def _alone(self, value: object, port: PortWatch, call: int, again: bool) -> object:
        """Observe each tensor of a container for itself, and return nothing else to observe if there were any."""
        parts = [(path, part) for path, part in tensors_in(value) if part.is_floating_point()]
        for path, part in parts:
            self._observe(part, part, self.watches.part(port, path), call, again)
        return None if parts else value

    def _await(self, source: Tensor, found: Found, port: PortWatch, call: int, again: bool) -> None:
        if not source.requires_grad:
            self.reasons |= {slot: "no gradient required" for slot in port.backward if slot not in self.reasons}
            return
        # A block's input was there before it ran, so its gradient is awaited already when the block is repeated.
        # Only first calls are.
        if again and port in self._awaited:
            return
        if not again and call == 0:
            self._awaited.add(port)
        if found.awaiting is None:
            found.awaiting = Awaiting(self, port)
            self._handles.append(source.register_hook(found.awaiting))
            base = source._base if self.watches.in_place else None
            if base is not None and base.requires_grad and base.numel() == source.numel() and base.is_contiguous():
                # An in-place change of a view takes its hooks out of the graph; those of its base stay.
                self._handles.append(base.register_hook(partial(found.awaiting.through_base, source.shape)))
        found.awaiting.bookings += port.backward, port.number(call), source.dtype

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
        tokens = tuple((value.detach()[:, 0] if port.heads else self._sequences(value, port)).shape[:2])
        if tokens == tuple(self.mask.shape):
            return ""
        what = f"the mask {list(self.mask.shape)} does not fit {list(tokens)} tokens"
        if port.planned:
            raise RecordingError(f"{what} at {port.port.module!r}: give a mask [batch, tokens], True for real tokens")
        return what

    def _reduce(self, x: Tensor, port: PortWatch, found: Found, call: int) -> None:
        assert self.ledger is not None
        number = port.number(call)
        if port.heads:
            for head, part in by_head(x.detach(), port.heads):
                self.ledger.book(self._activation(as_sequences(part)), port.forward, number, x.dtype, head)
            return
        if found.record is None:
            found.record = self._activation(self._sequences(x, port))
        if port.forward:
            self.ledger.book(found.record, port.forward, number, x.dtype)

    def _activation(self, x: Tensor) -> Record:
        assert self.ledger is not None
        return self.ledger.activation(activation_moments(x, self.mask, self.wanted, self._memory))

    def _relate(self, watch: Watch, call: int, ran: tuple[Any, Any, Any]) -> None:
        assert self.ledger is not None
        for slot, scores in watch.scores:
            query, key = (select(port.side, port.path, *ran) for port in (scores.query, scores.key))
            for head, sums in enumerate(scores_sums(query, key, scores, self.mask)):
                self.ledger.add(Entry(slot, call, query.dtype, head), sums)
        if watch.loss is not None:
            slot, port = watch.loss
            value = select(port.side, port.path, *ran)
            self.ledger.book(self.ledger.loss(value), (slot,), 0, value.dtype)

    def _compare(self, pair: Pair, values: list[Any], call: int) -> str:
        """Compare update and skip, and say why that cannot be done."""
        assert self.ledger is not None
        update, skip = (
            values[port.index] if here else self._recalled(port)
            for port, here in zip((pair.update, pair.skip), pair.here, strict=True)
        )
        total = values[pair.last.index]
        if not (isinstance(update, Tensor) and isinstance(skip, Tensor) and isinstance(total, Tensor)):
            return "changed in place before the sum was there"
        one, two = self._find(update).record, self._find(skip).record
        if one is None or two is None:
            return "not reduced"
        terms = self._sequences(update, pair.update), self._sequences(skip, pair.skip)
        stored = None if pair.residual.total is None else self._sequences(total, pair.last)
        if not terms[0].shape == terms[1].shape or (stored is not None and stored.shape != terms[0].shape):
            return "update, skip and sum differ in shape"
        moments = pair_moments(*terms, stored, self.mask, (one.moments, two.moments), self.wanted, self._memory)
        number = call if pair.last.port.call is None else 0
        self.ledger.book(self.ledger.pair(moments), (pair.slot,), number, update.dtype)
        return ""

    def _recalled(self, port: PortWatch) -> Tensor | None:
        """Return a tensor that was remembered, if it is unchanged, and let go of it after its last use."""
        kept = self._remembered.pop(port, None)
        if kept is None:
            return None
        if kept.uses > 1:
            self._remembered[port] = kept._replace(uses=kept.uses - 1)
        return kept.found.tensor()

    def _sequences(self, tensor: Tensor, port: PortWatch) -> Tensor:
        if port.port.layout == "sequences first" and tensor.dim() == 3:
            return tensor
        with quiet():
            return as_sequences(arranged(tensor, port.port.layout, self.tokens))

    def _find(self, tensor: Tensor) -> Found:
        found = self._found.get(id(tensor))
        if found is None or not found.is_still(tensor):
            found = self._found[id(tensor)] = Found(tensor)
        return found
