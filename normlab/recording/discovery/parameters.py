"""Stack, layer, sub-layer and role of every parameter of a model whose blocks are known."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from torch import nn

from normlab.recording.discovery.columns import weights_of
from normlab.recording.discovery.graph import LAYOUT, Flow, Value
from normlab.recording.discovery.layers import Place, Row
from normlab.recording.discovery.roles import Share, shares
from normlab.recording.discovery.steps import Norm, Tracks, Way
from normlab.recording.plan import Address, Parameter


class Owned(NamedTuple):
    """Where the parameters of a model belong.

    Attributes:
        parameters: every parameter once.
        borrowed: what sub-layers use of others: where a parameter is used too, and what it is at its own place.
    """

    parameters: tuple[Parameter, ...]
    borrowed: tuple[tuple[Address, Parameter], ...]


def parameters_of(tracks: Tracks, rows: Iterable[tuple[str, Row]], model: nn.Module) -> Owned:
    """Return every parameter once, and where else it is used.

    A parameter of a sub-layer whose role is not certain has the role ``other``, so that those of all its
    parameters together are right; one that belongs to no sub-layer has its name.
    """
    names: dict[int, list[str]] = {}
    for name, tensor in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(tensor), []).append(name)
    first = {name: each[0] for each in names.values() for name in each}
    found: dict[str, list[Parameter]] = {}
    borrowed: dict[tuple[Address, Parameter], None] = {}
    for name, row in rows:
        for parameters in (_of_stack(tracks, name, row), _others(tracks, name, row)):
            own: dict[str, list[Parameter]] = {}
            for parameter in parameters:
                known = found.get(first[parameter.name])
                parts = known or own.setdefault(first[parameter.name], [parameter])
                # What two branches share, as the norm of a parallel block, belongs to the first.
                if parameter.address != parts[0].address:
                    borrowed[parameter.address, parts[0]] = None
                elif known is None:
                    parts.append(parameter)
            found |= own
    _head(tracks, list(rows), found, first)
    rest = [Parameter(each[0], Address(name=", ".join(each)), "") for each in names.values() if each[0] not in found]
    every = (*(parameter for each in found.values() for parameter in dict.fromkeys(each)), *rest)
    return Owned(every, tuple(borrowed))


def _of_stack(tracks: Tracks, name: str, row: Row) -> Iterator[Parameter]:
    yield from _embedding(tracks, Address(name, 0, "embed"), row)
    for place in row.places:
        for branch in place.branches:
            at = place.address(name, branch)
            yield from (_parameter(share, at) for share in shares(tracks.flow, branch))
            for norm in (*branch.before.norms, *branch.qk_norms, *branch.inner_norms, *branch.after.norms):
                yield from _norm(norm, at)
            yield from _factors(branch.after, at)
        last = place.address(name, place.branches[-1])
        yield from _factors(place.skip, last)
        if place.outer is not None:
            yield from _norm(place.outer, last)
    if row.final is not None:
        yield from _norm(row.final, Address(name, row.depth, "final"))


def _others(tracks: Tracks, name: str, row: Row) -> Iterator[Parameter]:
    """Yield what the branches use besides; a parameter that several use belongs to the first."""
    flow, seen = tracks.flow, set()
    for place in row.places:
        for branch in place.branches:
            outside = [
                leaf.index for one in (branch.base, branch.memory) if one is not None for leaf in flow.leaves(one)
            ]
            for leaf in flow.leaves(branch.update):
                if leaf.kind == "parameter" and leaf.index not in outside and leaf.name not in seen:
                    seen.add(leaf.name)
                    yield Parameter(leaf.name, place.address(name, branch), "other")


def _parameter(share: Share, at: Address) -> Parameter:
    return Parameter(share.name, at, share.role, share.rows, share.axis)


def _norm(norm: Norm, at: Address) -> Iterator[Parameter]:
    for name, role in norm.roles:
        yield Parameter(name, at, role)


def _factors(way: Way, at: Address) -> Iterator[Parameter]:
    for name in (name for step in way.steps if step.what == "factor" for name in step.parameters):
        yield Parameter(name, at, "branch_scale")


def _embedding(tracks: Tracks, at: Address, row: Row) -> Iterator[Parameter]:
    flow = tracks.flow
    for norm in tracks.back(row.start).norms:
        yield from _norm(norm, at)
    for value in flow.values[: row.start + 1]:
        if flow.depends(row.start, value.index):
            yield from _table(flow, value, at)


def _table(flow: Flow, value: Value, at: Address) -> Iterator[Parameter]:
    """Yield the table of an embedding; one whose rows are taken in a row, or added as they are, is of positions."""
    if value.op in ("embedding", "index") and flow.values[value.inputs[0]].kind == "parameter":
        table, indices = flow.values[value.inputs[0]], value.inputs[1]
        # Without entries, on the device meta, only what made them tells.
        counts = value.index in flow.counting or any(one.op in ("arange", "cumsum") for one in flow.made_of(indices))
        if flow.live[value.index] and value.index not in flow.counting:
            yield Parameter(table.name, at, "embed")
        elif counts:
            yield Parameter(table.name, at, "position")
    elif value.op == "add" and len(value.inputs) == 2:
        for one, other in (value.inputs, value.inputs[::-1]):
            leaves = [leaf for leaf in flow.leaves(other) if leaf.kind == "parameter"]
            laid = all(made.kind != "op" or made.op in LAYOUT for made in flow.made_of(other))
            if flow.live[one] and laid and len(leaves) == 1 and len(leaves[0].shape) > 1:
                yield Parameter(leaves[0].name, at, "position")


def _head(
    tracks: Tracks, rows: list[tuple[str, Row]], found: dict[str, list[Parameter]], first: dict[str, str]
) -> None:
    """Add the head: the last product with weights, if it takes what the last stack gives."""
    flow = tracks.flow
    name, row = rows[-1]
    last: Place = row.places[-1]
    stream = flow.same(last.stream if row.final is None else row.final.given)
    products = [value.index for value in flow.values[stream + 1 :] if flow.weighs[value.index]]
    products = [one for one in products if flow.depends(one, stream)]
    weights = weights_of(flow, products[-1]) if products else None
    if weights is None:
        return
    parameter = first[weights.name]
    if parameter in found and {one.role for one in found[parameter]} == {"embed"}:
        found[parameter] = [Parameter(parameter, found[parameter][0].address, "embed+head")]
    elif parameter not in found and len(weights.rows) != flow.values[stream].shape[-1]:
        at = Address(name, row.depth, "head")
        found[parameter] = [Parameter(parameter, at, "head")]
        if weights.bias and first[weights.bias] not in found:
            found[first[weights.bias]] = [Parameter(first[weights.bias], at, "head_bias")]
