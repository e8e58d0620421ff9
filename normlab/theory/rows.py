"""From covariances to rows of the table: a curve at a time, with one entry for each layer that has it."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from normlab.schema import ColumnKind
from normlab.table import COLUMNS, key, kinds, ordered
from normlab.theory.backward import StepBack
from normlab.theory.forward import Forward
from normlab.theory.geometry import Geometry, Numbers
from normlab.theory.kernels import Array
from normlab.theory.scatter import Spread, joined
from normlab.theory.step import Step

#: What rows share by column, and arrays of one length where they differ: one row, or a curve.
Row: TypeAlias = dict[str, Any]

#: Share of a token's square below which what tokens do not share drowns in a float32 softmax's rounding.
_RESOLUTION = 5e-5
#: Share of a sum's terms that rounding leaves of it.
_ROUNDING = 1e-12
_UNRESOLVED = "no theory: tokens are so alike that rounding decides in float32"


def table_of(rows: Sequence[Row], cell: Mapping[str, object]) -> pd.DataFrame:
    """Return rows as a table with ``source`` ``theory`` and the columns of a cell, the same in every row."""
    sizes = [max((value.size for value in row.values() if isinstance(value, np.ndarray)), default=1) for row in rows]
    defaults: Row = {"source": "theory", "status": "ok", "step": 0}
    given = {name: [row.get(name, defaults.get(name)) for row in rows] for name in COLUMNS}
    names = kinds([*COLUMNS, *(name for name in key([*COLUMNS, *cell]) if name not in COLUMNS)])
    # What is the same in every row has no part in their order.
    differ = [name for name, values in given.items() if name == "value" or any(one is not values[0] for one in values)]
    frame = ordered(pd.DataFrame({name: _COLUMN[names[name]](given[name], sizes) for name in differ}))
    same = {name: values[:1] for name, values in given.items()} | {name: [value] for name, value in cell.items()}
    columns = {
        name: frame[name] if name in differ else _COLUMN[kind](same[name], [len(frame)]) for name, kind in names.items()
    }
    return pd.DataFrame(columns)


def _text(values: Sequence[Any], sizes: Sequence[int]) -> pd.Categorical:
    """Text whose categories are sorted, which the table takes as it is."""
    parts = [np.atleast_1d(np.asarray("" if value is None else value, dtype=object)) for value in values]
    names = sorted({str(name) for part in parts for name in (set(part.tolist()) if part.size > 1 else part.tolist())})
    place = {name: index for index, name in enumerate(names)}
    codes = [
        np.full(size, place[str(part[0])]) if part.size == 1 else np.array([place[str(name)] for name in part])
        for part, size in zip(parts, sizes, strict=True)
    ]
    return pd.Categorical.from_codes(np.concatenate(codes), categories=pd.Index(names, dtype=object))


def _floats(values: Sequence[Any], sizes: Sequence[int]) -> Array:
    parts = [np.full(size, np.nan if one is None else one) for one, size in zip(values, sizes, strict=True)]
    return np.concatenate(parts).astype(np.float64)


def _integers(values: Sequence[Any], sizes: Sequence[int]) -> pd.arrays.IntegerArray:
    numbers = _floats(values, sizes)
    missing = np.isnan(numbers)
    return pd.arrays.IntegerArray(np.where(missing, 1, numbers).astype(np.int64), missing)


_COLUMN: Final[Mapping[ColumnKind, Callable[[Sequence[Any], Sequence[int]], Any]]] = {
    "text": _text,
    "integer": _integers,
    "float": _floats,
}


def row(at: Row, site: str, quantity: str, value: Numbers, *, role: str = "", spread: Spread | None = None) -> Row:
    """Return one curve; a zero is exact, and NaN needs a reason of its caller."""
    sd_log = None if spread is None else spread.sd_log
    found = {"site": site, "quantity": quantity, "role": role, "value": value, "sd_log": sd_log}
    return at | found | {"status": _status(np.asarray(value))}


def _status(value: Array) -> Any:
    usual = np.isfinite(value) & (value != 0)
    if usual.all():
        return "ok"
    status = np.where(usual, "ok", np.where(value == 0, "exact-zero", "nonfinite")).astype(object)
    return status if status.ndim else status.item()


def _where(at: Row, kept: NDArray[np.bool_] | np.bool_, *arrays: Numbers) -> tuple[Row, list[Numbers]]:
    """Return what of a curve is kept."""
    if np.all(kept):
        return at, list(arrays)
    return {name: _of(value, kept) for name, value in at.items()}, [_of(value, kept) for value in arrays]


def _of(value: Any, kept: NDArray[np.bool_] | np.bool_) -> Any:
    return value[kept] if isinstance(value, np.ndarray) and value.ndim else value


def activation(at: Row, site: str, means: Array, geometry: Geometry, spread: Spread | None = None) -> Iterator[Row]:
    """Yield mean square, rms and token overlap of covariances."""
    means = geometry.means(means)
    square, one = geometry.mean_square(means), spread or Spread()
    rms = one.geometric(square)
    yield row(at, site, "mean_square", rms**2) | {"sd_log": None if spread is None else 2 * one.sd_log}
    yield row(at, site, "rms", rms, spread=spread)
    if geometry.tokens > 1 and np.any(square > 0):
        at, (means,) = _where(at, square > 0, means)
        yield row(at, site, "token_overlap", geometry.overlap(means)) | {"status": "ok"}


def gradient(at: Row, site: str, means: Array, geometry: Geometry, spread: Spread) -> Iterator[Row]:
    """Yield length and coherence."""
    means = geometry.means(means)
    trace = geometry.trace(means)
    yield row(at, site, "l2", spread.geometric(trace), spread=spread)
    if np.any(trace > 0):
        at, (means,) = _where(at, trace > 0, means)
        yield row(at, site, "grad_coherence", geometry.coherence(means))


def parameters(at: Row, squares: Mapping[str, Numbers], spread: Spread) -> Iterator[Row]:
    """Yield the gradient norm of each role, and of all."""
    for role, square in squares.items():
        yield row(at, "", "grad_norm", spread.geometric(square), role=role, spread=spread)
    yield row(at, "", "grad_norm", spread.geometric(sum(squares.values())), role="all", spread=spread)


@dataclass(frozen=True, eq=False)
class Sent:
    """What the table needs of a step's backward pass.

    Attributes:
        step: the sub-layer, or several alike.
        means: averages of the gradients' covariances around it by name; ``stream`` is that after it.
        roles: averages of each role's entries.
    """

    step: Step
    means: dict[str, Array]
    roles: dict[str, Array]


def sent(back: StepBack, stream: Array, geometry: Geometry) -> Sent:
    """Return what the table needs of a step's backward pass."""
    found = {"stream": stream, "update": back.update, "inputs": back.inputs, "branch": back.branch}
    if back.step.wiring.norms_stream:
        found["total"] = back.total
    return Sent(back.step, geometry.all_means(found), geometry.all_means(back.roles))


