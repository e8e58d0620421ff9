"""Finding a model's residual streams from one traced batch."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from normlab.recording.compiled import uncompiled
from normlab.recording.discovery.architecture import Architecture, Borrowed, FoundNorm, FoundStack
from normlab.recording.discovery.channels import CHANNELS_FIRST, has_channels_first
from normlab.recording.discovery.example import example_of
from normlab.recording.discovery.found import positions, stack_of
from normlab.recording.discovery.layers import Row, row_of
from normlab.recording.discovery.mixing import SPECTRAL, looks_ahead
from normlab.recording.discovery.parameters import parameters_of
from normlab.recording.discovery.showing import Ports, tokens_of
from normlab.recording.discovery.sites import Part, stack_sites
from normlab.recording.discovery.skipped import skipped_blocks
from normlab.recording.discovery.steps import Tracks
from normlab.recording.discovery.sums import chains
from normlab.recording.discovery.trace import trace
from normlab.recording.generic import packed
from normlab.recording.plan import Absent, Address, Observed, Parameter, Residual, SitePlan


def discover(model: nn.Module, example: Any = None) -> Architecture:
    """Find blocks, sub-layers, norms and residual streams of any model by its data flow.

    The model runs once, without gradients; buffers and random states are as before afterwards. Names play no
    part: a residual sum is a sum one of whose terms was computed from the other by way of a matrix product
    with weights, and a norm is what gives the same result for a token and for the same token times 2.

    ::

        found = nl.discover(model)
        print(found)
        with nl.record(model, sites=found.plan) as recorder:
            ...

    Args:
        model: any module.
        example: a batch: a tensor, a tuple of positional arguments or a dictionary of keyword arguments. For
            models of the zoo and of transformers a small one is made if none is given.

    Returns:
        What was found; what could not be decided is ``unknown``, with the reason.

    Raises:
        RecordingError: there is no example and none can be made.
    """
    model = uncompiled(model)
    args, kwargs = arguments(example_of(model) if example is None else example)
    return described(model, args, kwargs)


def arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and keyword arguments of a batch."""
    if isinstance(example, Mapping):
        return (), {str(name): value for name, value in example.items()}
    return (tuple(example) if isinstance(example, tuple | list) else (example,)), {}


