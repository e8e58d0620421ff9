"""What a stream looks like token by token: its largest entries, and its size without the most massive token."""

from dataclasses import dataclass
from typing import Final

from jaxtyping import Float
from torch import Tensor

#: An entry is massive if it is more than this many times the median over tokens of the token's rms.
MASSIVE: Final = 100.0
#: Massive entries that are followed through the layers, largest first.
FOLLOWED: Final = 64


@dataclass(frozen=True)
class Place:
    """One entry of a stream.

    Attributes:
        sequence: which sequence, from 0.
        token: which position, from 0.
        channel: which feature, from 0.
    """

    sequence: int
    token: int
    channel: int


@dataclass(frozen=True)
class Tokens:
    """A stream at one site. A token with an entry that is not finite is left out of everything but ``nonfinite``.

    Attributes:
        mean_square: over all tokens and features.
        bulk_mean_square: the same without the token of each sequence that has the largest rms; NaN if there is
            no other.
        median_rms: median over tokens of the token's rms.
        largest: the largest absolute value.
        place: where it is.
        top_share: the share of all squares that the left-out tokens hold.
        massive: the places of massive entries, largest first.
        nonfinite: number of tokens with an entry that is not finite.
        finite: number of all others.
    """

    mean_square: float
    bulk_mean_square: float
    median_rms: float
    largest: float
    place: Place
    top_share: float
    massive: tuple[Place, ...]
    nonfinite: int = 0
    finite: int = 0

    @property
    def massive_ratio(self) -> float:
        """The largest entry over the median rms."""
        return self.largest / self.median_rms if self.median_rms else float("nan")


def tokens_of(x: Float[Tensor, "sequence token feature"]) -> Tokens:
    """Measure a stream token by token, in float64."""
    sound = x.isfinite().all(-1)
    x = x.double().where(sound[..., None], 0.0)
    squares = x.square().mean(-1)
    count, sequences = int(sound.sum()), int(sound.any(1).sum())
    total, top, others = float(squares.sum()), float(squares.amax(1).sum()), count - sequences
    median = _median(squares.sqrt(), sound)
    size = x.abs()
    largest, index = size.flatten().max(0)
    return Tokens(
        mean_square=total / count if count else float("nan"),
        bulk_mean_square=(total - top) / others if others else float("nan"),
        median_rms=median,
        largest=float(largest) if count else float("nan"),
        place=_place(int(index), x),
        top_share=top / total if total > 0 else float("nan"),
        massive=_massive(size, MASSIVE * median) if median > 0 else (),
        nonfinite=sound.numel() - count,
        finite=count,
    )


def change(before: Float[Tensor, "sequence token feature"], after: Float[Tensor, "sequence token feature"]) -> float:
    """Return the median over tokens of ‖after − before‖/‖before‖.

    Tokens that are zero before are left out, and those with entries that are not finite.
    """
    return median_share(after.double() - before.double(), before.double())


def median_share(x: Float[Tensor, "sequence token feature"], of: Float[Tensor, "sequence token feature"]) -> float:
    """Return the median over tokens of ‖x‖/‖of‖, over the tokens where that is a number."""
    sizes, whole = x.double().norm(dim=-1), of.double().norm(dim=-1)
    return _median(sizes / whole, (whole > 0) & sizes.isfinite() & whole.isfinite())


def _median(values: Tensor, counts: Tensor) -> float:
    """Return the median of the values that count; an even number of them has the mean of the two middle ones."""
    kept = values[counts]
    return float(kept.quantile(0.5)) if kept.numel() else float("nan")


def _massive(size: Tensor, limit: float) -> tuple[Place, ...]:
    found = (size > limit).flatten().nonzero().flatten()
    order = size.flatten()[found].argsort(descending=True)[:FOLLOWED]
    return tuple(_place(int(index), size) for index in found[order])


def _place(index: int, x: Tensor) -> Place:
    _, tokens, width = x.shape
    return Place(index // (tokens * width), index // width % tokens, index % width)


def lost_in_bfloat16(
    skip: Float[Tensor, "sequence token feature"], update: Float[Tensor, "sequence token feature"]
) -> tuple[float, float]:
    """Return the share of the update that a sum in bfloat16 loses: over all tokens, and the median token's.

    Both terms are rounded to bfloat16 first; the share is rms(fl(s + u) − (s + u))/rms(u). Tokens with entries
    that are not finite are left out.
    """
    s, u = skip.bfloat16(), update.bfloat16()
    lost = (s + u).double() - (s.double() + u.double())
    kept = (lost.isfinite() & u.isfinite()).all(-1, keepdim=True)
    lost, u = lost.where(kept, 0.0), u.double().where(kept, 0.0)
    size = float(u.square().sum())
    pooled = (float(lost.square().sum()) / size) ** 0.5 if size else float("nan")
    return pooled, median_share(lost, u)
