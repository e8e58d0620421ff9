"""Closed forms of modules that nobody has described, where a probe says that they are LayerNorm or RMSNorm.

Variants keep the form: with an unbiased variance v is m/(m − 1) times as large, and with ε outside the root
s = 1/(√v + ε) and the norm's own direction is taken out by √v/(√v + ε). The probe finds ε to two digits.
"""

import torch
from torch import Tensor, nn

from normlab.jacobian.closed_form import NormJacobian, closed_form
from normlab.jacobian.closed_statistics import by_token, statistic
from normlab.jacobian.evaluating import JacobianError
from normlab.recording.discovery.norms import NormKind, probed

_STATISTICS = ("layernorm", "rmsnorm")


@closed_form.register(nn.Module)
def _foreign(norm: nn.Module, x: Tensor) -> NormJacobian:
    kind = probed(norm, tuple(x.shape))
    if kind is None or kind.name not in _STATISTICS or kind.eps is None or kind.gain == "other":
        raise JacobianError(
            f"no closed form is known for {type(norm).__name__}: register one with closed_form.register, or use dense"
        )
    return statistic(
        x,
        by_token(x, kind.features),
        centred=kind.name == "layernorm",
        eps=kind.eps,
        gain=_gain(norm, kind),
        unbiased=kind.unbiased,
        outside=kind.eps_outside,
    )


def _gain(norm: nn.Module, kind: NormKind) -> Tensor | None:
    if kind.gain == "none":
        return None
    (name,) = (name for name, role in kind.parameters if role == "norm_gain")
    weight = norm.get_parameter(name).detach().cpu().double()
    return 1 + weight if kind.gain == "1+w" else weight * torch.ones(kind.features, dtype=torch.float64)
