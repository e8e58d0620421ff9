"""From the blocks of a data flow to what is said about them."""

from collections.abc import Iterator, Sequence

import torch
from torch import nn

from normlab.recording.discovery.architecture import FoundNorm, FoundStack, FoundSubLayer
from normlab.recording.discovery.branch import Branch
from normlab.recording.discovery.channels import CHANNELS_FIRST, has_channels_first
from normlab.recording.discovery.layers import Place, Row
from normlab.recording.discovery.steps import Norm, Tracks
from normlab.recording.discovery.sums import gated

#: Placements by where norms stand: before the sub-layer, after it, on the sum.
_PLACEMENTS = {
    (False, False, False): "none",
    (True, False, False): "pre",
    (False, False, True): "post",
    (True, True, False): "peri",
    (False, True, False): "reordered",
}
_CLOSING = "a norm on the stream closes the block"
_BESIDE = "its update is not added to what the update before it was added to, as where streams go side by side"
_CARRIED = {
    "normed": "the normed stream",
    "stream+block_input": "the stream and the block's input",
    "gated": "the stream times what is computed from it",
}


def stack_of(tracks: Tracks, row: Row, name: str) -> FoundStack:
    """Describe a stack."""
    sublayers = tuple(_sublayer(tracks, row, place, branch) for place in row.places for branch in place.branches)
    placement, reason = _placement_of(sublayers)
    if row.beside:
        placement, reason = "unknown", _BESIDE
    if row.second:
        placement, reason = _of_two_streams(row, placement)
    final = None if row.final is None else FoundNorm(row.final.path, "final", row.final.kind)
    axis = -1
    if has_channels_first(tracks, row):
        placement, reason, axis = "unknown", CHANNELS_FIRST, 1
    width = tracks.flow.values[row.start].shape[axis]
    copies = _copies(tracks.model, [place.block for place in row.places])
    return FoundStack(
        name, row.depth, width, placement, reason, sublayers, final, copies, row.joined, row.chosen, row.entered
    )


def _sublayer(tracks: Tracks, row: Row, place: Place, branch: Branch) -> FoundSubLayer:
    norms = tuple(FoundNorm(norm.path, position, norm.kind) for norm, position in positions(tracks, place, branch))
    parallel = len(place.branches) > 1 or not tracks.flow.depends(branch.base, _stream_before(row, place))
    skip = _skip(tracks, row, place)
    placement, reason = _one_placement(branch, norms, skip, _closes(row, place))
    if place is not row.places[0] and not tracks.flow.depends(place.skip.start, _stream_before(row, place)):
        skip, placement, reason = "unknown", "unknown", _BESIDE
    return FoundSubLayer(
        place.layer,
        branch.kind,
        place.block,
        norms,
        skip,
        place.skip.factors,
        branch.after.outside,
        parallel,
        placement,
        reason,
        not branch.reads_stream,
        branch.scoring is not None,
        branch.after.inside,
        branch.before.outside,
        branch.before.inside,
    )


def _closes(row: Row, place: Place) -> bool:
    """Whether a norm on the sum is the block's: it stands on the last of its sums and on no other."""
    *others, last = [one for one in row.places if one.layer == place.layer]
    return bool(others) and place is last and last.outer is not None and all(one.outer is None for one in others)


def _stream_before(row: Row, place: Place) -> int:
    number = row.places.index(place)
    return row.places[number - 1].sum.total if number else row.start


def positions(tracks: Tracks, place: Place, branch: Branch) -> Iterator[tuple[Norm, str]]:
    """Yield the norms of a branch and on its sum, each with its position."""
    for norm in branch.before.norms:
        yield norm, "inner"
    for norm in branch.qk_norms:
        yield norm, "qk"
    for norm in branch.inner_norms:
        yield norm, _inside(tracks, branch, norm)
    for norm in branch.after.norms:
        yield norm, "output"
    if place.outer is not None:
        yield place.outer, "outer"


def _inside(tracks: Tracks, branch: Branch, norm: Norm) -> str:
    """Say what a norm inside a sub-layer stands before: the values, the last product, or another one."""
    flow, scoring = tracks.flow, branch.scoring
    if scoring is not None and scoring.value is not None and flow.depends(scoring.value, norm.given):
        if not any(flow.weighs[one.index] for one in flow.between(norm.given, scoring.value)):
            return "value"
    later = [one for one in branch.products if flow.depends(one, norm.given)]
    return "mid" if len(later) == 1 else "latent" if later else "other"


