"""Tokens to the stream's first value."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from normlab.errors import DataError
from normlab.inits import EmbeddingScale
from normlab.spec import ModelSpec

BASE = 10_000.0


class Embedding(nn.Module):
    """N_emb(m · E[token] + P[position]), with what the spec leaves out left out.

    Args:
        spec: the model that it belongs to.
        scale: the standard deviation of E and learned P, and the fixed multiplier m.
    """

    waves: Tensor | None

    def __init__(self, spec: ModelSpec, scale: EmbeddingScale) -> None:
        super().__init__()
        self.std, self.multiplier = scale.std, scale.multiplier
        self.vocab, self.context = spec.vocab, spec.context
        self.token = nn.Parameter(torch.empty(spec.vocab, spec.width))
        self.position = nn.Parameter(torch.empty(spec.context, spec.width)) if spec.position == "learned" else None
        waves = sinusoids(spec.context, spec.width) if spec.position == "sinusoidal" else None
        self.register_buffer("waves", waves, persistent=False)
        self.norm = spec.build_norm(spec.width) if spec.has_embed_norm else None

    def forward(self, tokens: Int[Tensor, "batch token"]) -> Float[Tensor, "batch token width"]:
        """Look the tokens up.

        Raises:
            DataError: a token outside the vocabulary, or more tokens than the context.
        """
        if tokens.numel() and not (0 <= int(tokens.min()) and int(tokens.max()) < self.vocab):
            raise DataError(
                f"tokens run from {int(tokens.min())} to {int(tokens.max())}: "
                f"the vocabulary allows 0 to {self.vocab - 1}; give other tokens or a larger vocab"
            )
        if tokens.shape[1] > self.context:
            raise DataError(
                f"a sequence has {tokens.shape[1]} tokens: the context allows {self.context}; "
                f"give fewer tokens or a larger context"
            )
        x = nn.functional.embedding(tokens, self.token)
        x = x if self.multiplier == 1 else x * self.multiplier
        for table in (self.position, self.waves):
            x = x if table is None else x + table[: tokens.shape[1]]
        return x if self.norm is None else self.norm(x)


def sinusoids(context: int, width: int) -> Float[Tensor, "context width"]:
    """Return P[p, 2i] = sin(p · 10000^(−2i/d)), P[p, 2i+1] = cos(p · 10000^(−2i/d)), in float64.

    Source: Vaswani et al. 2017, arXiv 1706.03762.
    """
    feature = torch.arange(width)
    frequency = BASE ** (-2.0 * (feature // 2).double() / width)
    angle = torch.arange(context, dtype=torch.float64)[:, None] * frequency
    return torch.where(feature % 2 == 0, angle.sin(), angle.cos())
