"""From a recorder's state to the table."""

from collections.abc import Iterator, Sequence
from math import isfinite, isinf
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from normlab.recording.formulas import Column, branch_gain, columns_of
from normlab.recording.odd import SMALLEST, TOO_SMALL
from normlab.recording.parameters import Role, RoleSums
from normlab.recording.plan import Address
from normlab.recording.state import SiteKey, State, StepState
from normlab.recording.sums import Kind, Sums
from normlab.schema import COLUMNS
from normlab.table import normalise, ordered

#: Quantities of which a zero is a plain number.
_COUNTS: Final = ("nonfinite", "count", "loss")

_WITHOUT_SQUARES: Final = ("mean", "max_abs")
_TOO_LARGE: Final = "too large to be squared in float64"

_OF_PAIR: Final = ("update_ratio", "alignment", "covariance", "lost_share")
_OF_PARAMETER: Final = ("grad_norm", "grad_rms", "param_rms", "nonfinite")
_OF_ACTIVATION: Final = (
    "mean_square", "rms", "mean", "variance", "median_rms", "max_abs", "kurtosis", "token_cosine", "token_overlap",
    "nonfinite", "count",
)  # fmt: skip
_QUANTITIES: Final[dict[Kind, tuple[str, ...]]] = {
    "activation": _OF_ACTIVATION,
    "gradient": ("l2", "grad_coherence", "max_abs", "nonfinite", "count"),
    "pair": _OF_PAIR,
    "scores": ("mean_square", "rms", "mean", "max_abs", "nonfinite", "count"),
    "loss": ("loss",),
}


class Rows(NamedTuple):
    """Rows that share their quantities: one set of quantities for each key.

    Attributes:
        keys: for each, the columns that identify it.
        quantities: the quantities, in order.
        values: one a key and quantity.
        statuses: the same.
    """

    keys: Sequence[tuple[Any, ...]]
    quantities: Sequence[str]
    values: np.ndarray
    statuses: np.ndarray


_KEY: Final = ("stack", "layer", "sublayer", "site", "role", "head", "name", "call", "dtype", "step")


def table_of(state: State) -> pd.DataFrame:
    """Return the table of everything that ``state`` holds."""
    blocks = [block for step, one in state.steps.items() for block in _blocks(step, one, state) if len(block.keys)]
    return ordered(normalise(_frame(blocks)))


def _blocks(step: int, one: StepState, state: State) -> Iterator[Rows]:
    for kind, quantities in _QUANTITIES.items():
        keys = [key for key in one.sums if key.kind == kind and (key.address.site in state.sites or kind == "loss")]
        asked = [name for name in quantities if name in state.quantities]
        if keys and asked:
            sums = [one.sums[key] for key in keys]
            columns = columns_of(kind, sums, [key.dtype for key in keys])
            if kind == "gradient":
                unequal = _unequal(keys, one)
                columns = {name: column._replace(caution=unequal) for name, column in columns.items()}
            yield _rows([_site_key(key, step) for key in keys], asked, columns, sums)
    if "branch_gain" in state.quantities:
        yield from _gains(step, one, state)
    yield from _without_value(step, one, state)
    yield from _parameters(step, one.parameters, state)


def _unequal(keys: list[SiteKey], one: StepState) -> np.ndarray:
    """Say where other tokens have a gradient than were observed, as after a pass without a backward pass."""
    forward = {
        key._replace(address=gradient, kind="gradient"): sums.values
        for key, sums in one.sums.items()
        if key.kind == "activation" and (gradient := key.address.gradient()) is not None
    }
    found = np.full(len(keys), "", dtype=object)
    for index, key in enumerate(keys):
        (tokens, bad), (every, spoilt) = one.sums[key].values[:2], forward.get(key, one.sums[key].values)[:2]
        if tokens != every and not bad and not spoilt:
            found[index] = f"counted {tokens:.0f} of {every:.0f} tokens"
    return found


def _gains(step: int, one: StepState, state: State) -> Iterator[Rows]:
    inputs = {(key.address, key.call): sums for key, sums in one.sums.items() if key.address.site == "input"}
    keys = [key for key in one.sums if key.address.site == "branch" and "branch" in state.sites]
    if keys:
        branches = [one.sums[key] for key in keys]
        column = branch_gain(branches, [inputs.get((key.address._replace(site="input"), key.call)) for key in keys])
        yield _rows([_site_key(key, step) for key in keys], ["branch_gain"], {"branch_gain": column}, branches)


def _without_value(step: int, one: StepState, state: State) -> Iterator[Rows]:
    for (address, kind), reason in (*one.missing.items(), *one.absent.items()):
        if address.site and address.site not in state.sites:
            continue
        names = (*_QUANTITIES[kind], *(["branch_gain"] if address.site == "branch" and kind == "activation" else []))
        names = names if address.site else _OF_PARAMETER
        asked = [name for name in names if name in state.quantities]
        key = _row_key(step, address)
        yield Rows([key], asked, np.full((1, len(asked)), np.nan), np.full((1, len(asked)), reason, dtype=object))


def _parameters(step: int, roles: dict[Role, RoleSums], state: State) -> Iterator[Rows]:
    asked = [name for name in _OF_PARAMETER if name in state.quantities]
    if not roles or not asked:
        return
    keys = [_row_key(step, role.address, role=role.role, dtype=role.dtype) for role in roles]
    values = np.empty((len(keys), len(asked)))
    statuses = np.empty((len(keys), len(asked)), dtype=object)
    for index, sums in enumerate(roles.values()):
        found = _of_role(sums)
        values[index], statuses[index] = zip(*(found[name] for name in asked), strict=True)
    yield Rows(keys, asked, values, statuses)


