"""Small models in which something is planted that an inspection must find."""

import torch
from torch import nn

import normlab as nl
from normlab.models import Transformer


def clean(depth: int = 6) -> Transformer:
    """A Pre-LN decoder in which nothing is wrong."""
    spec = nl.ModelSpec(placement="pre", depth=depth, width=32, heads=4)
    return nl.build(spec, seed=0)


def mixer(model: Transformer, layer: int, sublayer: str) -> nn.Module:
    """The attention or MLP of a block, from 1."""
    return model.stack("decoder").blocks[layer - 1].sublayers[sublayer].mixer


def with_massive_token(born: int = 2, cancelled: int = 5, channel: int = 7, size: float = 5000.0) -> Transformer:
    """The first token's channel 7 gets ``size`` in the MLP of one block and loses it in that of another."""
    model = clean()

    def add(amount: float) -> object:
        def hook(module: nn.Module, args: object, result: torch.Tensor) -> torch.Tensor:
            change = torch.zeros_like(result)
            change[:, 0, channel] = amount
            return result + change

        return hook

    mixer(model, born, "mlp").register_forward_hook(add(size))
    mixer(model, cancelled, "mlp").register_forward_hook(add(-size))
    return model


def with_idle_block(layer: int = 3) -> Transformer:
    """A block whose last matrices are zero."""
    model = clean()
    with torch.no_grad():
        mixer(model, layer, "attn").o.weight.zero_()
        mixer(model, layer, "mlp").down.weight.zero_()
    return model


def with_vanishing_gradient(share: float = 0.25) -> Transformer:
    """Each block passes on a quarter of the gradient; the forward pass is that of :func:`clean`."""
    model = clean()

    def hook(module: nn.Module, args: object, result: torch.Tensor) -> torch.Tensor:
        passed = result * 1.0
        if passed.requires_grad:
            passed.register_hook(lambda gradient: gradient * share)
        return passed

    for block in model.stack("decoder").blocks:
        block.register_forward_hook(hook)
    return model


def with_large_logits(layer: int = 4, factor: float = 3000.0) -> Transformer:
    """A block whose queries are multiplied."""
    model = clean()
    with torch.no_grad():
        mixer(model, layer, "attn").q.weight[8:16] *= factor  # head 1
    return model


def with_lost_updates() -> Transformer:
    """A stream so large that bfloat16 cannot hold the updates beside it."""
    model = clean()
    with torch.no_grad():
        model.stack("decoder").embedding.token.mul_(1000)
    return model


def with_overflow(layer: int = 3) -> Transformer:
    """A block's MLP gives an infinite entry at the third token of the first sequence."""
    model = clean()

    def hook(module: nn.Module, args: object, result: torch.Tensor) -> torch.Tensor:
        broken = result.clone()
        broken[0, 2, 1] = torch.inf
        return broken

    mixer(model, layer, "mlp").register_forward_hook(hook)
    return model
