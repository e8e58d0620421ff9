"""GroupNorm, over groups of a token's features."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from normlab.errors import SpecError
from normlab.norms.affine import bias_parameter, gain_parameter
from normlab.norms.norm import Norm, register_norm


class GroupNorm(nn.Module):
    """y = γ ⊙ (x − μ_G)/√(v_G + ε) + β, with mean and population variance over the entry's own group G.

    The features of a token are split into equal consecutive groups. Positions are never pooled: a causal
    model must not see later ones. One group is LayerNorm.

    Source: Wu and He 2018, arXiv 1803.08494.

    Args:
        width: d, the number of features.
        eps: ε, in squared units of x.
        groups: number of groups; a divisor of the width.
        gain: whether there is a learnable γ.
        bias: whether there is a learnable β.
        initial_gain: the value of γ at initialisation.

    Raises:
        SpecError: the groups do not divide the width, or an initial gain without a gain.
    """

    def __init__(
        self,
        width: int,
        *,
        eps: float = 1e-5,
        groups: int = 4,
        gain: bool = True,
        bias: bool = True,
        initial_gain: float = 1.0,
    ) -> None:
        super().__init__()
        if groups < 1 or width % groups:
            raise SpecError(
                f"norm 'groupnorm' cannot split {width} features into {groups} groups: give a divisor of {width}"
            )
        self.width, self.eps, self.groups = width, eps, groups
        self.gain = gain_parameter(width, initial_gain, present=gain)
        self.bias = bias_parameter(width, present=bias)

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Normalize each group of each token on its own."""
        tokens = x.reshape(-1, self.width)
        return F.group_norm(tokens, self.groups, self.gain, self.bias, self.eps).view_as(x)


register_norm(
    Norm(
        name="groupnorm",
        equation="γ ⊙ (x − μ_G)/√(v_G + ε) + β,  mean and variance over the entry's group of d/G features",
        source="Wu and He 2018, arXiv 1803.08494",
        build=GroupNorm,
        properties=frozenset({"per-token", "scale-invariant", "shift-invariant"}),
    )
)
