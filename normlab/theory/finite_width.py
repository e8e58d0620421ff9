"""How much the gradients of single models of finite width scatter on their way back (S5, S8 and S9)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from normlab.theory.backward import StepBack
from normlab.theory.elementwise import scaled
from normlab.theory.geometry import Geometry
from normlab.theory.kernels import Array
from normlab.theory.scatter import Log, Spread, through_norm

#: Of the trace with itself, of trace and coherent part, and of the coherent part with itself.
Three: TypeAlias = tuple[float, float, float]

_LEAST = 1e-12


@dataclass(frozen=True)
class Scattering:
    """Variances of the logarithms of a gradient's trace T and of its coherent part S, Σ_i ‖Σ_i g_i‖² by sequence (S9).

    Attributes:
        variances: of ln T, of ln T with ln S, of ln S.
        weights: how ln T and ln S depend on the logarithm of the stream's mean square, by norms passed since.
        apart: mean of ln T² less the mean-field value's logarithm, but for half the variance.
    """

    variances: Three
    weights: tuple[float, float] = (0.0, 0.0)
    apart: float = 0.0

    @property
    def spread(self) -> Spread:
        """The spread of the trace."""
        return Spread(self.variances[0], self.apart - self.variances[0] / 2)

    def normed(self, log: Log, gradient: Array, geometry: Geometry) -> "Scattering":
        """Return it before a norm that everything passes (S4)."""
        found = through_norm(log, gradient, geometry)
        both = found.variance
        variances = (self.variances[0] + both, self.variances[1] + both, self.variances[2] + both)
        return Scattering(variances, (1.0, 1.0), self.apart + found.shift + both / 2)

    def before(self, back: StepBack, stream: float, arrived: Array, width: int, geometry: Geometry) -> "Scattering":
        """Return it before a sub-layer: random matrices, and the inner norm (S5, S9).

        Args:
            back: the gradients around it.
            stream: variance of the logarithm of the mean square of the stream that it reads.
            arrived: the gradient that comes back to it, which what waits for the next sum passes as it is.
            width: d.
            geometry: the pairs.
        """
        step = back.step
        normed = step.wiring.skip == "normed"
        branch, direct = back.before, None
        if step.waits:
            direct, branch = arrived, branch - arrived
        elif step.skip is not None:
            direct = scaled(step.wiring.skip_scale**2, back.total)
            direct = step.inner.back(direct) if normed else direct
            branch = branch - direct
        trace, joint = _sums(back.before, geometry)
        own, shared = _sums(branch, geometry)
        after = self._mixed(back, (trace, joint), (own, shared), geometry)
        new = _fresh(direct, branch, step.mixer.excess, geometry)
        tt, ts, ss = after.variances
        variances = (
            tt + new[0] / (width * trace**2),
            ts + new[1] / (width * trace * joint),
            ss + new[2] / (width * joint**2),
        )
        after = replace(after, variances=variances, weights=after._carried(back, geometry))
        if normed:
            return after.normed(step.log_before, back.before, geometry)
        if not step.wiring.inner_norm:
            return after
        apart = self.apart + float(geometry.shared(step.singles_before, branch)) / trace
        return replace(after._weighed((own / trace, shared / joint), stream), apart=apart)

    def _mixed(
        self, back: StepBack, whole: tuple[float, float], branch: tuple[float, float], geometry: Geometry
    ) -> "Scattering":
        """Attention sends back what a sequence's tokens have in common; an MLP makes of a token's own some of that."""
        trace, joint = whole
        if back.step.where.sublayer != "mlp":
            return self._through(min(max(branch[0] / trace, 0.0), 1.0), 0.0)
        own, shared = _sums(back.total, geometry)
        pairs = shared - own
        kept = (branch[1] - branch[0]) / pairs if abs(pairs) > 1e-6 * own else 0.0
        return self._through(0.0, min(max((branch[0] - kept * own) / joint, 0.0), 1.0))

    def _through(self, to_trace: float, to_joint: float) -> "Scattering":
        """Return it where a share of T comes from S, and a share of S from T."""
        (one, two), (three, four) = (1 - to_trace, to_trace), (to_joint, 1 - to_joint)
        tt, ts, ss = self.variances
        variances = (
            one * one * tt + 2 * one * two * ts + two * two * ss,
            one * three * tt + (one * four + two * three) * ts + two * four * ss,
            three * three * tt + 2 * three * four * ts + four * four * ss,
        )
        first, second = self.weights
        weights = (one * first + two * second, three * first + four * second)
        return replace(self, variances=variances, weights=weights)

    def _carried(self, back: StepBack, geometry: Geometry) -> tuple[float, float]:
        """A sum's mean square follows that of its skip by the skip's share."""
        step = back.step
        if step.waits:
            return self.weights
        if step.skip is None or step.wiring.skip == "normed":
            return 0.0, 0.0
        kept = float(geometry.mean_square(step.skip) / max(geometry.mean_square(step.total), _LEAST))
        return kept * self.weights[0], kept * self.weights[1]

    def _weighed(self, shares: tuple[float, float], stream: float) -> "Scattering":
        """An inner norm divides the branch's share of a gradient by the stream's mean square, which others did too."""
        (one, two), (a, b), (tt, ts, ss) = self.weights, shares, self.variances
        variances = (
            tt + stream * (2 * one * a + a * a),
            ts + stream * (one * b + two * a + a * b),
            ss + stream * (2 * two * b + b * b),
        )
        return replace(self, variances=variances, weights=(one + a, two + b))


def at_head(gradient: Array, width: int, geometry: Geometry) -> Scattering:
    """Return what the head's matrix scatters (S7)."""
    trace, joint = _sums(gradient, geometry)
    tt, ts, ss = (2 * found / width for found in _products(gradient, gradient, geometry))
    return Scattering((tt / trace**2, ts / (trace * joint), ss / joint**2))


