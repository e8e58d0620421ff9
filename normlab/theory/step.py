"""What the forward pass leaves of one sub-layer, for the backward pass and the table."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from normlab.placements import Wiring
from normlab.theory.elementwise import Elementwise
from normlab.theory.geometry import Geometry
from normlab.theory.kernels import Array
from normlab.theory.mixing import AttentionMap
from normlab.theory.mlp import MlpMap
from normlab.theory.scatter import Adds, Log, Scatter, Spread, at_sum, of_mean_square, rougher
from normlab.theory.sublayer import Passed
from normlab.where import Where


@dataclass(frozen=True, eq=False)
class Step:
    """One sub-layer, or several alike whose entries have a first axis.

    Attributes:
        where: its address, or that of the first of several.
        places: their numbers in the stack, from 0.
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
    places: NDArray[np.int64]
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
    def layers(self) -> NDArray[np.int64]:
        """Its block's number, or those of several."""
        return self.places // self.where.sublayers + 1

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


def levels(found: Passed, geometry: Geometry) -> dict[str, Array]:
    """Return averages of the covariances around a sub-layer."""
    after = {"stream": found.outer.value, "second": found.after.second}
    around = {"skip": found.skip, "update": found.update, "total": found.total, "inputs": found.inputs}
    return geometry.all_means(after | around | {"branch": found.branch})


def adds(found: Passed, means: Mapping[str, Array], geometry: Geometry) -> Adds | None:
    """Return what a sub-layer does to the scatter of its stream; an update that waits does nothing yet."""
    if found.waits:
        return None
    mixer = found.mixer
    width, last = mixer.gains.width, "down" if isinstance(mixer, MlpMap) else "o"
    logs = at_sum(found.place.wiring, found.skip, found.update, found.total, mixer.excess, width, geometry)
    hidden = width / mixer.gains.fan_in(last)
    return Adds(*logs, rougher(means.get("skip"), means["update"], width, hidden, geometry))


def step_of(
    found: Passed,
    places: NDArray[np.int64],
    means: Mapping[str, Array],
    before: Scatter,
    at_sum: Scatter,
    behind: Scatter,
    geometry: Geometry,
) -> Step:
    """Return what a sub-layer leaves; its scatter is that before, at and behind the sum."""
    wiring = found.place.wiring
    singles = 0.0 if isinstance(before.log, float) else geometry.singles(before.log)
    return Step(
        where=found.place.where,
        places=places,
        wiring=wiring,
        inner=found.inner.sparing,
        mixer=found.mixer,
        output=found.output.sparing,
        outer=found.outer.sparing,
        waits=found.waits,
        dropped=found.dropped,
        term=_term(wiring, found.output, found.skip),
        means=means,
        log_before=before.log if wiring.skip == "normed" else 0.0,
        singles_before=singles if wiring.inner_norm and wiring.skip != "normed" else 0.0,
        log=at_sum.log if found.normed else 0.0,
        of_stream=of_mean_square(behind.log, found.outer.value, geometry),
        of_total=of_mean_square(at_sum.log, found.total, geometry) if found.normed else Spread(),
    )


def _term(wiring: Wiring, output: Elementwise, skip: Array | None) -> Array | None:
    """Return what a learnable branch scale multiplies; where the skip follows it, that has a share (B5)."""
    if not wiring.learn_branch_scale:
        return None
    if wiring.interpolate and skip is not None and np.all(wiring.skip_scale):
        return output.value + skip / wiring.skip_scale**2
    return output.value
