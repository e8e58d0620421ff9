"""A forward pass of a zoo model written as a plain loop that keeps every tensor of every site, without hooks."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

Where = tuple[str, int, str, str]


@dataclass
class Kept:
    """The tensors by stack, layer, sub-layer and site; each keeps its gradient."""

    tensors: dict[Where, Tensor] = field(default_factory=dict)

    def keep(self, where: Where, x: Tensor) -> Tensor:
        x.retain_grad()
        self.tensors[where] = x
        return x


def _applied(module: nn.Module | None, x: Tensor) -> Tensor:
    return x if module is None else module(x)


def walk(model: nn.Module, tokens: Tensor, targets: Tensor) -> tuple[Kept, Tensor]:
    """Run a decoder with sequential sub-layers forward and backward; return what was kept and the loss."""
    kept = Kept()
    (name,) = model.stacks
    stack = model.stacks[name]
    x = kept.keep((name, 0, "embed", "stream"), stack.embedding(tokens))
    for layer, block in enumerate(stack.blocks, start=1):
        for sub, module in block.sublayers.items():
            x = _sublayer(kept, (name, layer, sub), module, x)
    if stack.final_norm is not None:
        x = kept.keep((name, len(stack.blocks), "final", "final"), stack.final_norm(x))
    loss = torch.nn.functional.cross_entropy(model.head(x).flatten(0, 1), targets.flatten())
    loss.backward()
    return kept, loss.detach()


def _sublayer(kept: Kept, at: tuple[str, int, str], module: nn.Module, x: Tensor) -> Tensor:
    normed = _applied(module.inner_norm, x)
    # Where no norm stands before it, the input is the stream itself, and so is its gradient.
    z = kept.keep((*at, "input"), normed)
    branch = kept.keep((*at, "branch"), module.mixer(z))
    update = _applied(module.branch_scale, _applied(module.output_norm, branch))
    kept.keep((*at, "update"), update)
    skip = kept.keep((*at, "skip"), normed if module.wiring.skip == "normed" else x)
    total = skip + update
    if module.outer_norm is None:
        return kept.keep((*at, "stream"), total)
    kept.keep((*at, "sum"), total)
    return kept.keep((*at, "stream"), module.outer_norm(total))


def pairs(kept: Kept) -> Iterator[tuple[Where, Tensor, Tensor, Tensor]]:
    """Yield the address, update, skip and stored sum of every sub-layer."""
    for where, update in kept.tensors.items():
        if where[3] == "update":
            total = kept.tensors.get((*where[:3], "sum"), kept.tensors[(*where[:3], "stream")])
            yield where, update, kept.tensors[(*where[:3], "skip")], total
