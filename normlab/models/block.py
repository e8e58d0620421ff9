"""A block: its sub-layers, one after the other or side by side."""

from typing import cast

from jaxtyping import Float
from torch import Tensor, nn

from normlab.models.sublayer import SubLayer
from normlab.spec import ModelSpec
from normlab.where import StackName


class Block(nn.Module):
    """The sub-layers of one block, in turn; :class:`~normlab.models.sublayer.SubLayer` reads its placement.

    Args:
        spec: the model that it belongs to.
        stack: the stack that it stands in.
        layer: its number, from 1.
    """

    sublayer: type[SubLayer] = SubLayer

    def __init__(self, spec: ModelSpec, stack: StackName, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.sublayers = nn.ModuleDict(
            {name: self.sublayer(spec, spec.where(stack, layer, name)) for name in spec.sublayers(stack)}
        )

    def forward(
        self, x: Float[Tensor, "batch token width"], memory: Float[Tensor, "batch source width"] | None = None
    ) -> Float[Tensor, "batch token width"]:
        """Return the stream after the block."""
        block_input = x
        for sublayer in self.sublayers.values():
            x = sublayer(x, block_input, memory)
        return x


class ParallelBlock(Block):
    """x ← N_outer(a·x + u_attn(x) + u_mlp(x)): both sub-layers read the block's input, and there is one sum.

    Source: Wang and Komatsuzaki 2021 (GPT-J); with a norm for each branch as in GPT-NeoX.
    """

    def forward(
        self, x: Float[Tensor, "batch token width"], memory: Float[Tensor, "batch source width"] | None = None
    ) -> Float[Tensor, "batch token width"]:
        """Return the stream after the block."""
        attention, mlp = cast(SubLayer, self.sublayers["attn"]), cast(SubLayer, self.sublayers["mlp"])
        skip, update = attention.branch(x, x)
        waiting = update if attention.add is None else attention.add(skip, update)
        skip, update = mlp.branch(x, x)
        return mlp.join(skip, waiting + update)
