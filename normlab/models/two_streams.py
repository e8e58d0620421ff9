"""The topology with a second residual stream (ResiDual)."""

from jaxtyping import Float
from torch import Tensor

from normlab.models.add import Add
from normlab.models.block import Block
from normlab.models.stack import Stack
from normlab.models.sublayer import SubLayer
from normlab.placements import Wiring
from normlab.spec import ModelSpec
from normlab.where import StackName, Where


class TwoStreamSubLayer(SubLayer):
    """x ← N(x + F(x)),  y ← y + κ · F(x): the first stream is normed, the second only grows.

    Args:
        spec: the model that it belongs to.
        where: its address.
    """

    def __init__(self, spec: ModelSpec, where: Where) -> None:
        super().__init__(spec, where)
        self.second_add = Add()

    def forward(  # type: ignore[override]
        self,
        x: Float[Tensor, "batch token width"],
        second: Float[Tensor, "batch token width"],
        block_input: Float[Tensor, "batch token width"],
        memory: Float[Tensor, "batch source width"] | None = None,
    ) -> tuple[Float[Tensor, "batch token width"], Float[Tensor, "batch token width"]]:
        """Return both streams after the sub-layer."""
        skip, update = self.branch(x, block_input, memory)
        return self.join(skip, update), self.second_add(second, _weighted(self.wiring, update))


class TwoStreamBlock(Block):
    """A block that carries two streams."""

    sublayer = TwoStreamSubLayer

    def forward(  # type: ignore[override]
        self,
        x: Float[Tensor, "batch token width"],
        second: Float[Tensor, "batch token width"],
        memory: Float[Tensor, "batch source width"] | None = None,
    ) -> tuple[Float[Tensor, "batch token width"], Float[Tensor, "batch token width"]]:
        """Return both streams after the block."""
        block_input = x
        for sublayer in self.sublayers.values():
            x, second = sublayer(x, second, block_input, memory)
        return x, second


class TwoStreamStack(Stack):
    """out = x_S + N_final(y_S), with y_0 = κ · x_0.

    Source: Xie et al. 2023, arXiv 2304.14802.

    Args:
        spec: the model that it belongs to.
        name: ``decoder`` or ``encoder``.
    """

    block = TwoStreamBlock

    def __init__(self, spec: ModelSpec, name: StackName) -> None:
        super().__init__(spec, name)
        self.merge = Add()
        self.wiring = spec.wiring(spec.first(name))

    def run(
        self, x: Float[Tensor, "batch token width"], memory: Float[Tensor, "batch source width"] | None
    ) -> Float[Tensor, "batch token width"]:
        """Return what the head sees, given the embedded tokens."""
        second = _weighted(self.wiring, x)
        for block in self.blocks:
            x, second = block(x, second, memory)
        return self.merge(x, second if self.final_norm is None else self.final_norm(second))


def _weighted(wiring: Wiring, x: Tensor) -> Tensor:
    weight = wiring.second_stream
    return x if weight is None or weight == 1 else x * weight
