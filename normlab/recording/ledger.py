"""The books of one step: sums by entry. Token moments wait here, and become sums in batches."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from normlab.recording.native import Written
from normlab.recording.sums import Sums, activation_sums, gradient_sums, pair_sums, unscaled
from normlab.recording.tokens import PairMoments, TokenMoments

#: Moments that wait before they are turned into sums together: enough to spread the cost of small tensor
#: operations, few enough that what waits is small against the activations.
BATCH: Final = 96

Moments: TypeAlias = TokenMoments | PairMoments | Tensor


class Entry(NamedTuple):
    """What sums are added up under: a slot of the plan, the call's number, the tensor's dtype, the head."""

    slot: int
    call: int
    dtype: str
    head: int | None


class Booking(NamedTuple):
    """Several slots that take the same tensor."""

    slots: Sequence[int]
    call: int
    dtype: str
    head: int | None = None


class Record:
    """One reduced tensor: token moments until they are turned into sums, if compiled code did not give these."""

    __slots__ = ("moments", "sums")

    def __init__(self, moments: Moments | None, sums: Sums | Written | None = None) -> None:
        self.moments: Any = moments
        self.sums = sums


class Ledger:
    """Sums by entry.

    Args:
        loss_scale: what gradients are divided by.
    """

    def __init__(self, loss_scale: float) -> None:
        self._totals: dict[Entry, Sums | Written] = {}
        self._loss_scale = loss_scale
        self._marked: dict[Entry, Sums | Written] = {}
        self._booked: list[tuple[Record, Booking]] = []
        self._waiting: dict[tuple[Any, ...], list[Record]] = {}
        self._count = 0
        self._turn: dict[str, Callable[[Sequence[Any]], list[Sums]]] = {
            "activation": activation_sums,
            "gradient": lambda batch: gradient_sums(batch, loss_scale),
            "pair": pair_sums,
            "loss": _loss_sums,
        }

    def activation(self, moments: Written | TokenMoments) -> Record:
        """Take in an activation."""
        return Record(None, moments) if isinstance(moments, Written) else self._keep("activation", moments, moments)

    def gradient(self, moments: Written | TokenMoments) -> Record:
        """Take in a gradient."""
        if isinstance(moments, TokenMoments):
            return self._keep("gradient", moments, moments)
        return Record(None, moments if self._loss_scale == 1 else unscaled(moments.sums(), self._loss_scale))

    def pair(self, moments: Written | PairMoments) -> Record:
        """Take in a residual sum."""
        return Record(None, moments) if isinstance(moments, Written) else self._keep("pair", moments, moments.update)

    def loss(self, value: Tensor) -> Record:
        """Take in the value of a loss."""
        return self._keep("loss", value.detach().clone())

    def book(self, record: Record, booking: Booking) -> None:
        """Let ``booking`` take ``record``."""
        self._booked.append((record, booking))

    def add(self, entry: Entry, sums: Sums | Written) -> None:
        """Add ``sums`` to what is booked under ``entry``."""
        present = self._totals.get(entry)
        self._totals[entry] = sums if present is None else _sums(present) + _sums(sums)

    def settle(self) -> None:
        """Turn everything that waits into sums."""
        waiting, self._waiting, self._count = self._waiting, {}, 0
        for (kind, *_), batch in waiting.items():
            for record, sums in zip(batch, self._turn[kind]([record.moments for record in batch]), strict=True):
                record.sums = sums
                if kind == "activation":
                    # A pair may still need the numbers of each token; those of sequences have been used.
                    record.moments = record.moments._replace(sequences=())
        booked, self._booked = self._booked, []
        for record, (slots, call, dtype, head) in booked:
            assert record.sums is not None
            for slot in slots:
                self.add(Entry(slot, call, dtype, head), record.sums)

    def mark(self) -> None:
        """Remember what is in the books, for :meth:`roll_back`."""
        self.settle()
        self._marked = dict(self._totals)

    def roll_back(self) -> None:
        """Take out what came in since the mark."""
        self._totals, self._waiting, self._booked, self._count = dict(self._marked), {}, [], 0

    @property
    def totals(self) -> dict[Entry, Sums]:
        """The sums of every entry, without what still waits."""
        return {entry: _sums(sums) for entry, sums in self._totals.items()}

    @property
    def booked(self) -> set[int]:
        """The slots that something was booked under."""
        return {entry.slot for entry in self._totals}

    @property
    def marked(self) -> bool:
        """Whether anything was in the books at the mark."""
        return bool(self._marked)

    def _keep(self, kind: str, moments: Moments, like: TokenMoments | None = None) -> Record:
        if self._count >= BATCH:
            self.settle()
        record = Record(moments)
        self._waiting.setdefault((kind, *(_shape(like) if like else ())), []).append(record)
        self._count += 1
        return record


def _sums(sums: Sums | Written) -> Sums:
    return sums.sums() if isinstance(sums, Written) else sums


def _shape(moments: TokenMoments) -> tuple[Any, ...]:
    row = moments.tokens[0]
    return row.shape, moments.width, row.dtype, row.device, len(moments.largest), moments.spread is None


def _loss_sums(batch: Sequence[Tensor]) -> list[Sums]:
    values = torch.stack([value.double() for value in batch]).cpu().numpy()
    return [Sums("loss", np.array([1.0, value])) for value in values]
