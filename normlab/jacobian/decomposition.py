"""A sub-layer's Jacobian as what its residual sum says it is."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.jacobian.dense import dense
from normlab.jacobian.model_parts import Parts, Place


@dataclass(frozen=True, eq=False)
class Decomposition:
    """J = J_outer (J_skip + J_update): the stream after a sub-layer by the stream before it.

    Each factor is a dense Jacobian of its own, so that the equation is a check and no definition. With no outer norm
    J_outer = I, and where the skip is the stream itself J_skip = I: I + J_G of Pre-LN, J_N (I + J_F) of Post-LN.

    Attributes:
        jacobian: J = ∂(stream after)/∂(stream before), of the sub-layer as one function.
        outer: ∂(stream after)/∂(sum).
        skip: ∂skip/∂(stream before).
        update: ∂update/∂(stream before): J_G = b J_N′ J_F c J_N with the norms and scales that there are.
    """

    jacobian: Float[Tensor, "entries entries"]
    outer: Float[Tensor, "entries entries"]
    skip: Float[Tensor, "entries entries"]
    update: Float[Tensor, "entries entries"]

    @cached_property
    def rebuilt(self) -> Float[Tensor, "entries entries"]:
        """J_outer (J_skip + J_update)."""
        return self.outer @ (self.skip + self.update)

    @property
    def gap(self) -> float:
        """‖J − J_outer (J_skip + J_update)‖_F/‖J‖_F: rounding alone, if the equation holds."""
        return float(torch.linalg.norm(self.jacobian - self.rebuilt) / torch.linalg.norm(self.jacobian))


def decomposition(parts: Parts, layer: int, sublayer: str) -> Decomposition:
    """Take the Jacobians of a sub-layer, of its update, of its skip and of its outer norm.

    Args:
        parts: the parts of a model.
        layer: the block, from 1.
        sublayer: ``attn``, ``cross`` or ``mlp``.

    Raises:
        JacobianError: there is no such sub-layer, a tensor of it cannot be read, or there are more than 4096 entries.
    """
    before, after = parts.before(layer, sublayer), (layer, sublayer, "stream")
    jacobian = _between(parts, before, after)
    total = (layer, sublayer, "sum")
    outer = _between(parts, total, after) if parts.has(total) else torch.eye(len(jacobian), dtype=torch.float64)
    skip = _between(parts, before, (layer, sublayer, "skip"))
    return Decomposition(jacobian, outer, skip, _between(parts, before, (layer, sublayer, "update")))


def _between(parts: Parts, start: Place, end: Place) -> Tensor:
    part = parts.span(start, end)
    return dense(part, part.point)
