"""What becomes of a placement as the depth grows without bound."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from normlab.errors import SpecError
from normlab.spec import ModelSpec
from normlab.theory.backward import at_embedding, at_streams, step_back
from normlab.theory.forward import Forward, forward
from normlab.theory.geometry import averages, of_random
from normlab.theory.head import head
from normlab.theory.laws import Law, law
from normlab.theory.propagation import end_to_end
from normlab.theory.reasons import NoTheory

#: Depths at which the recursion is run.
DEPTHS: Final = (8, 16, 32, 64, 128, 256, 512)

#: What is followed, in the order of the table.
FOLLOWED: Final[Mapping[str, str]] = {
    "stream": "mean square of the stream after block L",
    "last_gradient": "gradient of W_down of block L",
    "first_gradient": "gradient of W_down of block 1",
    "stream_gradient": "gradient at the stream that block 1 receives",
    "apjn": "E‖∂x_L/∂x_0‖²/(n d)",
    "descent_step": "loss lost by a step of gradient descent of the blocks, over its rate",
    "sign_step": "loss lost by a step of signs (Adam's first) of the blocks, over its rate",
}


@dataclass(frozen=True)
class Exponents:
    """The laws of a placement.

    Attributes:
        spec: the model; its own depth does not matter.
        tokens: positions of a sequence.
        depths: depths at which the recursion stayed in its range.
        values: what it gave there, by what is followed.
        laws: the law of each.
    """

    spec: ModelSpec
    tokens: int
    depths: tuple[int, ...]
    values: Mapping[str, tuple[float, ...]]
    laws: Mapping[str, Law]

    def __getitem__(self, name: str) -> Law:
        return self.laws[name]

    def __str__(self) -> str:
        width = max(map(len, FOLLOWED.values()))
        return "\n".join(f"{FOLLOWED[name]:<{width}}  {found}" for name, found in self.laws.items())


def exponents(spec: ModelSpec, *, tokens: int = 64, depths: tuple[int, ...] = DEPTHS) -> Exponents:
    """Run the recursion of averages at growing depths and name the law of what it gives.

    Placements and initialisations that depend on the depth are built anew for each.

    Args:
        spec: the model; its depth is replaced.
        tokens: positions of a random sequence.
        depths: depths to run at, growing.

    Raises:
        SpecError: the spec lists a placement for each block, so that it has one depth only.
    """
    if not isinstance(spec.placement, str):
        raise SpecError("the placement is a list with one name a block: give one name, which can be had at any depth")
    reached: list[int] = []
    found: list[dict[str, float]] = []
    reason = ""
    for depth in depths:
        try:
            found.append(_at(replace(spec, depth=depth), tokens))
        except NoTheory as why:
            reason = str(why)
            break
        reached.append(depth)
    values = {name: tuple(one[name] for one in found) for name in FOLLOWED}
    laws = {name: _law(reached, values[name], reason) for name in FOLLOWED}
    return Exponents(spec, tokens, tuple(reached), values, laws)


def _law(depths: list[int], values: tuple[float, ...], reason: str) -> Law:
    # The first depths tell more about how a law begins than how it ends.
    last = law(depths[-7:], values[-7:])
    return replace(last, reason=reason) if last.name == "no theory" and reason else last


def _at(spec: ModelSpec, tokens: int) -> dict[str, float]:
    geometry = averages(of_random(1, tokens, spec.vocab))
    # The law as L → ∞ is that of an infinite width: shares of order 1/d would grow into exponentials of their own.
    walked = forward(spec, geometry, finite=False)
    if walked.broken:
        raise NoTheory(walked.broken)
    gradients = _gradients(walked)
    growth = dict(end_to_end(walked)).get(0, float("nan"))
    return {"stream": geometry.mean_square(walked.steps[-1].stream), **gradients, "apjn": growth}


def _gradients(walked: Forward) -> dict[str, float]:
    geometry = walked.geometry
    state = at_streams(walked, head(walked.spec, walked.out, geometry).gradient)
    down: list[float] = []
    descent = signs = 0.0
    for step in reversed(walked.steps):
        state, back = step_back(step, state)
        for role, (inputs, outputs) in walked.spec.matrices(step.where.sublayer).items():
            square = max(geometry.total(back.roles[role]), 0.0) if role in back.roles else 0.0
            descent += square
            signs += float(np.sqrt(2 / np.pi * inputs * outputs * square))
        if "down" in back.roles:
            down.append(float(np.sqrt(max(geometry.total(back.roles["down"]), 0.0))))
    start = float(np.sqrt(geometry.trace(at_embedding(walked, state))))
    gradients = {"last_gradient": down[0], "first_gradient": down[-1], "stream_gradient": start}
    return gradients | {"descent_step": descent, "sign_step": signs}