def described(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Architecture:
    """Find what :func:`discover` finds for a model that is called with these arguments."""
    tracks = Tracks(trace(model, args, kwargs), model)
    name = type(model).__name__
    rows = _named(tracks, [row_of(tracks, chain) for chain in chains(tracks)])
    stacks = tuple(
        _if_whole(tracks, rows, number, stack_of(tracks, row, stack)) for number, (stack, row) in enumerate(rows)
    )
    back_to_back = _back_to_back(tracks)
    if not rows:
        norms = tuple(FoundNorm(norm.path, "other", norm.kind) for norm in tracks.norms)
        reason = (
            "no sum of whole tensors was found of which all but one term were computed from that one by way of a "
            "matrix; sums by indices, into parts of a tensor or within a product are not looked at"
        )
        return Architecture(name, (), norms, back_to_back, reason)
    borrowed, plan = _plan(tracks, rows)
    skipped = tuple(skipped_blocks(tracks.flow, tracks.model, [norm.path for norm in tracks.norms]))
    training = tracks.flow.training
    norms = _norms(tracks, rows)
    return Architecture(name, stacks, norms, back_to_back, "", tuple(_borrowed(borrowed)), plan, skipped, training)


def _named(tracks: Tracks, rows: list[Row]) -> list[tuple[str, Row]]:
    """Name the stacks: in an encoder tokens depend on later ones, and nothing reads another sequence."""
    found: dict[str, Row] = {}
    for row in rows:
        name = "decoder" if _decodes(tracks, row) else "encoder"
        number = 1 + sum(other.split("-")[0] == name for other in found)
        found[name if number == 1 else f"{name}-{number}"] = row
    return list(found.items())


def _if_whole(tracks: Tracks, rows: list[tuple[str, Row]], number: int, stack: FoundStack) -> FoundStack:
    """Return a stack, of unknown placement if it may be the rest of another one, whose stream goes on in it."""
    flow, own = tracks.flow, rows[number][1]
    for name, other in rows[:number]:
        last = other.places[-1].stream
        before, after = flow.values[last].shape, flow.values[own.start].shape
        alike = (len(before), before[0], before[-1]) == (len(after), after[0], after[-1])
        if alike and flow.depends(own.start, last):
            between = list(flow.between(last, own.start))
            if between and not any(flow.weighs[value.index] or value.op in SPECTRAL for value in between):
                by = next((one.op for one in reversed(between) if flow.unchanged(one.index) is None), "")
                how = {"written": "a change of parts in place", "": "a change of layout"}.get(by, by)
                reason = f"{how} makes its stream of that of {name}, so that both may be one"
                return replace(stack, placement="unknown", reason=reason)
    return stack


def _decodes(tracks: Tracks, row: Row) -> bool:
    branches = [branch for place in row.places for branch in place.branches]
    if any(branch.kind == "cross" for branch in branches):
        return True
    flow = tracks.flow
    scorings = [(branch.scoring.result, branch.update) for branch in branches if branch.scoring is not None]
    if not scorings:
        return not any(looks_ahead(flow, branch.base, branch.update) for branch in branches if branch.kind == "attn")
    in_windows = False
    for branch in branches:
        if branch.scoring is None:
            continue
        result, rows = branch.scoring.result, flow.values[branch.scoring.query].shape[-2]
        for index in (result, *(value.index for value in flow.between(result, branch.update))):
            if index not in flow.causal:
                continue
            if index == result or flow.values[index].shape[-2] == rows:
                return flow.causal[index]
            in_windows = True
    if in_windows:
        # Weights by the distance to a token, as of Longformer: their last axes are no queries and keys, and its
        # windows, masked at the ends of the text, reach to both sides.
        return False
    result, update = scorings[0]
    return any(value.op in ("tril", "triu", "le", "ge") and flow.depends(update, value.index) for value in flow.values)


def _norms(tracks: Tracks, rows: list[tuple[str, Row]]) -> tuple[FoundNorm, ...]:
    """Return every norm that ran, in the order in which they ran."""
    known: dict[int, str] = {}
    for _, row in rows:
        known |= {norm.given: "embed" for norm in tracks.back(row.start).norms}
        for place in row.places:
            for branch in place.branches:
                known |= {norm.given: position for norm, position in positions(tracks, place, branch)}
        known |= {} if row.final is None else {row.final.given: "final"}
    return tuple(FoundNorm(norm.path, known.get(norm.given, "other"), norm.kind) for norm in tracks.norms)


def _back_to_back(tracks: Tracks) -> tuple[tuple[str, str], ...]:
    """Return the paths of norms of which the second takes what the first gives."""
    given = {tracks.flow.same(norm.given): norm.path for norm in tracks.norms}
    pairs = ((given.get(tracks.flow.same(norm.taken)), norm.path) for norm in tracks.norms)
    return tuple((first, second) for first, second in pairs if first is not None)


def _borrowed(found: Iterable[tuple[Address, Parameter]]) -> Iterator[Borrowed]:
    for at, own in found:
        there = own.address
        if None not in (at.layer, there.layer) and (at.stack, at.layer) != (there.stack, there.layer):
            yield Borrowed(at.stack, at.layer, at.sublayer, own.role, there.stack, there.layer)


def _plan(tracks: Tracks, rows: list[tuple[str, Row]]) -> tuple[tuple[tuple[Address, Parameter], ...], SitePlan]:
    parts: list[Part] = []
    for name, row in rows:
        parts += _sites(tracks, name, row)
    owned = parameters_of(tracks, rows, tracks.model)
    return owned.borrowed, SitePlan(
        observed=tuple(part for part in parts if isinstance(part, Observed)),
        residuals=tuple(part for part in parts if isinstance(part, Residual)),
        absent=(*(part for part in parts if isinstance(part, Absent)), *packed(tracks.model)),
        parameters=owned.parameters,
    )


def _sites(tracks: Tracks, name: str, row: Row) -> list[Part]:
    flow = tracks.flow
    if has_channels_first(tracks, row):
        return [Absent(Address(name, site="stream"), CHANNELS_FIRST)]
    streams = [row.start, *(place.stream for place in row.places), *(place.sum.total for place in row.places)]
    scorings = [branch.scoring for place in row.places for branch in place.branches if branch.scoring is not None]
    lengths = [flow.values[scoring.query].shape[-2] for scoring in scorings]
    tokens = tokens_of(flow, streams, lengths, _tokens_first(tracks.model))
    return [] if tokens is None else list(stack_sites(tracks, row, name, Ports(flow, tokens)))


def _tokens_first(model: nn.Module) -> bool:
    return any(not module.batch_first for module in model.modules() if isinstance(module, nn.MultiheadAttention))
