"""All sub-layers of a stack on the way forward: one by one, or those that are alike at once.

Only the streams (:func:`~normlab.theory.sublayer.passed`) and two numbers of their scatter have to be followed one by
one. At once, the streams' states are stacked when all are known, and pass each kind of sub-layer a second time, in one
call for all of its layers.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from normlab.theory.copies import replace
from normlab.theory.geometry import Geometry
from normlab.theory.kernels import Array
from normlab.theory.norms import Norms
from normlab.theory.reasons import NoTheory
from normlab.theory.scatter import Adds, Scatter
from normlab.theory.stacked import stacked
from normlab.theory.state import State
from normlab.theory.step import Step, adds, levels, step_of
from normlab.theory.sublayer import Passed, Place, passed, places
from normlab.where import StackName

#: The covariance of an encoder's output, and its relative variance (S6).
Memory: TypeAlias = tuple[Array, float] | None
#: Of a stream before a sub-layer, at its sum, and behind it.
Scatters: TypeAlias = tuple[Scatter, Scatter, Scatter]
_Places: TypeAlias = NDArray[np.int64]


class Walk(NamedTuple):
    """The steps that were gone, what stands behind the last, and why there are no more."""

    steps: list[Step]
    state: State
    scatter: Scatter
    broken: str


def one_by_one(
    norms: Norms, stack: StackName, state: State, scatter: Scatter, geometry: Geometry, memory: Memory
) -> Walk:
    """Return a step for each sub-layer."""
    steps: list[Step] = []
    for number, place in enumerate(places(norms.spec, stack)):
        try:
            found = passed(norms, place, state, geometry, memory and memory[0])
        except NoTheory as reason:
            return Walk(steps, state, scatter, str(reason))
        means = levels(found, geometry)
        at_sum = scatter.after(adds(found, means, geometry) if norms.finite else None)
        behind = at_sum.normed if found.normed else at_sum
        steps.append(_step(found, np.array([number]), means, (scatter, at_sum, behind), geometry, memory))
        state, scatter = found.after, behind
    return Walk(steps, state, scatter, "")


def at_once(norms: Norms, stack: StackName, state: State, scatter: Scatter, geometry: Geometry, memory: Memory) -> Walk:
    """Return a step for each kind of sub-layer, whose entries have a first axis of layers."""
    every, states, broken = list(places(norms.spec, stack)), [state], ""
    try:
        for place in every:
            states.append(passed(norms, place, states[-1], geometry, memory and memory[0]).after)
    except NoTheory as reason:
        broken = str(reason)
    groups = _alike(every[: len(states) - 1])
    kinds = [(_one([every[at] for at in group]), stacked([states[at] for at in group])) for group in groups]
    found = [passed(norms, place, before, geometry, memory and memory[0]) for place, before in kinds]
    means = [levels(one, geometry) for one in found]
    more = [adds(one, mean, geometry) if norms.finite else None for one, mean in zip(found, means, strict=True)]
    scatters = _followed(scatter, groups, more, [one.normed for one in found])
    steps = [
        _step(one, group, mean, _of(scatters, group), geometry, memory)
        for one, group, mean in zip(found, groups, means, strict=True)
    ]
    if steps:
        scatter = Scatter(scatters[2].log[-1], float(scatters[2].rough[-1]))
    return Walk(steps, states[-1], scatter, broken)


def _alike(every: Sequence[Place]) -> list[_Places]:
    """Return the numbers of the places of each kind; the kind of the last place comes last."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for number, place in enumerate(every):
        groups[place.kind].append(number)
    return [np.array(group) for group in sorted(groups.values(), key=lambda group: group[-1])]


def _one(places: Sequence[Place]) -> Place:
    """Return places of one kind as one, with the address of the first."""
    first, wirings, gains = places[0], *zip(*((place.wiring, place.gains) for place in places), strict=True)
    return Place(first.where, stacked(wirings), stacked(gains))


def _followed(
    start: Scatter, groups: Sequence[_Places], more: Sequence[Adds | None], normed: Sequence[bool]
) -> Scatters:
    """Return the scatter of all sub-layers."""
    count = sum(map(len, groups))
    kept, fresh, rougher, norms = np.ones((count, 3)), np.zeros((count, 3)), np.zeros(count), np.zeros(count, bool)
    for group, one, ends in zip(groups, more, normed, strict=True):
        norms[group] = ends
        if one is not None:
            kept[group], fresh[group], rougher[group] = one
    before, at_sum = np.empty((count + 1, 3)), np.empty((count, 3))
    before[0] = start.log
    for number, ends in enumerate(norms.tolist()):
        at_sum[number] = log = kept[number] * before[number] + fresh[number]
        before[number + 1] = 0.0 if ends else log
    rough = np.cumsum(np.append(start.rough, rougher))
    return Scatter(before[:-1], rough[:-1]), Scatter(at_sum, rough[1:]), Scatter(before[1:], rough[1:])


def _of(scatters: Scatters, places: _Places) -> Scatters:
    before, at_sum, behind = scatters
    return before.of(places), at_sum.of(places), behind.of(places)


def _step(
    found: Passed,
    places: _Places,
    means: dict[str, Array],
    scatters: Scatters,
    geometry: Geometry,
    memory: Memory,
) -> Step:
    if found.place.where.sublayer != "mlp":
        rough = memory[1] if memory is not None and found.place.where.sublayer == "cross" else scatters[0].rough
        found = found._replace(mixer=replace(found.mixer, rough=rough))
    return step_of(found, places, means, *scatters, geometry)
