"""PowerNorm: BatchNorm without a mean, by a running quadratic mean."""

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.norms.affine import affine, bias_parameter, gain_parameter, wide
from normlab.norms.masking import real_tokens
from normlab.norms.norm import Norm, register_norm
from normlab.norms.running import RunningStatistics


class PowerNorm(RunningStatistics):
    """y = γ ⊙ x/√(ψ² + ε) + β, with one quadratic mean ψ² a feature.

    With ψ_B² the mean of x² over the batch's tokens (without those that
    :func:`~normlab.norms.masking.padding` masks), step t of training uses::

        warm-up (t ≤ warmup):   ψ² = ψ_B²,  and the running ψ_r² is the plain average of ψ_B² over steps
        after it:               ψ² = ψ_r² as it was before the step,  then  ψ_r² ← ψ_r² + momentum·(ψ_B² − ψ_r²)

    and eval mode uses ψ_r². Gradients are those of this equation: after the warm-up ψ² is a constant, where the
    paper adds a running correction to the backward pass.

    Source: Shen et al. 2020, arXiv 2003.07845.

    Args:
        width: d, the number of features.
        eps: ε, in squared units of x.
        momentum: 1 − α, how far a step moves the running quadratic mean.
        warmup: steps that use the batch's own statistic.
        prescale: whether each token is divided by its root mean square first, as in the authors' code.
        gain: whether there is a learnable γ.
        bias: whether there is a learnable β.
        initial_gain: the value of γ at initialisation.

    Raises:
        SpecError: an initial gain without a gain.
    """

    running_square: Tensor
    steps: Tensor

    def __init__(
        self,
        width: int,
        *,
        eps: float = 1e-5,
        momentum: float = 0.1,
        warmup: int = 10_000,
        prescale: bool = False,
        gain: bool = True,
        bias: bool = True,
        initial_gain: float = 1.0,
    ) -> None:
        super().__init__()
        self.width, self.eps = width, eps
        self.momentum, self.warmup, self.prescale = momentum, warmup, prescale
        self.gain = gain_parameter(width, initial_gain, present=gain)
        self.bias = bias_parameter(width, present=bias)
        self.register_buffer("running_square", torch.ones(width))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Normalize each feature by its quadratic mean.

        Raises:
            DataError: in train mode, sequences of one token, fewer than two real tokens, or a padding mask of
                another shape.
        """
        z = wide(x)
        if self.prescale:
            z = torch.nn.functional.rms_norm(z, (self.width,), eps=self.eps)
        scale = torch.rsqrt((self._step(z) if self.training else self.running_square) + self.eps)
        return affine(z * scale, self.gain, self.bias, like=x)

    def _step(self, z: Tensor) -> Tensor:
        """Return ψ² of this training step, and take the batch into the running one."""
        batch = real_tokens(z, "powernorm").square().mean(dim=0)
        before, step = self.running_square.clone(), int(self.steps) + 1
        share = 1 / step if step <= self.warmup else self.momentum
        self.keep(running_square=before + share * (batch - before), steps=self.steps + 1)
        return batch if step <= self.warmup else before


register_norm(
    Norm(
        name="powernorm",
        equation="γ ⊙ x/√(ψ² + ε) + β,  ψ² a feature's mean of x² over the batch's tokens, after a warm-up over steps",
        source="Shen et al. 2020, arXiv 2003.07845",
        build=PowerNorm,
        properties=frozenset({"scale-invariant", "feature-scale-invariant"}),
    )
)