def _skip(tracks: Tracks, row: Row, place: Place) -> str:
    flow, start, base = tracks.flow, place.skip.start, tracks.flow.same(place.branches[0].base)
    if place.skip.norms:
        return "normed"
    if start == base:
        return "stream"
    terms = {flow.same(one) for one in flow.values[start].inputs}
    if flow.values[start].op == "add" and base in terms and len(terms) == 2:
        return "stream+block_input"
    if any(base in tracks.back(one).values for one in gated(flow, start)):
        return "gated"
    # A branch that reads an older stream than the one its update is added to.
    streams = {flow.same(one) for other in row.places for one in (other.sum.total, other.stream)}
    return "stream" if start in streams and flow.depends(start, base) else "unknown"


def _one_placement(branch: Branch, norms: Sequence[FoundNorm], skip: str, closes: bool) -> tuple[str, str]:
    if not branch.reads_stream:
        return "unknown", "something other than norms and factors stands between the stream and the first matrix"
    if not branch.reads_once:
        return "unknown", "some of its matrices and factors read the stream through other norms than others do"
    if skip == "unknown":
        return "unknown", "the skip is neither the stream nor a norm of it"
    where = {norm.position for norm in norms}
    switches = ("inner" in where, "output" in where, "outer" in where)
    if skip != "stream":
        known = f"as in {_PLACEMENTS[switches]}" if switches in _PLACEMENTS else "at " + " and ".join(sorted(where))
        return "unknown", f"norms {known}, but the skip carries {_CARRIED[skip]}"
    if switches not in _PLACEMENTS and closes and (inside := (*switches[:2], False)) in _PLACEMENTS:
        return _PLACEMENTS[inside], _CLOSING
    if switches not in _PLACEMENTS:
        return "unknown", "no known placement has norms at " + " and ".join(sorted(where))
    return _PLACEMENTS[switches], ""


def _placement_of(sublayers: Sequence[FoundSubLayer]) -> tuple[str, str]:
    """Return the placement of a stack, and what it mixes or why it is unknown."""
    unknown = next((part for part in sublayers if part.placement == "unknown"), None)
    if unknown is not None:
        return "unknown", f"block {unknown.layer}, {unknown.sublayer}: {unknown.reason}"
    found = dict.fromkeys(part.placement for part in sublayers)
    if any(part.reason for part in sublayers):
        return "mixed", f"{', '.join(found)}, and {_CLOSING}"
    parallel = {part.parallel for part in sublayers if part.sublayer != "cross"}
    if len(found) > 1 or len(parallel) > 1:
        return "mixed", ", ".join(found) + (", some parallel" if len(parallel) > 1 else "")
    (placement,) = found
    if parallel == {True}:
        return "parallel", "" if placement == "pre" else placement
    return placement, ""


def _of_two_streams(row: Row, placement: str) -> tuple[str, str]:
    """Return the placement of a stack whose updates also go into a second stream: ResiDual's if the first is Post."""
    if placement == "post" and len(row.second) == len(row.places):
        return "residual", "the updates are also added to a second stream without norms"
    return "unknown", f"the updates are also added to a second stream, and the first is of placement {placement}"


def _copies(model: nn.Module, blocks: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Return groups of blocks that are equal though not the same."""
    modules = [model.get_submodule(path) for path in dict.fromkeys(blocks)] if all(blocks) else []
    groups: list[list[int]] = []
    for number, module in enumerate(modules, 1):
        own = next((group for group in groups if _equal(modules[group[0] - 1], module)), None)
        if own is None:
            groups.append([number])
        else:
            own.append(number)
    return tuple(tuple(group) for group in groups if len(group) > 1)


def _equal(one: nn.Module, two: nn.Module) -> bool:
    first, second = dict(one.named_parameters()), dict(two.named_parameters())
    if not first or first.keys() != second.keys() or any(parameter.is_meta for parameter in first.values()):
        return False
    matrices = [name for name in first if first[name].dim() > 1]
    return bool(matrices) and all(
        first[name] is not second[name]
        and first[name].shape == second[name].shape
        and torch.equal(first[name], second[name])
        for name in (*matrices, *(name for name in first if name not in matrices))
    )
