"""Token moments of CUDA tensors by the kernels of ``normlab.cupy_kernels``: nothing is waited for.

Float32 about a pivot inside a thread, float64 everywhere else, so that the whole range of float32 comes out right. What
is returned stays on the device. Where the kernels do not serve, the result is ``None`` and
:mod:`normlab.recording.careful` computes it in float64 by torch.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from normlab.cupy_kernels.calls import SHORT
from normlab.norms import backend
from normlab.recording.tokens import TokenMoments, Wanted


def device_activation(
    x: Float[Tensor, "sequence token feature"], keep: Bool[Tensor, "sequence token"] | None, wanted: Wanted
) -> TokenMoments | None:
    """Return the centred moments of every token, or ``None`` where no kernel serves ``x``.

    Args:
        x: the tensor, of any strides.
        keep: which tokens count; all unless given.
        wanted: which numbers to compute.
    """
    if not _served(x):
        return None
    mean, squares, fourth, largest, nonfinite, norm = _tokens(x, keep)
    sums = _sums(x, norm, wanted.total or wanted.direction)
    return TokenMoments((mean, squares, fourth), tuple(sums.unbind(1)), (largest,), nonfinite.sum(), x.shape[2])


def device_gradient(
    g: Float[Tensor, "sequence token feature"], keep: Bool[Tensor, "sequence token"] | None, wanted: Wanted
) -> TokenMoments | None:
    """Return the norm of every token, or ``None`` where no kernel serves ``g``.

    Args:
        g: the tensor, of any strides.
        keep: which tokens count; all unless given.
        wanted: which numbers to compute.
    """
    if not _served(g):
        return None
    *_, largest, nonfinite, norm = _tokens(g, keep)
    sums = _sums(g, norm, wanted.total)
    return TokenMoments((norm,), (sums[:, 0],), (largest,), nonfinite.sum(), g.shape[2])


def device_pair(
    update: Float[Tensor, "sequence token feature"],
    skip: Float[Tensor, "sequence token feature"],
    total: Float[Tensor, "sequence token feature"] | None,
) -> tuple[Tensor, Tensor] | None:
    """Return ⟨u, s⟩ and Σ(stored sum − exact sum)² of every token, or ``None`` where no kernel serves all three.

    What is not finite is NaN. Without a stored sum the second is zero.

    Args:
        update: u, what is added.
        skip: s, what it is added to.
        total: the sum as it was stored, where there is one.
    """
    dtypes = {each.dtype for each in (update, skip, total) if each is not None}
    if not (_served(update) and _served(skip) and len(dtypes) == 1):
        return None
    moments, lost = backend.OPERATORS.pair_moments(update, skip, total, None)
    product = moments[..., 6].masked_fill(moments[..., 7] > 0, torch.nan)
    return product, torch.zeros_like(product) if total is None else lost


def _served(x: Tensor) -> bool:
    return x.device.type == backend.DEVICE and not backend.MISSING and x.dtype in SHORT and x.numel() > 0


def _tokens(x: Tensor, keep: Tensor | None) -> tuple[Tensor, ...]:
    found: Tensor = backend.OPERATORS.token_moments(x, keep)
    return found.unbind(0)


def _sums(x: Tensor, norm: Tensor, are_wanted: bool) -> Tensor:
    """Return Σx and Σx/|x| of every sequence; where nobody wants them, numbers of the same shape."""
    if not are_wanted:
        return x.new_zeros((x.shape[0], 2, x.shape[2]), dtype=torch.float64)
    sums: Tensor = backend.OPERATORS.sequence_sums(x, norm)
    return sums
