"""How two streams differ, and apart what each block inherits and what it adds."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor

from normlab.inspection.finding import blocks, place
from normlab.inspection.streams import Fed, Stream
from normlab.recording import Address


@dataclass(frozen=True)
class Broken:
    """A place where the stream of A or of B has entries that are NaN or infinite.

    Attributes:
        at: the place.
        a: how many of A.
        b: how many of B.
        differ: how many of them are not the same in both; ``None`` where two runs do not tell.
        of: the entries of the stream; ``None`` for runs.
    """

    at: Address
    a: int
    b: int
    differ: int | None = None
    of: int | None = None

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values for JSON."""
        where = {"stack": self.at.stack, "layer": self.at.layer, "sublayer": self.at.sublayer}
        return {**where, "a": self.a, "b": self.b, "differ": self.differ, "of": self.of}

    def __str__(self) -> str:
        return f"{place(self.at)}, {self._counts()}"

    def _counts(self) -> str:
        of = "" if self.of is None else f" of {self.of}"
        if self.differ == 0:
            return f"the same {self.a}{of} in A and B, which are no difference"
        return f"{self.a or 'none'}{of if self.a else ''} in A and {self.b or 'none'}{of if self.b else ''} in B"


def broken(one: Stream, two: Stream) -> Iterator[Broken]:
    """Yield the places of two streams that hold entries which are not finite."""
    for at, x, y in _pairs(one, two):
        of_a, of_b = int((~x.isfinite()).sum()), int((~y.isfinite()).sum())
        if of_a or of_b:
            yield Broken(at, of_a, of_b, int(_nonfinite(x, y)[1].sum()), x.numel())


