"""The zoo's transformer."""

from normlab.models.add import Add, Defer
from normlab.models.attention import Attention
from normlab.models.block import Block, ParallelBlock
from normlab.models.build import build
from normlab.models.mlp import MLP
from normlab.models.stack import Stack
from normlab.models.sublayer import SubLayer
from normlab.models.transformer import Transformer
from normlab.models.two_streams import TwoStreamBlock, TwoStreamStack, TwoStreamSubLayer

__all__ = [
    "MLP",
    "Add",
    "Attention",
    "Block",
    "Defer",
    "ParallelBlock",
    "Stack",
    "SubLayer",
    "Transformer",
    "TwoStreamBlock",
    "TwoStreamStack",
    "TwoStreamSubLayer",
    "build",
]
