"""ScaleNorm."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms import backend
from normlab.norms.affine import affine, check_cast, gain_parameter, wide
from normlab.norms.backend import check_backend
from normlab.norms.norm import Norm, register_norm


class ScaleNorm(nn.Module):
    """y = g x/max(‖x‖, √ε), with one learnable number g that starts at √d: RMSNorm with a single gain.

    Source: Nguyen and Salazar 2019, arXiv 1910.05895.

    Args:
        width: d, the number of features.
        eps: ε, in squared units of x; ‖x‖ is never taken to be smaller than √ε.
        gain: whether g is learned; otherwise it stays √d.
        initial_gain: the value of g/√d at initialisation.
        cast: whether half precision is rounded to ``before`` or ``after`` g multiplies.
        backend: ``auto``, ``torch`` or ``cupy`` (:mod:`normlab.norms.backend`).

    Raises:
        SpecError: an initial gain without a gain, or another ``cast``.
    """

    def __init__(
        self,
        width: int,
        *,
        eps: float = 1e-5,
        gain: bool = True,
        initial_gain: float = 1.0,
        cast: str = "after",
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.width, self.eps, self.cast, self.backend = width, eps, check_cast(cast), check_backend(backend)
        one = gain_parameter(1, initial_gain, present=gain)
        self.gain = None if one is None else nn.Parameter(math.sqrt(width) * one.detach()[0])

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Normalize each token on its own."""
        if self.gain is not None and backend.uses_kernels(self.backend, x, self.gain, eps=self.eps):
            y: Tensor = backend.OPERATORS.norm(x, self.gain, None, "l2", self.eps, self.cast == "before")[0]
            return y
        direction = unit(x, self.eps)
        if self.gain is None:
            return (math.sqrt(self.width) * direction).to(x.dtype)
        return affine(direction, self.gain, None, like=x, cast=self.cast)


def unit(x: Float[Tensor, "*batch width"], eps: float) -> Float[Tensor, "*batch width"]:
    """Return x/max(‖x‖, √ε), in float32 where x is of half precision."""
    x = wide(x)
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / length.clamp(min=math.sqrt(eps))


register_norm(
    Norm(
        name="scalenorm",
        equation="g x/max(‖x‖, √ε),  g one number, √d at first",
        source="Nguyen and Salazar 2019, arXiv 1910.05895",
        build=ScaleNorm,
        properties=frozenset({"per-token", "scale-invariant"}),
    )
)
