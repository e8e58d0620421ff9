"""BatchNorm, over all tokens of a batch."""

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.norms.affine import affine, bias_parameter, gain_parameter, wide
from normlab.norms.masking import real_tokens
from normlab.norms.norm import Norm, register_norm
from normlab.norms.running import RunningStatistics


class BatchNorm(RunningStatistics):
    """y = γ ⊙ (x − m)/√(s² + ε) + β, with one mean m and population variance s² a feature.

    In train mode m and s² are those of the batch: of all positions of all sequences, without the tokens that
    :func:`~normlab.norms.masking.padding` masks; so a causal model sees later positions through them. In eval
    mode they are running averages, m ← m + momentum·(m_batch − m), s² likewise towards the unbiased variance.

    Source: Ioffe and Szegedy 2015, arXiv 1502.03167.

    Args:
        width: d, the number of features.
        eps: ε, in squared units of x.
        momentum: how far a step moves the running averages.
        gain: whether there is a learnable γ.
        bias: whether there is a learnable β.
        initial_gain: the value of γ at initialisation.

    Raises:
        SpecError: an initial gain without a gain.
    """

    running_mean: Tensor
    running_variance: Tensor

    def __init__(
        self,
        width: int,
        *,
        eps: float = 1e-5,
        momentum: float = 0.1,
        gain: bool = True,
        bias: bool = True,
        initial_gain: float = 1.0,
    ) -> None:
        super().__init__()
        self.width, self.eps, self.momentum = width, eps, momentum
        self.gain = gain_parameter(width, initial_gain, present=gain)
        self.bias = bias_parameter(width, present=bias)
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_variance", torch.ones(width))

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Normalize each feature over the batch, or by the running averages.

        Raises:
            DataError: in train mode, sequences of one token, fewer than two real tokens, or a padding mask of
                another shape.
        """
        mean, variance = self._batch_moments(x) if self.training else (self.running_mean, self.running_variance)
        return affine((wide(x) - mean) * torch.rsqrt(variance + self.eps), self.gain, self.bias, like=x)

    def _batch_moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        tokens = wide(real_tokens(x, "batchnorm"))
        variance, mean = torch.var_mean(tokens, dim=0, correction=0)
        unbiased = variance * (len(tokens) / (len(tokens) - 1))
        self.keep(
            running_mean=self.running_mean + self.momentum * (mean - self.running_mean),
            running_variance=self.running_variance + self.momentum * (unbiased - self.running_variance),
        )
        return mean, variance


register_norm(
    Norm(
        name="batchnorm",
        equation="γ ⊙ (x − m)/√(s² + ε) + β,  m and s² a feature's mean and variance over the batch's tokens",
        source="Ioffe and Szegedy 2015, arXiv 1502.03167",
        build=BatchNorm,
        properties=frozenset(
            {"scale-invariant", "shift-invariant", "feature-scale-invariant", "feature-shift-invariant"}
        ),
    )
)
