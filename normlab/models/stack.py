"""A stack: an embedding, blocks, and the final norm where there is one."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from normlab.models.block import Block, ParallelBlock
from normlab.models.embedding import Embedding
from normlab.spec import ModelSpec
from normlab.where import StackName


class Stack(nn.Module):
    """An embedding, blocks, and the final norm where there is one.

    Args:
        spec: the model that it belongs to.
        name: ``decoder`` or ``encoder``.
    """

    block: type[Block] = Block

    def __init__(self, spec: ModelSpec, name: StackName) -> None:
        super().__init__()
        block = ParallelBlock if spec.parallel else self.block
        self.embedding = Embedding(spec, spec.embedding_scale(name))
        self.blocks = nn.ModuleList(block(spec, name, layer) for layer in range(1, spec.stacks[name] + 1))
        self.final_norm = spec.build_norm(spec.width) if spec.has_final_norm else None

    def forward(
        self, tokens: Int[Tensor, "batch token"], memory: Float[Tensor, "batch source width"] | None = None
    ) -> Float[Tensor, "batch token width"]:
        """Return what the head sees, or the decoder's cross-attention."""
        return self.run(self.embedding(tokens), memory)

    def run(
        self, x: Float[Tensor, "batch token width"], memory: Float[Tensor, "batch source width"] | None
    ) -> Float[Tensor, "batch token width"]:
        """Return what the head sees, given the embedded tokens."""
        for block in self.blocks:
            x = block(x, memory)
        return x if self.final_norm is None else self.final_norm(x)
