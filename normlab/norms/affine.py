"""The learnable gain and bias that follow most norms."""

import torch
from torch import nn


def gain_parameter(width: int, initial: float, *, present: bool) -> nn.Parameter | None:
    """Return γ, one factor a feature, or ``None`` where the norm has none."""
    return nn.Parameter(torch.full((width,), float(initial))) if present else None


def bias_parameter(width: int, *, present: bool) -> nn.Parameter | None:
    """Return β, one shift a feature, or ``None`` where the norm has none."""
    return nn.Parameter(torch.zeros(width)) if present else None
