"""Where a sub-layer stands: the plain numbers from which placements and initialisations compute constants."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

StackName: TypeAlias = Literal["encoder", "decoder"]
SubLayerName: TypeAlias = Literal["attn", "cross", "mlp"]


@dataclass(frozen=True, kw_only=True)
class Where:
    """The address of a sub-layer.

    Attributes:
        stack: the stack that the block belongs to.
        layer: the block's number, 1 to ``depth``.
        depth: L, the number of blocks of this stack.
        sublayer: ``attn`` mixes positions, ``cross`` also reads another sequence, ``mlp`` does neither.
        index: the sub-layer's number in its stack, 1 to ``depth · sublayers``.
        sublayers: the number of sub-layers in a block.
        encoder_depth: blocks of the encoder, 0 where there is none.
        decoder_depth: blocks of the decoder, 0 where there is none.
        width: d, the number of features.
    """

    stack: StackName
    layer: int
    depth: int
    sublayer: SubLayerName
    index: int
    sublayers: int
    encoder_depth: int
    decoder_depth: int
    width: int

    @property
    def starts_block(self) -> bool:
        """Whether it is its block's first."""
        return (self.index - 1) % self.sublayers == 0
