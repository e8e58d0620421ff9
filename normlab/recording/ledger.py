"""The books of one step: sums by entry. Token moments wait here, and become sums in batches."""

from collections.abc import Callable, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, Union

import numpy as np
import torch
from torch import Tensor

from normlab.recording.native import sums_of
from normlab.recording.sums import Sums, activation_sums, gradient_sums, pair_sums, unscaled
from normlab.recording.tokens import PairMoments, TokenMoments

if TYPE_CHECKING:
    from normlab.recording._native import Written

#: Moments that wait before they are turned into sums together: enough to spread the cost of small tensor
#: operations, few enough that what waits is small against the activations.
BATCH: Final = 96

Moments: TypeAlias = TokenMoments | PairMoments | Tensor


class Entry(NamedTuple):
    """What sums are added up under: a slot of the plan, the call's number, the tensor's dtype, the head."""

    slot: int
    call: int
    dtype: torch.dtype
    head: int | None


class Waiting:
    """One tensor whose token moments are to be turned into sums."""

    __slots__ = ("moments", "_sums")

    def __init__(self, moments: Moments | None, sums: Sums | None = None) -> None:
        self.moments: Any = moments
        self._sums = sums

    def turn(self, sums: Sums) -> None:
        """Take what the moments were turned into."""
        self._sums = sums

    def sums(self) -> Sums:
        """Return the sums, once they are there."""
        assert self._sums is not None
        return self._sums


#: One reduced tensor.
Record: TypeAlias = Union[Waiting, "Written"]


class Ledger:
    """Sums by entry.

    Args:
        loss_scale: what gradients are divided by.

    Attributes:
        totals: the sums by entry, without those of what still waits.
        scaled: whether gradients are divided by anything.
    """

    def __init__(self, loss_scale: float) -> None:
        self.totals: dict[Entry, Sums] = {}
        self._loss_scale, self.scaled = loss_scale, loss_scale != 1
        self._marked: dict[Entry, Sums] = {}
        self._booked: list[Any] = []
        self._waiting: dict[tuple[Any, ...], list[Waiting]] = {}
        self._count = 0
        # A backward pass in another thread may book while a forward pass begins here.
        self._lock = RLock()
        self._turn: dict[str, Callable[[Sequence[Any]], list[Sums]]] = {
            "activation": activation_sums,
            "gradient": lambda batch: gradient_sums(batch, loss_scale),
            "pair": pair_sums,
            "loss": _losses,
        }

    def activation(self, moments: "Written | TokenMoments") -> Record:
        """Take in an activation."""
        return self._keep("activation", moments, moments) if isinstance(moments, TokenMoments) else moments

    def gradient(self, moments: "Written | TokenMoments") -> Record:
        """Take in a gradient."""
        if isinstance(moments, TokenMoments):
            return self._keep("gradient", moments, moments)
        return Waiting(None, unscaled(sums_of(moments), self._loss_scale)) if self.scaled else moments

    def pair(self, moments: "Written | PairMoments") -> Record:
        """Take in a residual sum."""
        return self._keep("pair", moments, moments.update) if isinstance(moments, PairMoments) else moments

    def loss(self, value: Tensor) -> Record:
        """Take in the value of a loss."""
        if value.is_cpu and value.numel() == 1:
            return Waiting(None, _loss_sums(value.item()))
        return self._keep("loss", value.detach().clone())

    def book(
        self, record: Record, slots: Sequence[int], call: int, dtype: torch.dtype, head: int | None = None
    ) -> None:
        """Let several slots take ``record``."""
        # Flat, since the fewer objects a step leaves, the less the garbage collector has to look through.
        self._booked += record, slots, call, dtype, head

    def add(self, entry: Entry, sums: Sums) -> None:
        """Add ``sums`` to what is booked under ``entry``."""
        present = self.totals.get(entry)
        self.totals[entry] = sums if present is None else present + sums

    def close(self) -> None:
        """Turn what waits into numbers that hold no tensor; :meth:`settle` adds them up."""
        with self._lock:
            self._turn_all()

    def settle(self) -> None:
        """Turn everything that waits into sums."""
        with self._lock:
            # Taken first: what is booked from here on may still wait when the rest has been turned.
            booked, self._booked = self._booked, []
            before = dict(self.totals)
            try:
                self._turn_all()
                self._enter(booked)
            except BaseException:
                # An interrupt, say: all of it can be done again.
                self.totals, self._booked = before, booked + self._booked
                raise

    def _enter(self, booked: list[Any]) -> None:
        """Add up what was booked."""
        every = iter(booked)
        # By identity, since one record is booked several times. It cannot keep them itself: they hold its memory.
        found: dict[int, Sums] = {}
        for record, slots, call, dtype, head in zip(every, every, every, every, every, strict=True):
            if id(record) not in found:
                found[id(record)] = record.sums() if isinstance(record, Waiting) else sums_of(record)
            for slot in slots:
                self.add(Entry(slot, call, dtype, head), found[id(record)])

    def _turn_all(self) -> None:
        waiting, self._waiting, self._count = self._waiting, {}, 0
        for (kind, *_), batch in waiting.items():
            for one, sums in zip(batch, self._turn[kind]([one.moments for one in batch]), strict=True):
                one.turn(sums)
                if kind == "activation":
                    # A pair may still need the numbers of each token; those of sequences have been used.
                    one.moments = one.moments._replace(sequences=())

    def mark(self) -> None:
        """Remember what is in the books, for :meth:`roll_back`."""
        self.settle()
        self._marked = dict(self.totals)

    def roll_back(self) -> None:
        """Take out what came in since the mark."""
        self.totals, self._waiting, self._booked, self._count = dict(self._marked), {}, [], 0

    @property
    def booked(self) -> set[int]:
        """The slots that something was booked under."""
        return {entry.slot for entry in self.totals}.union(*self._booked[1::5])

    @property
    def marked(self) -> bool:
        """Whether anything was in the books at the mark."""
        return bool(self._marked)

    def _keep(self, kind: str, moments: Moments, like: TokenMoments | None = None) -> Waiting:
        one = Waiting(moments)
        with self._lock:
            if self._count >= BATCH:
                self._turn_all()
            self._waiting.setdefault((kind, *(_shape(like) if like else ())), []).append(one)
            self._count += 1
        return one


def _shape(moments: TokenMoments) -> tuple[Any, ...]:
    row = moments.tokens[0]
    return row.shape, moments.width, row.dtype, row.device, len(moments.largest), moments.spread is None


def _losses(batch: Sequence[Tensor]) -> list[Sums]:
    return [_loss_sums(value) for value in torch.stack([value.double() for value in batch]).tolist()]


def _loss_sums(value: float) -> Sums:
    return Sums("loss", np.array([1.0, value]))