def _of_role(sums: RoleSums) -> dict[str, tuple[float, str]]:
    own = _of_size(sums)
    if not sums.gradient_entries:
        none = float("nan"), _alone(sums.without) or "empty"
        return {"grad_norm": none, "grad_rms": none, "param_rms": own, "nonfinite": none}
    finite = sums.gradient_entries - sums.nonfinite
    norm = sums.gradient_squares**0.5 if finite and isfinite(sums.gradient_squares) else float("nan")
    status = "nonfinite" if sums.nonfinite else "exact-zero" if norm == 0 else "ok"
    status = _TOO_LARGE if status == "ok" and isinf(sums.gradient_squares) else status
    if sums.without and status == "ok":
        status = f"without {', '.join(sums.without)}"
    return {
        "grad_norm": (norm, status),
        "grad_rms": (norm / max(finite, 1) ** 0.5, status),
        "param_rms": own,
        "nonfinite": (float(sums.nonfinite), "ok"),
    }


def _of_size(sums: RoleSums) -> tuple[float, str]:
    """Return the root mean square of the finite entries of parameters."""
    finite = sums.entries - sums.broken
    size = (sums.squares / finite) ** 0.5 if finite and isfinite(sums.squares) else float("nan")
    if sums.unread:
        return size, f"without {', '.join(sums.unread)}" if finite else _alone(sums.unread)
    if sums.broken:
        return size, "nonfinite"
    if size != size:
        return size, _TOO_LARGE if isinf(sums.squares) else "parameters differ" if sums.entries else "empty"
    return size, "ok" if size else "exact-zero"


def _alone(reasons: tuple[str, ...]) -> str:
    """Return reasons without the roles that they are of."""
    return ", ".join(dict.fromkeys(why.partition(" (")[2].rstrip(")") or why for why in reasons))


def _rows(keys: list[tuple[Any, ...]], names: list[str], columns: dict[str, Column], sums: list[Sums]) -> Rows:
    """Put values side by side, with the status of each."""
    tokens, incomplete = _entered(sums)
    extreme = np.array([_extreme(one) for one in sums], dtype=object)
    values = np.stack([columns[name].values for name in names], axis=1)
    statuses = np.full(values.shape, "ok", dtype=object)
    for index, name in enumerate(names):
        column, value = columns[name], values[:, index]
        if name not in _COUNTS:
            status = np.where(value == 0, "exact-zero", "ok").astype(object)
            status = np.where(column.caution != "", column.caution, status)
            status = np.where(np.isnan(value), np.where(tokens == 0, "no tokens", column.reason), status)
            # Why a pair has no value says more than that some of its tokens were left out.
            stands = (sums[0].kind != "pair") | ~np.isnan(value) | (tokens == 0)
            status = np.where(np.isinf(value) | incomplete & stands, "nonfinite", status)
            if name not in _WITHOUT_SQUARES:
                status, value[extreme != ""] = np.where(extreme != "", extreme, status), np.nan
            statuses[:, index] = status
        elif name == "loss":
            statuses[:, index] = np.where(np.isfinite(value), "ok", "nonfinite")
    return Rows(keys, names, values, statuses)


def _extreme(sums: Sums) -> str:
    """Say why what follows from squares has no value although all entries are finite, as for 1e200 in float64."""
    if sums.kind == "loss" or sums.values[1]:
        return ""
    if np.isinf(sums.values).any():
        return _TOO_LARGE
    return TOO_SMALL if 0 < sums.largest < SMALLEST else ""


def _entered(sums: list[Sums]) -> tuple[np.ndarray, np.ndarray]:
    tokens = np.array([one.values[0] for one in sums])
    return tokens, np.array([sums[0].kind != "loss" and one.values[1] > 0 for one in sums])


def _site_key(key: SiteKey, step: int) -> tuple[Any, ...]:
    # A call's number tells rows apart; where a module runs once a pass, as planned, there is nothing to tell.
    call = key.call if key.call or key.address.site.startswith("output") else None
    return _row_key(step, key.address, call=call, dtype=key.dtype)


def _row_key(
    step: int, address: Address, *, role: str = "", call: int | None = None, dtype: str = ""
) -> tuple[Any, ...]:
    where = address.stack, address.layer, address.sublayer, address.site
    return (*where, role, address.head, address.name, call, dtype, step)


def _frame(blocks: Sequence[Rows]) -> pd.DataFrame:
    """Build the columns as arrays: a deep model has ten thousand rows."""
    data: dict[str, Any] = {}
    for index, name in enumerate(_KEY):
        column = [value for block in blocks for value in _repeated(block, index)]
        data[name] = _integers(column) if COLUMNS[name] == "integer" else _text(column)
    data["quantity"] = _text([name for block in blocks for _ in block.keys for name in block.quantities])
    data["status"] = _text([status for block in blocks for status in block.statuses.ravel().tolist()])
    data["value"] = np.concatenate([np.empty(0), *(block.values.ravel() for block in blocks)])
    data["source"] = _text(["measured"] * len(data["value"]))
    return pd.DataFrame(data)


def _repeated(block: Rows, index: int) -> Iterator[Any]:
    times = range(len(block.quantities))
    return (key[index] for key in block.keys for _ in times)


def _integers(values: list[int | None]) -> pd.Series:
    numbers = np.array([-1 if value is None else value for value in values], dtype=np.int64)
    gaps = np.array([value is None for value in values], dtype=bool)
    return pd.Series(pd.arrays.IntegerArray(numbers, gaps))


def _text(values: list[str]) -> pd.Series:
    categories = sorted(set(values))
    places = {category: place for place, category in enumerate(categories)}
    codes = np.array([places[value] for value in values], dtype=np.int64)
    return pd.Series(pd.Categorical.from_codes(codes, dtype=pd.CategoricalDtype(categories)))
