"""One sub-layer and everything that its placement puts around it."""

from jaxtyping import Float
from torch import Tensor, nn

from normlab.models.add import Add, Defer
from normlab.models.attention import Attention
from normlab.models.branch_scale import BranchScale
from normlab.models.mlp import MLP
from normlab.spec import ModelSpec
from normlab.where import Where


class SubLayer(nn.Module):
    """stream = N_outer(a · skip + b · N_output(F(c · N_inner(x)))): the unified block's equation.

    Args:
        spec: the model that it belongs to.
        where: its address.
    """

    def __init__(self, spec: ModelSpec, where: Where) -> None:
        super().__init__()
        wiring = spec.wiring(where)
        waits = spec.parallel and where.sublayer == "attn"
        self.where, self.wiring = where, wiring
        self.inner_norm = spec.build_norm(spec.width) if wiring.inner_norm else None
        self.mixer = MLP(spec, wiring) if where.sublayer == "mlp" else Attention(spec, where, wiring)
        self.output_norm = (
            spec.build_norm(spec.width, **_initial_gain(wiring.output_gain)) if wiring.output_norm else None
        )
        scaled = wiring.branch_scale != 1 or wiring.learn_branch_scale
        self.branch_scale = BranchScale(wiring, spec.width) if scaled else None
        self.dropout = nn.Dropout(spec.dropout) if spec.dropout else None
        self.add = None if wiring.skip == "none" else Defer() if waits else Add()
        self.outer_norm = spec.build_norm(spec.width) if wiring.norms_stream and not waits else None

    def forward(
        self,
        x: Float[Tensor, "batch token width"],
        block_input: Float[Tensor, "batch token width"],
        memory: Float[Tensor, "batch source width"] | None = None,
    ) -> Float[Tensor, "batch token width"]:
        """Return the stream after the sub-layer."""
        return self.join(*self.branch(x, block_input, memory))

    def branch(
        self, x: Tensor, block_input: Tensor, memory: Tensor | None = None
    ) -> tuple[Float[Tensor, "batch token width"] | None, Float[Tensor, "batch token width"]]:
        """Return skip and update; the skip is ``None`` where the placement has none."""
        normed = x if self.inner_norm is None else self.inner_norm(x)
        z = normed if self.wiring.input_scale == 1 else normed * self.wiring.input_scale
        update = self.mixer(z, memory) if self.where.sublayer == "cross" else self.mixer(z)
        for module in (self.output_norm, self.branch_scale, self.dropout):
            update = update if module is None else module(update)
        return self._skip(x, normed, block_input), update

    def join(self, skip: Tensor | None, update: Tensor) -> Float[Tensor, "batch token width"]:
        """Return the stream, given skip and update."""
        total = update if self.add is None else self.add(skip, update)
        return total if self.outer_norm is None else self.outer_norm(total)

    def _skip(self, x: Tensor, normed: Tensor, block_input: Tensor) -> Tensor | None:
        match self.wiring.skip:
            case "none":
                return None
            case "normed":
                skip = normed
            case "stream+block_input":
                skip = x + block_input
            case _:
                skip = x
        if self.wiring.interpolate and self.branch_scale is not None:
            return skip * (1 - self.branch_scale.factor)
        return skip if self.wiring.skip_scale == 1 else skip * self.wiring.skip_scale


def _initial_gain(gain: float) -> dict[str, float]:
    # 1 is left out, so that a norm whose own gain starts elsewhere keeps it.
    return {} if gain == 1 else {"initial_gain": gain}