def _sums(entries: Array, geometry: Geometry) -> tuple[float, float]:
    """Return T and S, which is not quite 0 where tokens' gradients cancel."""
    trace = max(float(geometry.trace(entries)), 1e-300)
    return trace, max(float(geometry.within_sequences(entries)), 1e-3 * trace)


def _fresh(direct: Array | None, branch: Array, excess: float, geometry: Geometry) -> Three:
    """Return d times the covariances of T and S that a sub-layer's matrices add (S5)."""
    tt, ts, ss = (2 * (1 + excess) * found for found in _products(branch, branch, geometry))
    if direct is None:
        return tt, ts, ss
    more = _products(direct, branch, geometry)
    return tt + 4 * more[0], ts + 4 * more[1], ss + 4 * more[2]


def _products(one: Array, other: Array, geometry: Geometry) -> Three:
    """Return Σ_ij of products, and of products of sums over one sequence, and over both."""
    own = float(geometry.total(one * other))
    if geometry.rows is None:
        tokens, others = geometry.tokens, geometry.batch - 1
        inside = (one[0] + (tokens - 1) * one[1]) * (other[0] + (tokens - 1) * other[1])
        rows = geometry.count * float(inside + others * tokens**2 * one[2] * other[2])
        return own, rows, tokens * rows
    weight = geometry.weight[:, 0, 0]
    rows = (one.sum(axis=-1) * other.sum(axis=-1) + one.sum(axis=-2) * other.sum(axis=-2)).sum(axis=-1) / 2
    both = one.sum(axis=(-2, -1)) * other.sum(axis=(-2, -1))
    return own, float(weight @ rows), float(weight @ both)


def gathered(parts: Sequence[tuple[Array, Spread]], width: int, geometry: Geometry) -> Scattering:
    """Return what the cross-attention of several layers sends to one encoder (S8).

    Args:
        parts: each layer's share of the gradient's covariance and the spread that it had there, from the last layer to
            the first: a layer shares all that its spread had gathered above with those below.
        width: d.
        geometry: the encoder's pairs.
    """
    traces = np.array([geometry.trace(part) for part, _ in parts])
    shares = traces / max(float(traces.sum()), 1e-300)
    variances = np.array([spread.variance for _, spread in parts])
    matrices = [2 * geometry.total(part**2) / (width * max(geometry.trace(part), 1e-300) ** 2) for part, _ in parts]
    common = np.minimum.outer(variances, variances) + np.diag(matrices)
    variance = float(shares @ common @ shares)
    grown = float(shares @ (np.array([spread.shift for _, spread in parts]) + variances / 2))
    return Scattering((variance, variance, variance), apart=grown)
