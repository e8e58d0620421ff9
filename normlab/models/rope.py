"""Rotary positions."""

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor, nn

BASE = 10_000.0


class Rope(nn.Module):
    """Rotates queries and keys by their position: pair (x_i, x_{i+f/2}) of a head turns by p · 10000^(−2i/f).

    Source: Su et al. 2021, arXiv 2104.09864; features are paired as in GPT-NeoX and Llama.
    """

    def forward(self, x: Float[Tensor, "batch heads token features"]) -> Float[Tensor, "batch heads token features"]:
        """Rotate every head of every position."""
        cosine, sine = _turns(x.shape[2], x.shape[3], x.dtype, x.device)
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


# Every attention of a model asks for the same table.
@lru_cache(maxsize=8)
def _turns(tokens: int, features: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    frequency = BASE ** (-torch.arange(0, features, 2, dtype=torch.float64) / features)
    angle = torch.arange(tokens, dtype=torch.float64)[:, None] * frequency
    return angle.cos().to(device, dtype), angle.sin().to(device, dtype)
