"""What becomes of a placement as the depth grows without bound."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from normlab.errors import SpecError
from normlab.spec import ModelSpec
from normlab.theory.backward import Gradient, at_embedding, at_streams
from normlab.theory.batches import geometry_of
from normlab.theory.elementwise import of_first, over_layers
from normlab.theory.forward import Forward, forward
from normlab.theory.geometry import averages
from normlab.theory.head import head
from normlab.theory.kernels import Array
from normlab.theory.laws import Law, law
from normlab.theory.reasons import NoTheory
from normlab.theory.way_back import WayBack

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
            values, without = _at(replace(spec, depth=depth), tokens)
        except NoTheory as why:
            reason = reason or str(why)
            break
        found.append(values)
        reason = reason or without
        reached.append(depth)
    curves = {name: tuple(one[name] for one in found) for name in FOLLOWED}
    laws = {name: _law(reached, curves[name], reason) for name in FOLLOWED}
    return Exponents(spec, tokens, tuple(reached), curves, laws)


def _law(depths: list[int], values: tuple[float, ...], reason: str) -> Law:
    # The first depths tell more about how a law begins than how it ends.
    last = law(depths[-7:], values[-7:])
    return replace(last, reason=reason) if last.name == "no theory" and reason else last


def _at(spec: ModelSpec, tokens: int) -> tuple[dict[str, float], str]:
    """Return what is followed at one depth, and why gradients are not where the loss has no theory."""
    geometry = averages(geometry_of(spec, 1, tokens))
    # The law as L → ∞ is that of an infinite width: shares of order 1/d would grow into exponentials of their own.
    walked = forward(spec, geometry, finite=False, together=True)
    if walked.broken:
        raise NoTheory(walked.broken)
    try:
        gradients, reason = _gradients(walked), ""
    except NoTheory as why:
        gradients, reason = dict.fromkeys(FOLLOWED, float("nan")), str(why)
    way = WayBack(walked, Gradient(geometry.own))
    grown = float(geometry.mean_square(of_first(at_embedding(walked, way.end), like=walked.out)))
    return {**gradients, "stream": geometry.mean_square(walked.last), "apjn": grown}, reason


def _gradients(walked: Forward) -> dict[str, float]:
    """Walk back through all stacks; what is said of single blocks is said of the last stack's."""
    loss = head(walked)
    down, start, sent, descent, signs = _walked_back(walked, at_streams(walked, loss.gradient, loss.lost))
    if walked.source is not None:
        *_, more, further = _walked_back(walked.source, at_streams(walked.source, sent))
        descent, signs = descent + more, signs + further
    gradients = {"last_gradient": float(down[-1]), "first_gradient": float(down[0]), "stream_gradient": start}
    return gradients | {"descent_step": descent, "sign_step": signs}


def _walked_back(walked: Forward, state: Gradient) -> tuple[Array, float, Array, float, float]:
    """Return gradients of W_down by block, that at the start, what the source gets, and both steps."""
    geometry, sent = walked.geometry, 0 * walked.out
    way, down = WayBack(walked, state), np.zeros(walked.spec.stacks[walked.stack])
    descent = signs = 0.0
    for _, back in way:
        for role, (inputs, outputs) in walked.spec.matrices(back.step.where.sublayer).items():
            squares = np.maximum(geometry.total(back.roles[role]), 0.0) if role in back.roles else np.zeros(1)
            descent += float(squares.sum())
            signs += float(np.sqrt(2 / np.pi * inputs * outputs * squares).sum())
            if role == "down":
                down[back.step.layers - 1] = np.sqrt(squares)
        sent = sent if back.memory is None else sent + over_layers(back.memory, like=sent)
    start = of_first(at_embedding(walked, way.end), like=walked.out)
    return down, float(np.sqrt(geometry.trace(start))), sent, descent, signs
