"""From a spec to a model."""

import torch

from normlab.models.initialise import initialise
from normlab.models.transformer import Transformer
from normlab.spec import ModelSpec


def build(spec: ModelSpec, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> Transformer:
    """Build the model that ``spec`` describes, in train mode, with weights drawn from ``seed``.

    Args:
        spec: everything about the model.
        seed: the same spec and seed give the same weights, whatever was drawn before.
        dtype: of the weights.

    Returns:
        A module: ``model(tokens)`` gives logits, ``model.loss(tokens, targets)`` a scalar.
    """
    model = Transformer(spec).to(dtype)
    initialise(model, seed)
    return model.train()
