"""How much the gradients of single models of finite width scatter on their way back (S5, S8 and S9).

What is followed is a vector of seven numbers: variances of the logarithms of a gradient's trace T and of its coherent
part S, Σ_i ‖Σ_i g_i‖² by sequence (of ln T, of both, of ln S), how ln T and ln S depend on the logarithm of the
stream's mean square, by norms passed since, the mean of ln T² less the mean-field value's logarithm but for half the
variance, and 1. All that happens on the way is a matrix that multiplies it: of one sub-layer, or of several.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from normlab.theory.backward import StepBack
from normlab.theory.elementwise import scaled
from normlab.theory.geometry import Geometry, Numbers
from normlab.theory.kernels import Array
from normlab.theory.scatter import LEAST, Log, Spread, through_norm

#: Of the trace with itself, of trace and coherent part, and of the coherent part with itself.
Three: TypeAlias = tuple[Numbers, Numbers, Numbers]

_TT, _TS, _SS, _T, _S, _APART, _ONE = range(7)


def spread_of(scattering: Array) -> Spread:
    """Return the spread of the trace."""
    variance = scattering[..., _TT]
    return Spread(variance, scattering[..., _APART] - variance / 2)


def at_head(gradient: Array, width: int, geometry: Geometry) -> Array:
    """Return what the head's matrix scatters (S7)."""
    trace, joint = sums(gradient, geometry)
    summed = _summed(gradient, geometry)
    tt, ts, ss = (2 * found / width for found in _products(summed, summed, geometry))
    return np.array([tt / trace**2, ts / (trace * joint), ss / joint**2, 0.0, 0.0, 0.0, 1.0])


def gathered(parts: Sequence[tuple[Array, Spread]], width: int, geometry: Geometry) -> Array:
    """Return what the cross-attention of several layers sends to one encoder (S8).

    Args:
        parts: shares of the gradient's covariance and the spread that each had there, of one layer or of several: a
            layer shares all that its spread had gathered above with those below.
        width: d.
        geometry: the encoder's pairs.
    """
    traces = [np.maximum(geometry.trace(part), LEAST) for part, _ in parts]
    matrices = np.hstack(
        [2 * geometry.total(part**2) / width / one / one for (part, _), one in zip(parts, traces, strict=True)]
    )
    variances = np.hstack([spread.variance for _, spread in parts])
    shifts = np.hstack([spread.shift for _, spread in parts])
    shares = np.hstack(traces) / np.hstack(traces).sum()
    variance = float(shares @ (np.minimum.outer(variances, variances) + np.diag(matrices)) @ shares)
    return np.array([variance, variance, variance, 0.0, 0.0, float(shares @ (shifts + variances / 2)), 1.0])


def at_norm(log: Log, gradient: Array, geometry: Geometry) -> Array:
    """Return what a norm does that everything passes (S4)."""
    found = through_norm(log, gradient, geometry)
    matrix = _identity(found.variance)
    for entry in (_TT, _TS, _SS):
        matrix[..., entry, _ONE] = found.variance
    for entry in (_T, _S):
        matrix[..., entry, entry], matrix[..., entry, _ONE] = 0.0, 1.0
    matrix[..., _APART, _ONE] = found.shift + found.variance / 2
    return matrix


