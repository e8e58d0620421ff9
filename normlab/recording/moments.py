"""The moments of a tensor's tokens, on the fast path where its result holds."""

from jaxtyping import Bool, Float
from torch import Tensor

from normlab.recording.careful import careful_activation, careful_gradient, careful_pair
from normlab.recording.fast import comparable, fast_activation, fast_gradient, fast_pair
from normlab.recording.tokens import PairMoments, TokenMoments, Wanted


def activation_moments(
    x: Float[Tensor, "sequence token feature"], keep: Bool[Tensor, "sequence token"] | None, wanted: Wanted
) -> TokenMoments:
    """Return the centred moments of every token of an activation.

    Args:
        x: the tensor, of any floating-point dtype and any strides.
        keep: which tokens count; all unless given.
        wanted: which numbers to compute.
    """
    fast = fast_activation(x, keep, wanted) if _on_host(x) else None
    return careful_activation(x, keep) if fast is None else fast


def gradient_moments(
    g: Float[Tensor, "sequence token feature"], keep: Bool[Tensor, "sequence token"] | None, wanted: Wanted
) -> TokenMoments:
    """Return the sum of squares of every token of a gradient, and the sums over sequences.

    Args:
        g: the tensor, of any floating-point dtype and any strides.
        keep: which tokens count; all unless given.
        wanted: which numbers to compute.
    """
    fast = fast_gradient(g, keep, wanted) if _on_host(g) else None
    return careful_gradient(g, keep) if fast is None else fast


def pair_moments(
    update: Float[Tensor, "sequence token feature"],
    skip: Float[Tensor, "sequence token feature"],
    total: Float[Tensor, "sequence token feature"] | None,
    moments: tuple[TokenMoments, TokenMoments],
    wanted: Wanted,
) -> PairMoments:
    """Return what the tokens of a residual sum contribute.

    Args:
        update: u, what is added.
        skip: s, what it is added to.
        total: the sum as it was stored, where there is one.
        moments: those of update and skip.
        wanted: which numbers to compute.
    """
    fast = fast_pair(update, skip, total, wanted) if comparable(*moments) else None
    product, lost = careful_pair(update, skip, total) if fast is None else fast
    return PairMoments(*moments, product, lost, total is not None)


def _on_host(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.numel() > 0
