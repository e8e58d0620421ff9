"""From covariances to rows of the table."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from normlab.table import COLUMNS, kinds, normalise, ordered
from normlab.theory.backward import StepBack
from normlab.theory.finite_width import Scatter, Spread, of_mean_square
from normlab.theory.forward import Forward, Step
from normlab.theory.geometry import Geometry
from normlab.theory.kernels import Array

Row: TypeAlias = dict[str, Any]

#: Share of a token's square below which what tokens do not share drowns in a float32 softmax's rounding.
_RESOLUTION = 5e-5


def table_of(rows: Sequence[Row], cell: Mapping[str, object]) -> pd.DataFrame:
    """Return rows as a table with ``source`` ``theory`` and the columns of a cell, the same in every row."""
    defaults: Row = {"source": "theory", "status": "ok", "step": 0}
    columns = {name: [found.get(name, defaults.get(name)) for found in rows] for name in COLUMNS}
    columns |= {name: [value] * len(rows) for name, value in cell.items()}
    kind = kinds(columns)
    data = {name: _categories(values) if kind[name] == "text" else values for name, values in columns.items()}
    return ordered(normalise(pd.DataFrame(data)))


def _categories(values: list[object]) -> pd.Series:
    """Text whose categories are sorted, which the table takes as it is."""
    text = ["" if value is None else str(value) for value in values]
    return pd.Series(text, dtype=pd.CategoricalDtype(sorted(set(text))))


def row(at: Row, site: str, quantity: str, value: float, *, role: str = "", spread: Spread | None = None) -> Row:
    """Return one row; a zero is exact, and NaN needs a reason of its caller."""
    status = "exact-zero" if value == 0 else "ok" if np.isfinite(value) else "nonfinite"
    sd_log = None if spread is None else spread.sd_log
    return at | {"site": site, "quantity": quantity, "role": role, "value": value, "sd_log": sd_log, "status": status}


def activation(
    at: Row, site: str, covariance: Array, geometry: Geometry, spread: Spread | None = None
) -> Iterator[Row]:
    """Yield mean square, rms and token overlap."""
    square = geometry.mean_square(covariance)
    one = spread or Spread()
    rms = one.geometric(square)
    yield row(at, site, "mean_square", rms**2) | {"sd_log": None if spread is None else 2 * one.sd_log}
    yield row(at, site, "rms", rms, spread=spread)
    if square > 0 and geometry.tokens > 1:
        overlap = geometry.overlap(covariance)
        yield row(at, site, "token_overlap", overlap) | {"status": "ok"}


def gradient(at: Row, site: str, entries: Array, geometry: Geometry, spread: Spread) -> Iterator[Row]:
    """Yield length and coherence."""
    trace = geometry.trace(entries)
    yield row(at, site, "l2", spread.geometric(trace), spread=spread)
    if trace > 0:
        yield row(at, site, "grad_coherence", geometry.coherence(entries))


def forward_rows(forward: Forward, logs: Scatter) -> Iterator[Row]:
    """Yield the rows of all activations."""
    geometry, stack = forward.geometry, {"stack": forward.stack}
    start = forward.embed.value
    at: Row = stack | {"layer": 0, "sublayer": "embed"}
    yield from activation(at, "stream", start, geometry, of_mean_square(logs.start, start, geometry))
    for step, log, total in zip(forward.steps, logs.streams, logs.totals, strict=True):
        at = stack | {"layer": step.where.layer, "sublayer": step.where.sublayer}
        yield from _step_rows(at, step, log, total, geometry)
    if forward.spec.has_final_norm or (forward.steps and forward.steps[-1].second is not None):
        at = stack | {"layer": forward.spec.stacks[forward.stack], "sublayer": "final"}
        yield from activation(at, "final", forward.out, geometry)


def _step_rows(at: Row, step: Step, log: Array, total: Array, geometry: Geometry) -> Iterator[Row]:
    if step.waits:
        yield at | {"site": "stream", "quantity": "mean_square", "value": float("nan"), "status": "parallel"}
    else:
        yield from activation(at, "stream", step.stream, geometry, of_mean_square(log, step.stream, geometry))
    if step.second is not None:
        yield from activation(at, "stream2", step.second, geometry)
    if step.skip is not None and not step.waits:
        yield from activation(at, "skip", step.skip, geometry)
        ratio = geometry.mean_square(step.update) / geometry.mean_square(step.skip)
        yield row(at, "update", "update_ratio", float(np.sqrt(ratio)))
    yield from activation(at, "update", step.update, geometry)
    if step.wiring.norms_stream and not step.waits:
        yield from activation(at, "sum", step.total, geometry, of_mean_square(total, step.total, geometry))
    yield from activation(at, "input", step.mixer.inputs, geometry)
    yield from activation(at, "branch", step.mixer.value, geometry)
    gain = geometry.mean_square(step.mixer.value) / geometry.mean_square(step.mixer.inputs)
    yield row(at, "branch", "branch_gain", gain)


def gradient_rows(
    forward: Forward, back: StepBack, stream: Array, after: Spread, inside: Spread, before: Spread
) -> Iterator[Row]:
    """Yield the rows of the gradients around one sub-layer."""
    step, geometry = back.step, forward.geometry
    at: Row = {"stack": forward.stack, "layer": step.where.layer, "sublayer": step.where.sublayer}
    if step.waits:
        yield at | {"site": "stream_grad", "quantity": "l2", "value": float("nan"), "status": "parallel"}
    else:
        yield from gradient(at, "stream_grad", stream, geometry, after)
    yield from gradient(at, "update_grad", back.update, geometry, inside)
    if step.wiring.norms_stream and not step.waits:
        yield from gradient(at, "sum_grad", back.total, geometry, inside)
    yield from gradient(at, "input_grad", back.inputs, geometry, inside)
    yield from gradient(at, "branch_grad", back.branch, geometry, inside)
    squares = {role: max(geometry.total(entries), 0.0) for role, entries in back.roles.items()}
    for role in _unresolved(step, geometry):
        if squares.get(role, 0.0) > 0:
            reason = "tokens are so alike that rounding decides in float32"
            yield at | {"quantity": "grad_norm", "role": role, "value": float("nan"), "status": f"no theory: {reason}"}
            del squares[role]
    yield from parameters(at, squares, inside)


def _unresolved(step: Step, geometry: Geometry) -> tuple[str, ...]:
    """Roles whose gradient is made of what tokens do not share, where rounding has eaten that."""
    inputs = step.mixer.inputs
    lost = step.where.sublayer != "mlp" and geometry.apart(inputs) < _RESOLUTION * geometry.mean_square(inputs)
    return ("q", "k") if lost else ()


def parameters(at: Row, squares: dict[str, float], spread: Spread) -> Iterator[Row]:
    """Yield the gradient norm of each role, and of all."""
    for role, square in squares.items():
        yield row(at, "", "grad_norm", spread.geometric(square), role=role, spread=spread)
    yield row(at, "", "grad_norm", spread.geometric(sum(squares.values())), role="all", spread=spread)
