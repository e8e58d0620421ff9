"""What the forward pass leaves of one sub-layer, for the backward pass and the table."""

from collections.abc import Mapping
from dataclasses import dataclass

from normlab.placements import Wiring
from normlab.theory.elementwise import Elementwise
from normlab.theory.kernels import Array
from normlab.theory.mixing import AttentionMap
from normlab.theory.mlp import MlpMap
from normlab.theory.scatter import Log, Spread
from normlab.where import Where


@dataclass(frozen=True, eq=False)
class Step:
    """One sub-layer.

    Attributes:
        where: its address.
        wiring: its switches.
        inner: the norm before F.
        mixer: F.
        output: the norm after F.
        outer: the norm on the sum.
        waits: whether its update waits for the next sub-layer's sum (parallel attention).
        dropped: what dropout multiplies an update's covariance by: a token's own by 1/(1 − p).
        term: covariance of what a learnable branch scale multiplies (B5).
        means: averages (:meth:`Geometry.means`) of covariances around it, by name.
        log_before: covariance of the logarithms of what the inner norm reads (S2), where the skip passes it too.
        singles_before: its entries of tokens with themselves, where the skip does not.
        log: covariance of the logarithms of the sum, where it is normed.
        of_stream: spread of the stream's mean square.
        of_total: spread of the sum's.
    """

    where: Where
    wiring: Wiring
    inner: Elementwise
    mixer: AttentionMap | MlpMap
    output: Elementwise
    outer: Elementwise
    waits: bool
    dropped: Array | float
    term: Array | None
    means: Mapping[str, Array]
    log_before: Log
    singles_before: Log
    log: Log
    of_stream: Spread
    of_total: Spread

    @property
    def starts_block(self) -> bool:
        """Whether it is its block's first."""
        return (self.where.index - 1) % self.where.sublayers == 0

    @property
    def seen(self) -> Array:
        """Covariance of what the sub-layer mixes: of keys and values that are not made of z, what they are made of."""
        return self.mixer.inputs if isinstance(self.mixer, MlpMap) else self.mixer.read("k")

    @property
    def stream(self) -> Array:
        """Averages of the covariance of the stream after the sub-layer."""
        return self.means["stream"]

    @property
    def update(self) -> Array:
        """The same of what is added; with parallel attention, of both updates together at the MLP."""
        return self.means["update"]

    @property
    def total(self) -> Array:
        """The same of the sum."""
        return self.means["total"]

    @property
    def skip(self) -> Array | None:
        """The same of what the update is added to; ``None`` where there is no residual sum."""
        return self.means.get("skip")

    @property
    def second(self) -> Array | None:
        """The same of the second stream after the sub-layer."""
        return self.means.get("second")
