"""The walk back through a stack: step by step, or all at once where its sub-layers were carried together."""

from collections.abc import Iterator
from typing import NamedTuple

from normlab.theory.backward import Gradient, StepBack, step_back
from normlab.theory.elementwise import of_first
from normlab.theory.forward import Forward
from normlab.theory.kernels import Array
from normlab.theory.propagation import accompanied, growths
from normlab.theory.scan import scan


class Visit(NamedTuple):
    """One step on the way back: the gradient that comes to it, and those around it."""

    arrived: Array
    back: StepBack


class WayBack:
    """Visits the steps of a stack from the last to the first.

    Args:
        walked: the forward pass.
        state: the gradient at its end.
        jacobian: whether the two that Jacobians between layers begin with walk beside it (J1, J2).

    Attributes:
        end: the gradient before the first sub-layer; step by step, where the walk has come to.
        growth: what became of the two at the start of each block, from the last.
    """

    def __init__(self, walked: Forward, state: Gradient, *, jacobian: bool = False) -> None:
        self._walked, self._jacobian = walked, jacobian
        self.end = accompanied(state, walked.geometry) if jacobian else state
        self.growth: list[Array] = []
        self._arrived: list[Gradient] = []
        if walked.together and walked.steps:
            found = scan(walked.steps, self.end, walked.geometry.own if jacobian else None)
            self._arrived, self.end, self.growth = found

    def __iter__(self) -> Iterator[Visit]:
        """Yield the visits."""
        if self._walked.together:
            for step, state in zip(reversed(self._walked.steps), reversed(self._arrived), strict=True):
                yield Visit(state.x, step_back(step, state)[1])
            return
        for step in reversed(self._walked.steps):
            arrived = of_first(self.end.x, like=self._walked.out)
            self.end, back = step_back(step, self.end)
            yield Visit(arrived, back)
            if self._jacobian and step.where.starts_block:
                self.end, grown = growths(self.end, self._walked.geometry)
                self.growth.append(grown)
