"""How a gradient's scatter follows from what all sub-layers do, and from what goes around them (S10)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from normlab.theory.backward import StepBack
from normlab.theory.copies import replace
from normlab.theory.elementwise import scaled
from normlab.theory.finite_width import at_norm, before, spread_of, sums
from normlab.theory.forward import Forward
from normlab.theory.geometry import Numbers
from normlab.theory.kernels import Array
from normlab.theory.scatter import Spread


class Passing:
    """What all sub-layers of a stack do, gathered on the way back and followed when it has been gone.

    Args:
        walked: the forward pass.
    """

    def __init__(self, walked: Forward) -> None:
        self._walked, count = walked, sum(len(step.places) for step in walked.steps)
        self._streams = np.full(count + 1, walked.of_embed.variance)
        for step in walked.steps:
            self._streams[step.places + 1] = step.of_stream.variance
        self._around = any(step.wiring.skip == "stream+block_input" for step in walked.steps)
        self._sums: list[Array | None] = [None] * count
        self._layers = np.empty((count, 7, 7))
        #: T and S of what leaves for the block's input, by place; and at that input of the rest and of both.
        self._leaves: dict[int, tuple[float, float]] = {}
        self._meets: dict[int, tuple[float, float, float, float]] = {}

    def see(self, back: StepBack, arrived: Array) -> None:
        """Take what is around a step, and the gradient that came to it."""
        step, geometry, width = back.step, self._walked.geometry, self._walked.spec.width
        places = step.places.tolist()
        if step.wiring.norms_stream and not step.waits:
            self._sums_at(places, at_norm(step.log, back.total, geometry))
        if step.wiring.skip == "stream+block_input":
            left = sums(scaled(step.wiring.skip_scale**2, back.total), geometry)
            self._leaves |= zip(places, _listed(left, len(places)), strict=True)
        elif step.where.starts_block and self._around:
            through = replace(back, before=_through_only(back))
            met = *sums(through.before, geometry), *sums(back.before, geometry)
            self._meets |= zip(places, _listed(met, len(places)), strict=True)
            back = through
        self._layers[step.places] = before(back, self._streams[step.places], arrived, width, geometry)

    def followed(self, scattering: Array) -> tuple[Spread, Spread, Spread]:
        """Return the spread of gradients behind all sub-layers, that at their sums, and that before the first."""
        behind, inside = np.empty((2, *self._layers.shape[:2]))
        around: tuple[tuple[float, float], Array] | None = None
        for place in range(len(behind) - 1, -1, -1):
            behind[place], norm = scattering, self._sums[place]
            inside[place] = scattering = scattering if norm is None else norm @ scattering
            scattering = self._layers[place] @ scattering
            if place in self._leaves:
                around = self._leaves[place], inside[place]
            elif around is not None and place in self._meets:
                scattering, around = _met(scattering, around, self._meets[place]), None
        return spread_of(behind), spread_of(inside), spread_of(scattering)

    def _sums_at(self, places: Sequence[int], matrices: Array) -> None:
        for place, matrix in zip(places, np.broadcast_to(matrices, (len(places), 7, 7)), strict=True):
            self._sums[place] = matrix


def _listed(sums: Sequence[Numbers], count: int) -> list[Any]:
    """Return numbers of each layer together."""
    return list(zip(*(np.broadcast_to(one, count).tolist() for one in sums), strict=True))


def _met(
    scattering: Array, around: tuple[tuple[float, float], Array], sums: tuple[float, float, float, float]
) -> Array:
    """Return it where it meets what went around: only its share has what was gathered since (S10)."""
    ((trace, joint), before), (own, shared, whole, both) = around, sums
    t, s = _share(own, trace, whole), _share(shared, joint, both)
    shares = np.array([t * t, t * s, s * s, 1.0, 1.0, t, 1.0])
    return before + shares * (scattering - before)


def _share(one: float, other: float, both: float) -> float:
    """Return the first's share of a sum of two, with half of what their product adds."""
    return min(max((1 + (one - other) / both) / 2, 0.0), 1.0)


def _through_only(back: StepBack) -> Array:
    """Return the gradient that comes through a sub-layer, without what went around it."""
    step = back.step
    inputs, *_ = step.mixer.backward(back.branch, roles=False)
    inside = step.inner.back(scaled(step.wiring.input_scale**2, inputs))
    return inside if step.wiring.skip == "none" else inside + scaled(step.wiring.skip_scale**2, back.total)
