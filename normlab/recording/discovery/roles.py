"""The roles of the parameters in a branch: which matrix each product of features and weights takes."""

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from normlab.recording.discovery.branch import Branch
from normlab.recording.discovery.columns import Piece, Weights, pieces, weights_of
from normlab.recording.discovery.graph import LAYOUT, Flow

#: Operations that choose experts by their scores.
_CHOICES = ("topk", "sort", "argmax", "max")


class Share(NamedTuple):
    """A parameter, or some of its rows, and its role.

    Attributes:
        name: the parameter.
        role: its role.
        axis: the axis of ``rows``.
        rows: first and last-plus-one row; ``None`` for the whole parameter.
    """

    name: str
    role: str
    axis: int
    rows: tuple[int, int] | None


def shares(flow: Flow, branch: Branch) -> list[Share]:
    """Return the roles of the matrices and their biases; what is not certain is left out."""
    found: dict[Share, None] = {}
    uncertain: set[str] = set()
    products = _products(flow, branch)
    parts = {product: pieces(flow, product, branch.update) for product in products}
    for product in products:
        weights = weights_of(flow, product)
        if weights is None:
            continue
        by_column = _by_column(flow, branch, parts, product, len(weights.rows))
        if by_column is None:
            uncertain.add(weights.name)
        else:
            found |= dict.fromkeys(_shares(weights, by_column, flow))
    return [share for share in found if share.name not in uncertain]


def _products(flow: Flow, branch: Branch) -> list[int]:
    """Return the products of a branch, those that only see the memory included."""
    found = set(branch.products)
    if branch.memory is not None:
        memory = branch.memory
        found |= {value.index for value in flow.between(memory, branch.update) if _on_memory(flow, value.index, branch)}
    return sorted(found)


def _on_memory(flow: Flow, index: int, branch: Branch) -> bool:
    return flow.weighs[index] and not flow.depends(index, branch.base) and not flow.depends(branch.base, index)


def _by_column(flow: Flow, branch: Branch, parts: dict[int, list[Piece]], product: int, width: int) -> list[str] | None:
    """Return the role of each column of a product's result, or ``None`` if one has none or several."""
    columns: dict[str, frozenset[int]] = {}
    for piece in parts[product]:
        role = _attention_role(flow, branch, piece) or _mlp_role(flow, branch, parts, piece, width)
        columns[role] = columns.get(role, frozenset()) | piece.columns
    if len(columns) == 1 and "" not in columns:
        return list(columns) * width if all(len(each) == width for each in columns.values()) else None
    roles = [{role for role, each in columns.items() if column in each} for column in range(width)]
    if any(len(each) != 1 or "" in each for each in roles):
        return None
    return [next(iter(each)) for each in roles]


def _attention_role(flow: Flow, branch: Branch, piece: Piece) -> str:
    scoring = branch.scoring
    if scoring is None:
        return ""
    ends = {"q": scoring.query, "k": scoring.key, "v": scoring.value}
    direct = [role for role, end in ends.items() if end is not None and _reaches(flow, piece, end)]
    if direct:
        return direct[0] if len(direct) == 1 else ""
    if flow.depends(piece.value, scoring.result):
        return "o" if _reaches(flow, piece, branch.update) else ""
    later = [role for role, end in ends.items() if end is not None and flow.depends(end, piece.use)]
    return {"q": "q_latent", "k": "k_latent", "v": "v_latent", "kv": "kv_latent"}.get("".join(later), "")


def _mlp_role(flow: Flow, branch: Branch, parts: dict[int, list[Piece]], piece: Piece, width: int) -> str:
    if branch.kind != "mlp":
        return ""
    choices = [value.index for value in flow.values[piece.use :] if value.op in _CHOICES]
    if any(_reaches(flow, piece, choice) for choice in choices):
        return "router"
    if _reaches(flow, piece, branch.update):
        return "down" if width == flow.values[branch.update].shape[-1] else ""
    for value in flow.between(piece.value, branch.update):
        if value.op == "mul" and len(value.inputs) == 2 and all(flow.live[one] for one in value.inputs):
            if role := _gating_role(flow, parts, piece, value.inputs):
                return role if role != "unclear" else ""
    return "up"


def _gating_role(flow: Flow, parts: dict[int, list[Piece]], piece: Piece, factors: tuple[int, ...]) -> str:
    """Say on which side of an elementwise product of two pieces one is; nothing if it is no such product."""
    sides = [
        {each.value for some in parts.values() for each in some if _reaches(flow, each, factor)} for factor in factors
    ]
    if not sides[0] or not sides[1] or sides[0] & sides[1] or piece.value not in sides[0] | sides[1]:
        return ""
    bent = [any(_bends(flow, one, factor) for one in side) for side, factor in zip(sides, factors, strict=True)]
    if bent[0] == bent[1]:
        return "unclear"
    return "gate" if bent[0 if piece.value in sides[0] else 1] else "up"


def _bends(flow: Flow, start: int, end: int) -> bool:
    """Whether something that is not linear stands between two values."""
    plain = LAYOUT | {"_to_copy", "add"}
    return any(value.op not in plain and not _scales(flow, value.index) for value in flow.between(start, end))


def _scales(flow: Flow, index: int) -> bool:
    value = flow.values[index]
    return value.op in ("mul", "div") and sum(flow.live[one] for one in value.inputs) == 1


def _reaches(flow: Flow, piece: Piece, end: int) -> bool:
    """Whether a piece gets to a value without passing a product with weights."""
    if piece.value == end:
        return True
    if not flow.depends(end, piece.use):
        return False
    before, weighs = flow.ancestors[end], flow.weighs
    stack, seen = [piece.use], set()
    while stack:
        one = stack.pop()
        if one in seen or not before >> one & 1 or weighs[one]:
            continue
        if one == end:
            return True
        seen.add(one)
        stack += flow.uses[one]
    return False


def _shares(weights: Weights, roles: list[str], flow: Flow) -> Iterator[Share]:
    by_row = sorted(zip(weights.rows, roles, range(len(roles)), strict=True))
    runs = [(role, [row for row, _, _ in run]) for role, run in groupby(by_row, key=lambda one: one[1])]
    for role, rows in runs:
        whole = len(runs) == 1
        yield Share(weights.name, role, weights.axis, None if whole else (rows[0], rows[-1] + 1))
        if weights.bias:
            yield Share(weights.bias, f"{role}_bias", 0, None if whole else (rows[0], rows[-1] + 1))
