"""The transformer that is built from a spec."""

from collections.abc import Iterator
from typing import cast

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from normlab.errors import DataError
from normlab.models.block import Block
from normlab.models.linear import Linear
from normlab.models.stack import Stack
from normlab.models.sublayer import SubLayer
from normlab.models.two_streams import TwoStreamStack
from normlab.spec import ModelSpec
from normlab.where import StackName

#: What an encoder-decoder's decoder receives at its first position.
START_TOKEN = 0


class CrossEntropy(nn.Module):
    """Mean over all positions of −log softmax(logits)[target], in nats; a module so that it can be observed."""

    def forward(
        self, logits: Float[Tensor, "batch token vocab"], targets: Int[Tensor, "batch token"]
    ) -> Float[Tensor, ""]:
        """Return the loss."""
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Transformer(nn.Module):
    """A transformer of the zoo. Build it with :func:`normlab.build`, which also fills its weights.

    A decoder reads tokens under a causal mask, an encoder without a mask. An encoder-decoder encodes the
    tokens and decodes the targets shifted by one position (teacher forcing); the first is token 0.

    Args:
        spec: everything about it.
    """

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        stack = TwoStreamStack if spec.two_streams else Stack
        self.stacks = nn.ModuleDict({name: stack(spec, name) for name in spec.stacks})
        self.head = Linear(spec.width, spec.vocab, bias=False)
        if spec.tie_embeddings:
            self.head.weight = self.stack(list(spec.stacks)[-1]).embedding.token
        self.criterion = CrossEntropy()

    def forward(
        self, tokens: Int[Tensor, "batch token"], targets: Int[Tensor, "batch token"] | None = None
    ) -> Float[Tensor, "batch token vocab"]:
        """Return the logits; an encoder-decoder also needs ``targets``.

        Raises:
            DataError: the tokens do not fit the vocabulary or the context, or targets are missing.
        """
        return self.head(self.features(tokens, targets))

    def features(
        self, tokens: Int[Tensor, "batch token"], targets: Int[Tensor, "batch token"] | None = None
    ) -> Float[Tensor, "batch token width"]:
        """Return what the head sees: the last stack's stream, after the final norm where there is one.

        Raises:
            DataError: the tokens do not fit the vocabulary or the context, or targets are missing.
        """
        if tokens.dim() != 2:
            raise DataError(f"tokens have the shape {tuple(tokens.shape)}: give [batch, token]")
        if self.spec.kind != "encoder-decoder":
            return next(iter(self.stacks.values()))(tokens)
        if targets is None:
            raise DataError("an encoder-decoder also decodes: call it with tokens and targets")
        return self.stacks["decoder"](shifted(targets), self.stacks["encoder"](tokens))

    def stack(self, name: StackName) -> Stack:
        """Return the stack ``name``."""
        return cast(Stack, self.stacks[name])

    def sublayers(self, name: StackName) -> Iterator[tuple[str, SubLayer]]:
        """Yield path and module of every sub-layer of the stack ``name``; ``module.where`` is its address."""
        for layer, block in enumerate(self.stack(name).blocks):
            for sublayer, module in cast(Block, block).sublayers.items():
                yield f"stacks.{name}.blocks.{layer}.sublayers.{sublayer}", cast(SubLayer, module)

    def loss(self, tokens: Int[Tensor, "..."], targets: Int[Tensor, "..."]) -> Float[Tensor, ""]:
        """Return the mean cross-entropy against ``targets``, both [batch, token], in nats.

        Raises:
            DataError: tokens and targets differ in shape, or do not fit the model.
        """
        if tokens.shape != targets.shape:
            raise DataError(
                f"tokens have the shape {tuple(tokens.shape)} and targets {tuple(targets.shape)}: give equal shapes"
            )
        return self.criterion(self(tokens, targets), targets)


def shifted(targets: Int[Tensor, "batch token"]) -> Int[Tensor, "batch token"]:
    """Return the targets one position later, after token 0: what a decoder reads under teacher forcing."""
    return F.pad(targets[:, :-1], (1, 0), value=START_TOKEN)