def before(back: StepBack, stream: Numbers, arrived: Array, width: int, geometry: Geometry) -> Array:
    """Return what a sub-layer does: random matrices, and the inner norm (S5, S9).

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
    (trace, joint), (own, shared) = sums(back.before, geometry), sums(branch, geometry)
    matrix = _mixed(back, (trace, joint), (own, shared), geometry)
    new = _fresh(direct, branch, step.mixer.excess, geometry)
    for entry, one, by in zip((_TT, _TS, _SS), new, ((trace, trace), (trace, joint), (joint, joint)), strict=True):
        matrix[..., entry, _ONE] = one / width / by[0] / by[1]
    if normed:
        return at_norm(step.log_before, back.before, geometry) @ matrix
    if not step.wiring.inner_norm:
        return matrix
    apart = geometry.shared(step.singles_before, branch) / trace
    return _weighed((own / trace, shared / joint), stream, apart) @ matrix


def _identity(*like: Numbers) -> Array:
    matrix: Array = np.zeros((*np.broadcast(*like).shape, 7, 7))
    matrix.reshape(-1, 49)[:, ::8] = 1.0
    return matrix


def _share(part: Numbers) -> Numbers:
    return np.minimum(np.maximum(part, 0.0), 1.0)


def _mixed(
    back: StepBack, whole: tuple[Numbers, Numbers], branch: tuple[Numbers, Numbers], geometry: Geometry
) -> Array:
    """Attention sends back what a sequence's tokens have in common; an MLP makes of a token's own some of that."""
    (trace, joint), kept = whole, _kept(back, geometry)
    if back.step.where.sublayer != "mlp":
        return _through(_share(branch[0] / trace), 0.0, kept)
    own, shared = sums(back.total, geometry)
    pairs = shared - own
    some = np.abs(pairs) > 1e-6 * own
    passed = (branch[1] - branch[0]) / np.where(some, pairs, 1.0) * some
    return _through(0.0, _share((branch[0] - passed * own) / joint), kept)


def _through(to_trace: Numbers, to_joint: Numbers, kept: Numbers) -> Array:
    """A share of T comes from S, and a share of S from T; of the dependence on the stream a share is kept."""
    matrix = _identity(to_trace, to_joint, kept)
    (one, two), (three, four) = (1 - to_trace, to_trace), (to_joint, 1 - to_joint)
    rows = {
        _TT: (one * one, 2 * one * two, two * two),
        _TS: (one * three, one * four + two * three, two * four),
        _SS: (three * three, 2 * three * four, four * four),
    }
    for entry, row in rows.items():
        matrix[..., entry, _TT], matrix[..., entry, _TS], matrix[..., entry, _SS] = row
    matrix[..., _T, _T], matrix[..., _T, _S] = kept * one, kept * two
    matrix[..., _S, _T], matrix[..., _S, _S] = kept * three, kept * four
    return matrix


def _kept(back: StepBack, geometry: Geometry) -> Numbers:
    """A sum's mean square follows that of its skip by the skip's share."""
    step = back.step
    if step.waits:
        return 1.0
    if step.skip is None or step.wiring.skip == "normed":
        return 0.0
    return geometry.mean_square(step.skip) / np.maximum(geometry.mean_square(step.total), 1e-12)


def _weighed(shares: tuple[Numbers, Numbers], stream: Numbers, apart: Numbers) -> Array:
    """An inner norm divides the branch's share of a gradient by the stream's mean square, which others did too."""
    a, b = shares
    matrix = _identity(a, b, stream, apart)
    matrix[..., _TT, _T], matrix[..., _TT, _ONE] = 2 * stream * a, stream * a * a
    matrix[..., _TS, _T], matrix[..., _TS, _S], matrix[..., _TS, _ONE] = stream * b, stream * a, stream * a * b
    matrix[..., _SS, _S], matrix[..., _SS, _ONE] = 2 * stream * b, stream * b * b
    matrix[..., _T, _ONE], matrix[..., _S, _ONE], matrix[..., _APART, _ONE] = a, b, apart
    return matrix


def sums(entries: Array, geometry: Geometry) -> tuple[Numbers, Numbers]:
    """Return T and S, which is not quite 0 where tokens' gradients cancel."""
    own, others, _ = geometry.means(entries).T
    trace = np.maximum(own * geometry.count, LEAST)
    return trace, np.maximum((own + (geometry.tokens - 1) * others) * geometry.count, 1e-3 * trace)


def _fresh(direct: Array | None, branch: Array, excess: float, geometry: Geometry) -> Three:
    """Return d times the covariances of T and S that a sub-layer's matrices add (S5)."""
    fresh = _summed(branch, geometry)
    tt, ts, ss = (2 * (1 + excess) * found for found in _products(fresh, fresh, geometry))
    if direct is None:
        return tt, ts, ss
    more = _products(_summed(direct, geometry), fresh, geometry)
    return tt + 4 * more[0], ts + 4 * more[1], ss + 4 * more[2]


class _Summed(NamedTuple):
    """A covariance, its sums over the second and over the first token of each pair, and over both."""

    entries: Array
    first: Array
    second: Array
    both: Array


def _summed(entries: Array, geometry: Geometry) -> _Summed:
    if geometry.rows is None:
        rows = entries[..., :1] + (geometry.tokens - 1) * entries[..., 1:2]
        return _Summed(entries, rows, rows, entries[..., 2:])
    ones = np.ones(geometry.tokens)
    first = entries @ ones
    return _Summed(entries, first, ones @ entries, first @ ones)


def _products(one: _Summed, other: _Summed, geometry: Geometry) -> Three:
    """Return Σ_ij of products, and of products of sums over one sequence, and over both."""
    own = geometry.product(one.entries, other.entries)
    if geometry.rows is None:
        others = (geometry.batch - 1) * geometry.tokens**2
        rows = geometry.count * (one.first * other.first + others * one.both * other.both)[..., 0]
        return own, rows, geometry.tokens * rows
    weight = geometry.weight[:, 0, 0]
    rows = (np.vecdot(one.first, other.first) + np.vecdot(one.second, other.second)) / 2
    return own, weight @ rows, weight @ (one.both * other.both)