def _alike(found: Iterable[Any]) -> Iterator[tuple[Row, list[Any], dict[str, Array]]]:
    """Group what has the same tensors: its rows' common columns, itself, and its averages stacked."""
    groups: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for one in found:
        step = _step(one)
        kind = (step.where.stack, step.where.sublayer, step.waits, step.wiring.norms_stream)
        groups[*kind, tuple(one.means), tuple(getattr(one, "roles", ()))].append(one)
    for (stack, sublayer, waits, normed, *_), group in groups.items():
        steps = [_step(one) for one in group]
        at = {"stack": stack, "sublayer": sublayer, "layer": np.concatenate([step.layers for step in steps])}
        left_out = [name for name, no in (("stream", waits), ("skip", waits), ("total", waits or not normed)) if no]
        names = [name for name in group[0].means if name not in left_out]
        yield at, group, {name: _above([(one.means[name], _step(one)) for one in group]) for name in names}


def _step(one: Any) -> Step:
    step: Step = one if isinstance(one, Step) else one.step
    return step


def _above(means: Iterable[tuple[Array, Step]]) -> Array:
    """Return averages of several steps, each of one layer or of more, one above the other."""
    counted = ((one, len(step.places)) for one, step in means)
    return np.concatenate(
        [one.reshape(1, 3) if count == 1 else np.broadcast_to(one, (count, 3)) for one, count in counted]
    )


