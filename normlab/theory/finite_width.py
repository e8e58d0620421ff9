"""How much single models of finite width scatter, and how far their geometric mean lies below the root mean square.

A sum of squares over d features fluctuates by a share of order 1/d, layer after layer; logarithms add up, so that a
deep product is log-normal (equations S1 to S5 of ``docs/theory.md``).
"""

from dataclasses import dataclass

import numpy as np

from normlab.theory.backward import StepBack
from normlab.theory.forward import Forward, Step
from normlab.theory.geometry import Geometry
from normlab.theory.kernels import Array
from normlab.theory.mlp import MlpMap

#: What the hidden layer's own fluctuation adds, times d/d_hidden: half of E φ⁴/(E φ²)² − 1 for a ReLU.
_HIDDEN = 2.5


@dataclass(frozen=True)
class Spread:
    """Of the logarithm of a squared quantity over seeds.

    Attributes:
        variance: of ln G².
        shift: mean of ln G² less the logarithm of the mean-field value.
    """

    variance: float = 0.0
    shift: float = 0.0

    def __add__(self, other: "Spread") -> "Spread":
        return Spread(self.variance + other.variance, self.shift + other.shift)

    @property
    def sd_log(self) -> float:
        """Standard deviation of ln G."""
        return float(np.sqrt(max(self.variance, 0.0))) / 2

    def geometric(self, square: float) -> float:
        """Return the geometric mean over seeds of G, given the mean-field value of G²."""
        return float(np.sqrt(max(square, 0.0)) * np.exp(self.shift / 2))


@dataclass(frozen=True, eq=False)
class Scatter:
    """Covariances of ln |x_i|² and ln |x_j|² over seeds.

    Attributes:
        totals: of the sum of each sub-layer.
        streams: of the stream after each; 0 where a norm has just set it.
        start: of the stream at layer 0.
    """

    totals: tuple[Array, ...]
    streams: tuple[Array, ...]
    start: Array


def scatter(forward: Forward) -> Scatter:
    """Carry the covariance of logarithms of tokens' mean squares through the model (S1, S2)."""
    geometry, spec = forward.geometry, forward.spec
    start = _relative(2 * forward.embed.value**2 / spec.width, forward.embed.value, geometry)
    log = 0 * start if spec.has_embed_norm else start
    start, totals, streams = log, [], []
    for step in forward.steps:
        if not step.waits:
            log = _carried(step, log, geometry) + _fresh(step, spec.width, geometry)
        totals.append(log)
        if step.wiring.norms_stream and not step.waits:
            log = 0 * log
        streams.append(log)
    return Scatter(tuple(totals), tuple(streams), start)


def _carried(step: Step, log: Array, geometry: Geometry) -> Array:
    if not (step.wiring.inner_norm or step.wiring.output_norm) or step.skip is None:
        return log if step.skip is not None else 0 * log
    if step.wiring.skip == "normed":
        return 0 * log
    kept, total = geometry.sides(step.skip), geometry.sides(step.total)
    shares: Array = (kept[0] / total[0]) * (kept[1] / total[1])
    return log * np.minimum(shares, 1.0)


def _fresh(step: Step, width: int, geometry: Geometry) -> Array:
    """Cov(|x + u|²_i, |x + u|²_j) of a new update u (S1)."""
    skip = 0.0 if step.skip is None else step.skip
    covariance = (4 * skip * step.update + 2 * (1 + _excess(step, width)) * step.update**2) / width
    return _relative(covariance, step.total, geometry)


def _excess(step: Step, width: int) -> float:
    mixer = step.mixer
    if isinstance(mixer, MlpMap):
        return _HIDDEN * width / mixer.gains.fan_in("down")
    return width / mixer.gains.fan_in("o")


def _relative(covariance: Array, total: Array, geometry: Geometry) -> Array:
    rows, columns = geometry.sides(total)
    return covariance / np.maximum(rows * columns, 1e-300)


def of_mean_square(log: Array, covariance: Array, geometry: Geometry) -> Spread:
    """Return the spread of a stream's mean square (S3)."""
    variance = _together(log, covariance, geometry)
    return Spread(variance, -variance / 2)


def of_head(gradient: Array, width: int, geometry: Geometry) -> Spread:
    """Return the spread of the gradient that the head's matrix sends back (S7)."""
    trace = max(geometry.trace(gradient), 1e-300)
    variance = 2 * geometry.total(gradient**2) / (width * trace**2)
    return Spread(variance, -variance / 2)


def through_norm(log: Array, gradient: Array, geometry: Geometry) -> Spread:
    """Return what a norm's 1/|x_i|² adds to a gradient's spread (S4)."""
    apart = geometry.trace(log * gradient) / max(geometry.trace(gradient), 1e-300)
    together = _together(log, gradient, geometry)
    return Spread(together, apart - together / 2)


def through_branch(back: StepBack, width: int, log: Array, geometry: Geometry) -> Spread:
    """Return what one sub-layer adds to a gradient's spread: its random matrices, and its inner norm (S5).

    Args:
        back: the gradients around it.
        width: d.
        log: covariance of the logarithms of what the inner norm reads.
        geometry: the pairs.
    """
    step = back.step
    normed = step.wiring.skip == "normed"
    direct = back.total * (step.wiring.skip_scale**2 if step.skip is not None else 0.0)
    direct = direct * step.inner.slope if normed else direct
    branch = back.before - direct
    trace = max(geometry.trace(back.before), 1e-300)
    square = 4 * geometry.total(direct * branch) + 2 * (1 + _excess(step, width)) * geometry.total(branch**2)
    matrices = Spread(square / width / trace**2, -square / width / trace**2 / 2)
    if normed:
        return matrices + through_norm(log, back.before, geometry)
    apart = geometry.trace(log * branch) / trace if step.wiring.inner_norm else 0.0
    return matrices + Spread(0.0, apart)


def _together(log: Array, weights: Array, geometry: Geometry) -> float:
    """Average over all pairs of tokens, weighted by their shares of the trace."""
    rows, columns = geometry.sides(weights)
    return geometry.total(log * rows * columns) / max(geometry.trace(weights), 1e-300) ** 2
