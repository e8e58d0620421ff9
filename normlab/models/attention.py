"""Multi-head attention, with its score computation as a module of its own so that it can be observed."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from normlab.models.linear import Linear
from normlab.models.qk_norm import HeadNorm, head_norms
from normlab.models.rope import Rope
from normlab.placements import Wiring
from normlab.spec import ModelSpec
from normlab.where import Where


class SoftmaxCore(nn.Module):
    """softmax(q kᵀ/√d_h + mask) v for every head.

    Args:
        causal: whether a position sees only itself and earlier ones.
    """

    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        self.causal = causal

    def forward(
        self,
        query: Float[Tensor, "batch heads token features"],
        key: Float[Tensor, "batch kv_heads source features"],
        value: Float[Tensor, "batch kv_heads source features"],
    ) -> Float[Tensor, "batch heads token features"]:
        """Mix the values."""
        grouped = key.shape[1] != query.shape[1]
        return F.scaled_dot_product_attention(query, key, value, is_causal=self.causal, enable_gqa=grouped)


class UniformCore(nn.Module):
    """The mean of the values of all positions that a position may see: attention with q = k = 0.

    Args:
        causal: whether a position sees only itself and earlier ones.
    """

    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        self.causal = causal

    def forward(
        self, value: Float[Tensor, "batch heads source features"], tokens: int
    ) -> Float[Tensor, "batch heads token features"]:
        """Average the values for each of ``tokens`` positions."""
        if not self.causal:
            return value.mean(dim=2, keepdim=True).expand(-1, -1, tokens, -1)
        seen = torch.arange(1, tokens + 1, dtype=value.dtype, device=value.device)
        return value.cumsum(dim=2) / seen[:, None]


class Attention(nn.Module):
    """W_o · concat_h(A_h W_v m): queries, keys and values are three matrices, not one packed one.

    Queries come from z; keys and values from m, which is z itself, or for cross-attention what the encoder gave.

    Args:
        spec: the model that it belongs to.
        where: its address; a ``cross`` sub-layer sees all of its memory, and positions do not rotate it.
        wiring: which norms its placement puts inside.
    """

    q: Linear
    k: Linear
    v: Linear
    o: Linear

    def __init__(self, spec: ModelSpec, where: Where, wiring: Wiring) -> None:
        super().__init__()
        self.features = spec.features_per_head
        causal = where.stack == "decoder" and where.sublayer == "attn"
        softmax = spec.attention == "softmax"
        for role, (fan_in, fan_out) in spec.matrices(where.sublayer).items():
            setattr(self, role, Linear(fan_in, fan_out, bias=spec.bias))
        self.q_norm, self.k_norm, self.v_norm = head_norms(spec, wiring)
        self.rope = Rope() if spec.position == "rope" and where.sublayer == "attn" else None
        self.core = SoftmaxCore(causal=causal) if softmax else UniformCore(causal=causal)
        self.mid_norm = spec.build_norm(spec.heads * self.features) if wiring.mid_norm else None

    def forward(
        self, z: Float[Tensor, "batch token width"], memory: Float[Tensor, "batch source width"] | None = None
    ) -> Float[Tensor, "batch token width"]:
        """Mix positions."""
        source = z if memory is None else memory
        value = self._heads(_normed(self.v_norm, self.v(source)))
        if isinstance(self.core, UniformCore):
            mixed = self.core(value, z.shape[1])
        else:
            query, key = _normed(self.q_norm, self.q(z)), _normed(self.k_norm, self.k(source))
            mixed = self.core(self._placed(query), self._placed(key), value)
        joined = mixed.transpose(1, 2).flatten(2)
        return self.o(joined if self.mid_norm is None else self.mid_norm(joined))

    def _placed(self, x: Float[Tensor, "batch token inner"]) -> Float[Tensor, "batch heads token features"]:
        heads = self._heads(x)
        return heads if self.rope is None else self.rope(heads)

    def _heads(self, x: Float[Tensor, "batch token inner"]) -> Float[Tensor, "batch heads token features"]:
        return x.unflatten(-1, (-1, self.features)).transpose(1, 2)


def _normed(norm: HeadNorm | None, x: Tensor) -> Tensor:
    normed: Tensor = x if norm is None else norm(x)
    return normed