def forward_rows(forward: Forward) -> Iterator[Row]:
    """Yield the curves of all activations."""
    geometry, stack = forward.geometry, {"stack": forward.stack}
    at: Row = stack | {"layer": 0, "sublayer": "embed"}
    yield from activation(at, "stream", forward.embed.value, geometry, forward.of_embed)
    for at, group, means in _alike(forward.steps):
        yield from _levels(at, group, means, geometry)
    if forward.spec.has_final_norm or (forward.steps and forward.steps[-1].second is not None):
        at = stack | {"layer": forward.spec.stacks[forward.stack], "sublayer": "final"}
        yield from activation(at, "final", forward.out, geometry)


def _levels(at: Row, group: Sequence[Step], means: dict[str, Array], geometry: Geometry) -> Iterator[Row]:
    if "stream" in means:
        yield from activation(at, "stream", means["stream"], geometry, joined(_spreads(group, "of_stream")))
    else:
        yield at | {"site": "stream", "quantity": "mean_square", "value": float("nan"), "status": "parallel"}
    if "total" in means:
        yield from activation(at, "sum", means["total"], geometry, joined(_spreads(group, "of_total")))
    for name, site in (("second", "stream2"), ("skip", "skip"), ("update", "update"), ("inputs", "input")):
        if name in means:
            yield from activation(at, site, means[name], geometry)
    yield from activation(at, "branch", means["branch"], geometry)
    square = {name: geometry.mean_square(of) for name, of in means.items()}
    if "skip" in means:
        yield row(at, "update", "update_ratio", np.sqrt(square["update"] / square["skip"]))
    yield row(at, "branch", "branch_gain", square["branch"] / square["inputs"])


def _spreads(group: Iterable[Step], name: str) -> Iterator[tuple[Spread, int]]:
    return ((getattr(one, name), len(one.places)) for one in group)


def gradient_rows(found: Sequence[Sent], behind: Spread, inside: Spread, geometry: Geometry) -> Iterator[Row]:
    """Yield the curves of the gradients around sub-layers, and of their parameters.

    Args:
        found: the sub-layers.
        behind: spread of the gradient after each.
        inside: of the one at its sum.
        geometry: the pairs of tokens.
    """
    for at, group, means in _alike(found):
        places = np.concatenate([one.step.places for one in group])
        if "stream" in means:
            yield from gradient(at, "stream_grad", means["stream"], geometry, behind.at(places))
        else:
            yield at | {"site": "stream_grad", "quantity": "l2", "value": float("nan"), "status": "parallel"}
        sites = {"update": "update_grad", "total": "sum_grad", "inputs": "input_grad", "branch": "branch_grad"}
        for name, site in sites.items():
            if name in means:
                yield from gradient(at, site, means[name], geometry, inside.at(places))
        yield from _roles(at, group, inside.at(places), geometry)


def _roles(at: Row, group: Sequence[Sent], spread: Spread, geometry: Geometry) -> Iterator[Row]:
    """Yield parameters' gradients; of queries and keys only where rounding has left what tokens do not share."""
    seen = _above([(geometry.means(one.step.seen), one.step) for one in group])
    lost = geometry.apart(seen) < _RESOLUTION * geometry.mean_square(seen)
    known: dict[str, Numbers] = {}
    for role in group[0].roles:
        known[role] = _square(_above([(one.roles[role], one.step) for one in group]), geometry)
        gone = lost & (known[role] > 0) & (role in ("q", "k"))
        if gone.any():
            there, _ = _where(at, gone)
            yield there | {"quantity": "grad_norm", "role": role, "value": float("nan"), "status": _UNRESOLVED}
        if not gone.all():
            there, (square, variance, shift) = _where(at, ~gone, known[role], spread.variance, spread.shift)
            one = Spread(variance, shift)
            yield row(there, "", "grad_norm", one.geometric(square), role=role, spread=one)
        known[role] = np.where(gone, 0.0, known[role])
    yield row(at, "", "grad_norm", spread.geometric(sum(known.values())), role="all", spread=spread)


def _square(entries: Array, geometry: Geometry) -> Numbers:
    """Return the sum over all pairs of tokens; what rounding leaves of a sum that cancels is 0."""
    total, size = geometry.total(entries), geometry.total(np.abs(entries))
    return np.where(total > _ROUNDING * size, total, 0.0)
