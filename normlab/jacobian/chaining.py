"""The blocks of a model as a chain of linear maps, from one forward pass."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from normlab.jacobian.arithmetic import Digits
from normlab.jacobian.evaluating import JacobianError, plain_attention
from normlab.jacobian.linear_map import LinearMap, agreed, linear_map
from normlab.jacobian.model_parts import Parts
from normlab.jacobian.taps import Replace, run
from normlab.recording import Port


@dataclass(frozen=True)
class Chain:
    """∂x_ℓ/∂x_{ℓ−1} of every block ℓ = 1 .. L on the forward pass of one batch.

    Attributes:
        stack: the stack.
        maps: the blocks' linear maps, in order.
    """

    stack: str
    maps: tuple[LinearMap, ...]

    @property
    def depth(self) -> int:
        """L."""
        return len(self.maps)

    @property
    def size(self) -> int:
        """Entries of the stream: tokens of the batch times features."""
        return self.maps[0].columns

    def between(self, layer: int, to_layer: int) -> LinearMap:
        """Return ∂x_t/∂x_s by products with the blocks s+1 .. t, none of which is formed.

        Raises:
            JacobianError: not 0 ≤ s < t ≤ L.
        """
        if not 0 <= layer < to_layer <= self.depth:
            raise JacobianError(f"layers {layer} and {to_layer} were given: give 0 ≤ layer < to_layer ≤ {self.depth}")
        product = self.maps[layer]
        for following in self.maps[layer + 1 : to_layer]:
            product = following.after(product)
        return product


@contextmanager
def chain(parts: Parts) -> Iterator[Chain]:
    """Run the model once and cut its graph at the stream after every block.

    Raises:
        JacobianError: the stream after a block cannot be read, or a block reads more than the stream before it, so that
            the blocks are no chain.
    """
    depth = parts.depth
    places = [parts.stream(layer) for layer in range(depth + 1)]
    sites = [parts.site(place) for place in places]
    for site, (layer, _, _) in zip(sites[:-1], places, strict=False):
        if not site.gradient:
            raise JacobianError(f"the stream after block {layer} cannot be cut: modules see it in several views")
    ends: list[Tensor] = []
    starts: list[Tensor] = []

    def cut(tensor: Tensor) -> Tensor:
        ends.append(tensor.clone())
        starts.append(tensor.detach().clone().requires_grad_())
        return starts[-1].clone()

    writes: dict[Port, Replace] = {site.port: cut for site in sites}
    with plain_attention(), torch.inference_mode(False), torch.enable_grad():
        with Digits(torch.float64) as digits:
            run(parts.model, parts.inputs, writes=writes)
        digits.warn()
        _check(ends, starts, depth, len(writes))
        maps = tuple(linear_map(end, start, digits.dtype) for start, end in zip(starts[:-1], ends[1:], strict=True))
        blocks = Chain(parts.stack, maps)
        whole = agreed(blocks.between(0, depth))
        told = (replace(block, dtype=whole.dtype, agreement=whole.agreement) for block in maps)
        yield Chain(parts.stack, tuple(told))


def _check(ends: list[Tensor], starts: list[Tensor], depth: int, ports: int) -> None:
    if len(ends) != depth + 1 or ports != depth + 1:
        raise JacobianError(f"{len(ends)} streams of {depth + 1} were seen: the blocks cannot be told apart")
    for layer in range(1, depth + 1):
        end = ends[layer]
        if not end.requires_grad:
            raise JacobianError(f"block {layer} does not depend on the stream before it: there is no Jacobian")
        earlier = starts[: layer - 1]
        used = torch.autograd.grad(end.sum(), earlier, retain_graph=True, allow_unused=True) if earlier else ()
        for before, gradient in enumerate(used):
            if gradient is not None:
                raise JacobianError(
                    f"block {layer} also reads the stream of layer {before}, or the stream goes past the modules that "
                    "read it: the blocks cannot be cut into a chain; "
                    f"take parts(...).blocks(i, j) as one function"
                )