class Worst(NamedTuple):
    """The token of which two streams, or what a block adds to their divergence, differ most.

    Attributes:
        at: the place.
        quantity: ``divergence`` or ``added``.
        share: by how much of its length.
        sequence: its sequence, from 0.
        token: its position, from 0.
        word: its text.
    """

    at: Address
    quantity: str
    share: float
    sequence: int
    token: int
    word: str

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values for JSON."""
        where = {"stack": self.at.stack, "layer": self.at.layer, "sublayer": self.at.sublayer, "name": self.at.name}
        share = self.share if math.isfinite(self.share) else None
        named = {"sequence": self.sequence, "token": self.token, "word": self.word}
        return {**where, "quantity": self.quantity, "share": share, **named}

    def __str__(self) -> str:
        return f"token {self.token}{f' ({self.word!r})' if self.word else ''} of sequence {self.sequence}"


class Apart(NamedTuple):
    """How two streams differ: rows of the table, and the worst token of each.

    Attributes:
        rows: of ``divergence``, ``inherited`` and ``added``, and of the worst tokens.
        worst: the worst tokens.
    """

    rows: list[dict[str, object]]
    worst: list[Worst]


def apart(one: Stream, two: Stream, fed: Fed, words: Sequence[Sequence[str]], rounded: Fed | None = None) -> Apart:
    """Compare the streams of A and B.

    x_B − x_A is the sum of what a block of B makes of A's stream otherwise than that of A, and of what is inherited.

    Args:
        one: A's stream.
        two: B's.
        fed: what B's blocks make of A's stream.
        words: the tokens of each sequence as text.
        rounded: what A's blocks make of A's stream in B's dtype, where that is another stream.
    """
    found = Apart([], [])

    def take(at: Address, quantity: str, shares: Shares) -> None:
        sequence, token = shares.worst_token
        word = words[sequence][token] if words else ""
        found.rows.extend([_row(at, quantity, shares.median), _row(at, f"{quantity}_worst", shares.worst)])
        found.worst.append(Worst(at, quantity, shares.worst, sequence, token, word))

    for at, x, y in _pairs(one, two):
        take(at, "divergence", shares_apart(x, y, x))
    for layer, at in one.ends.items():
        if not layer or layer not in two.ends:
            continue
        unfed = next((each for each in (fed, rounded) if each is not None and layer not in each.after), None)
        if unfed is not None:
            reason = unfed.reason or "no block of that number was found"
            found.rows.extend(_row(at, name, math.nan, reason) for name in ("inherited", "added", "added_worst"))
            continue
        x, own = one.after(layer), fed.after[layer].to(one.after(layer).device)
        base = x if rounded is None else rounded.after[layer].to(x.device)
        rest = shares_apart(_moved(x, own, base), two.after(layer).to(x.device), x)
        found.rows.append(_row(at, "inherited", rest.median))
        take(at, "added", shares_apart(base, own, x))
    return found


def _moved(x: Tensor, own: Tensor, base: Tensor) -> Tensor:
    """Return x + (own − base); x where rounding took ``base`` out of the finite numbers."""
    shift = x.double() - base.double()
    moved = own.double() + shift.masked_fill(~shift.isfinite(), 0.0)
    return moved.where(base.isfinite() | ~x.isfinite(), x.double())


def _pairs(one: Stream, two: Stream) -> Iterator[tuple[Address, Tensor, Tensor]]:
    for at, x in one.values.items():
        if at in two.values:
            yield at, x, two.values[at].to(x.device)


class Shares(NamedTuple):
    """‖y − x‖/‖of‖ over the tokens of two tensors.

    Attributes:
        median: the median token's; NaN if no token has an entry that is finite.
        worst: the largest.
        worst_token: the sequence and the position of the token that has it.
    """

    median: float
    worst: float
    worst_token: tuple[int, int]


def shares_apart(
    x: Float[Tensor, "sequence token feature"],
    y: Float[Tensor, "sequence token feature"],
    of: Float[Tensor, "sequence token feature"],
) -> Shares:
    """Return ‖y − x‖/‖of‖ of the median token and of the worst.

    An entry that is the same NaN or infinity in both is left out. A token with one that is not the same in both
    differs by ∞. Tokens that are zero in all three are left out.
    """
    alike, apart = _nonfinite(x, y)
    x, y, of = x.double(), y.double(), of.double()
    difference = (y - x).masked_fill(alike, 0.0).norm(dim=-1).masked_fill(apart.any(-1), math.inf)
    whole = of.masked_fill(~of.isfinite(), 0.0).norm(dim=-1)
    kept = (whole > 0) | (difference > 0)
    shares = (difference / whole)[kept].sort().values
    if not (count := len(shares)):
        none = math.nan if alike.any() else 0.0
        return Shares(none, none, (0, 0))
    place = int((difference / whole).masked_fill(~kept, -1.0).argmax())
    median = float(shares[(count - 1) // 2] + shares[count // 2]) / 2
    return Shares(median, float(shares[-1]), divmod(place, x.shape[1]))


def _nonfinite(x: Tensor, y: Tensor) -> tuple[Bool[Tensor, "..."], Bool[Tensor, "..."]]:
    """Return where two tensors hold the same value that is not finite, and where one is not finite otherwise."""
    odd = ~(x.isfinite() & y.isfinite())
    alike = odd & ((x == y) | (x.isnan() & y.isnan()))
    return alike, odd & ~alike


def _row(at: Address, quantity: str, value: float, reason: str = "nonfinite") -> dict[str, object]:
    status = reason if math.isnan(value) else "nonfinite" if math.isinf(value) else "ok" if value else "exact-zero"
    where = {"stack": at.stack, "layer": at.layer, "sublayer": at.sublayer, "site": at.site, "name": at.name}
    return {**where, "quantity": quantity, "value": value, "status": status}


def alone(one: Mapping[str, Stream], two: Mapping[str, Stream]) -> tuple[str, ...]:
    """Say which blocks of each of two models have no partner in the other."""
    said = []
    for side, own, other in (("A", one, two), ("B", two, one)):
        for stack, stream in own.items():
            of = f" of the {stack}" if len({*one, *two}) > 1 else ""
            partner = other.get(stack, Stream())
            if extra := sorted(stream.ends.keys() - partner.ends.keys()):
                said.append(f"{side} alone has {_extent(extra)}{of}.")
            said += [f"{side} alone has {where}." for where in _inner(stream, partner, {*one, *two})]
    return tuple(said)


def _extent(layers: list[int]) -> str:
    """Return blocks in words; 0 is the embedding."""
    words = ["the embedding"] if layers[0] == 0 else []
    return " and ".join([*words, *([blocks(layers[len(words) :])] if layers[len(words) :] else [])])


def _inner(stream: Stream, partner: Stream, stacks: Iterable[str]) -> Iterator[str]:
    """Yield the places that a block has and its partner has not."""
    for at in stream.values:
        if at.layer in partner.ends and at not in partner.values:
            yield place(at, stacks)
