"""How two streams differ, and apart what each block inherits and what it adds."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

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


def rows_of_two(one: Stream, two: Stream, fed: Fed) -> Iterator[dict[str, object]]:
    """Yield the rows of ``divergence``, ``inherited`` and ``added``.

    Args:
        one: A's stream.
        two: B's.
        fed: what B's blocks make of A's stream.
    """
    for at, x, y in _pairs(one, two):
        yield _row(at, "divergence", share_apart(x, y, x))
    for layer, at in one.ends.items():
        if not layer or layer not in two.ends:
            continue
        if layer not in fed.after:
            for quantity in ("inherited", "added"):
                yield _row(at, quantity, math.nan, fed.reason or "no block of that number was found")
            continue
        x, own = one.after(layer), fed.after[layer].to(one.after(layer).device)
        yield _row(at, "inherited", share_apart(own, two.after(layer).to(x.device), x))
        yield _row(at, "added", share_apart(x, own, x))


def _pairs(one: Stream, two: Stream) -> Iterator[tuple[Address, Tensor, Tensor]]:
    for at, x in one.values.items():
        if at in two.values:
            yield at, x, two.values[at].to(x.device)


def share_apart(
    x: Float[Tensor, "sequence token feature"],
    y: Float[Tensor, "sequence token feature"],
    of: Float[Tensor, "sequence token feature"],
) -> float:
    """Return the median over tokens of ‖y − x‖/‖of‖.

    An entry that is the same NaN or infinity in both is left out. A token with one that is not the same in both
    differs by ∞. Tokens that are zero in all three are left out.

    Returns:
        the median; NaN if no token has an entry that is finite.
    """
    alike, apart = _nonfinite(x, y)
    x, y, of = x.double(), y.double(), of.double()
    difference = (y - x).masked_fill(alike, 0.0).norm(dim=-1).masked_fill(apart.any(-1), math.inf)
    whole = of.masked_fill(~of.isfinite(), 0.0).norm(dim=-1)
    shares = (difference / whole)[(whole > 0) | (difference > 0)].sort().values
    count = len(shares)
    if not count:
        return math.nan if alike.any() else 0.0
    return float(shares[(count - 1) // 2] + shares[count // 2]) / 2


def _nonfinite(x: Tensor, y: Tensor) -> tuple[Bool[Tensor, "..."], Bool[Tensor, "..."]]:
    """Return where two tensors hold the same value that is not finite, and where one is not finite otherwise."""
    odd = ~(x.isfinite() & y.isfinite())
    alike = odd & ((x == y) | (x.isnan() & y.isnan()))
    return alike, odd & ~alike


def _row(at: Address, quantity: str, value: float, reason: str = "nonfinite") -> dict[str, object]:
    status = reason if math.isnan(value) else "nonfinite" if math.isinf(value) else "ok" if value else "exact-zero"
    where = {"stack": at.stack, "layer": at.layer, "sublayer": at.sublayer, "site": at.site}
    return {**where, "quantity": quantity, "value": value, "status": status}


def alone(one: Mapping[str, Stream], two: Mapping[str, Stream]) -> tuple[str, ...]:
    """Say which blocks of each of two models have no partner in the other."""
    said = []
    for side, own, other in (("A", one, two), ("B", two, one)):
        for stack, stream in own.items():
            of = f" of the {stack}" if len({*one, *two}) > 1 else ""
            partner = other.get(stack, Stream({}, {}))
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
