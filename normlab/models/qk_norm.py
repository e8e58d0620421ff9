"""The norms inside attention: on queries, keys and values."""

from jaxtyping import Float
from torch import Tensor, nn

from normlab.placements import Wiring
from normlab.spec import ModelSpec
from normlab.spec.inner_norms import build_inner_norms


class HeadNorm(nn.Module):
    """A norm on what a matrix gives for all heads: over each head's features, or over all heads' together.

    With gains g_q and g_k, RMSNorm or LayerNorm over each head bounds every logit:
    |q kᵀ|/√d_h ≤ √d_h · max|g_q| · max|g_k|.

    Source: Henry et al. 2020, arXiv 2010.04245; Dehghani et al. 2023 (ViT-22B), arXiv 2302.05442; over all
    heads: OLMo 2, arXiv 2501.00656; on values too: HybridNorm, arXiv 2503.04598.

    Args:
        norm: the norm of one group of features.
        groups: number of groups that are normed apart: the heads, or 1.
    """

    def __init__(self, norm: nn.Module, groups: int) -> None:
        super().__init__()
        self.norm, self.groups = norm, groups

    def forward(self, x: Float[Tensor, "batch token inner"]) -> Float[Tensor, "batch token inner"]:
        """Normalize."""
        normed: Tensor = self.norm(x if self.groups == 1 else x.unflatten(-1, (self.groups, -1)))
        return normed if self.groups == 1 else normed.flatten(2)


def head_norms(spec: ModelSpec, wiring: Wiring) -> tuple[HeadNorm | None, HeadNorm | None, HeadNorm | None]:
    """Build the norms on queries, keys and values; ``None`` where there is none."""
    built = {role: HeadNorm(norm, groups) for role, (norm, groups) in build_inner_norms(spec, wiring).items()}
    return built.get("q"), built.get("k"), built.get("v")
