"""The way back over averages through all sub-layers, where those that are alike are one step.

A sub-layer carries the few numbers of a gradient back by a linear map, but for the factor by which scatter changes what
goes through keys (A11). :func:`~normlab.theory.backward.within` makes the maps of all layers at once from unit vectors;
only their product has to be taken one by one.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from normlab.theory.backward import Gradient, into_block_input, within
from normlab.theory.copies import replace
from normlab.theory.kernels import Array
from normlab.theory.mixing import AttentionMap, grown
from normlab.theory.state import Link
from normlab.theory.step import Step

#: The parts of a gradient that there are, such as ``x`` and ``to_second.first``.
Names: TypeAlias = tuple[str, ...]


class Scan(NamedTuple):
    """Gradients on their way back.

    Attributes:
        arrived: the first one's at each step, with a first axis of layers.
        end: all of them before the first sub-layer.
        growth: of the others at the start of each block, from the last.
    """

    arrived: list[Gradient]
    end: Gradient
    growth: list[Array]


class _Maps(NamedTuple):
    """What the layers of a step do to vectors of some parts of a gradient.

    Attributes:
        names: the parts behind them.
        size: of the vectors behind them.
        layers: matrices, one a layer: the map; where products scatter what they add to it times the factor; and the two
            sums that give the factor.
        seen: places and vectors that came.
    """

    names: Names
    size: int
    layers: list[Array]
    seen: list[tuple[int, Array]]

    def back(self, layer: int, vectors: Array) -> Array:
        """Carry vectors, one a column, through a layer."""
        found: Array = self.layers[layer] @ vectors
        if len(found) == self.size:
            return found
        carried: Array = found[: self.size] + found[self.size : -2] * grown(found[-2], found[-1])
        return carried


def scan(steps: Sequence[Step], state: Gradient, anew: Array | None = None) -> Scan:
    """Carry gradients back through all sub-layers.

    Args:
        steps: those of a forward pass whose sub-layers were carried together.
        state: several gradients, one after the other.
        anew: with what the third of three begins anew behind each block, where that is read at its start.
    """
    homes = {int(place): (step, layer) for step in steps for layer, place in enumerate(step.places)}
    known: dict[tuple[int, Names], _Maps] = {}
    names, vectors = _vectors(state)
    growth: list[Array] = []
    for place in range(len(homes) - 1, -1, -1):
        step, layer = homes[place]
        key = id(step), names
        maps = known.get(key) or known.setdefault(key, _maps(step, names))
        maps.seen.append((layer, vectors))
        names, vectors = maps.names, maps.back(layer, vectors)
        if step.where.starts_block:
            if "direct" in names:
                names, vectors = _vectors(into_block_input(step, _gradient(names, vectors.T)))
            if anew is not None:
                growth.append(vectors[0, 1:].copy())
                vectors[:, 2] = 0.0
                vectors[:3, 2] = anew
    arrived = [
        _arrived(step, [(names, maps.seen) for (number, names), maps in known.items() if number == id(step)])
        for step in steps
    ]
    return Scan(arrived, _gradient(names, vectors.T), growth)


def _arrived(step: Step, seen: list[tuple[Names, list[tuple[int, Array]]]]) -> Gradient:
    """Return the first gradient at each layer; a part that did not come to one is 0 there."""
    every = list(dict.fromkeys(name for names, _ in seen for name in names))
    found = np.zeros((len(step.places), 3 * len(every)))
    for names, came in seen:
        columns = np.concatenate([3 * every.index(name) + np.arange(3) for name in names])
        layers = np.array([layer for layer, _ in came])
        found[layers[:, None], columns] = np.array([vectors[:, 0] for _, vectors in came])
    return _gradient(tuple(every), found)


def _maps(step: Step, names: Names) -> _Maps:
    mixer, layers = step.mixer, len(step.places)
    if not (isinstance(mixer, AttentionMap) and mixer.scatters):
        behind, maps, _ = _of_units(step, names)
        return _Maps(behind, maps.shape[1], list(maps), [])
    behind, maps, sums = _of_units(replace(step, mixer=replace(mixer, grown=0.0)), names)
    _, more, _ = _of_units(replace(step, mixer=replace(mixer, grown=1.0)), names)
    decide = [np.broadcast_to(one, (3 * len(names), layers)).T[:, None] for one in sums]
    return _Maps(behind, maps.shape[1], list(np.concatenate([maps, more - maps, *decide], axis=1)), [])


def _of_units(step: Step, names: Names) -> tuple[Names, Array, Any]:
    """Return what is behind the step of unit vectors: its names, a matrix for each layer, and the sums."""
    size, layers = 3 * len(names), len(step.places)
    after, back = within(step, _gradient(names, np.eye(size)[:, None]), parameters=False)
    parts = _parts(after)
    matrices = np.concatenate([np.broadcast_to(part, (size, layers, 3)) for part in parts.values()], axis=-1)
    return tuple(parts), np.ascontiguousarray(matrices.transpose(1, 2, 0)), back.sums


def _parts(state: Gradient) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for name, part in vars(state).items():
        if isinstance(part, Link):
            found |= {f"{name}.first": part.first, f"{name}.second": part.second}
        elif isinstance(part, np.ndarray):
            found[name] = part
    return found


def _vectors(state: Gradient) -> tuple[Names, Array]:
    """Return a gradient's parts as columns, one for each of several gradients."""
    parts = _parts(state)
    shape = np.atleast_2d(state.x).shape
    return tuple(parts), np.concatenate([np.broadcast_to(part, shape) for part in parts.values()], axis=1).T


def _gradient(names: Names, rows: Array) -> Gradient:
    """Return a gradient, given its parts one after the other along the last axis."""
    parts: dict[str, Any] = {name: rows[..., 3 * at : 3 * at + 3] for at, name in enumerate(names)}
    links = dict.fromkeys(name.partition(".")[0] for name in names if "." in name)
    parts |= {name: Link(parts.pop(f"{name}.first"), parts.pop(f"{name}.second")) for name in links}
    return Gradient(**parts)
