"""A tensor in numbers: its sums by compiled code where that takes it, else the moments of its tokens by torch.

Nothing is recorded for autograd.
"""

from typing import TYPE_CHECKING

from jaxtyping import Bool, Float
from torch import Tensor

from normlab.recording.careful import careful_activation, careful_gradient, careful_pair
from normlab.recording.fast import comparable, fast_activation, fast_gradient, fast_pair
from normlab.recording.native import native_activation, native_gradient, native_pair
from normlab.recording.on_device import device_activation, device_gradient, device_pair
from normlab.recording.tensors import quiet
from normlab.recording.tokens import PairMoments, TokenMoments, Wanted

if TYPE_CHECKING:
    from normlab.recording._native import Written


def activation_moments(
    x: Float[Tensor, "sequence token feature"],
    keep: Bool[Tensor, "sequence token"] | None,
    wanted: Wanted,
) -> "Written | TokenMoments":
    """Return the sums of an activation, or the centred moments of every token.

    Args:
        x: the tensor, of any floating-point dtype and any strides.
        keep: which tokens count; all unless given.
        wanted: which numbers to compute.
    """
    written = native_activation(x, keep, wanted)
    if written is not None:
        return written
    with quiet():
        return _activation_moments(x.detach(), keep, wanted)


def gradient_moments(
    g: Float[Tensor, "sequence token feature"],
    keep: Bool[Tensor, "sequence token"] | None,
    wanted: Wanted,
) -> "Written | TokenMoments":
    """Return the sums of a gradient, or the norm of every token and the sums over sequences.

    Args:
        g: the tensor, of any floating-point dtype and any strides.
        keep: which tokens count; all unless given.
        wanted: which numbers to compute.
    """
    written = native_gradient(g, keep)
    if written is not None:
        return written
    with quiet():
        g = g.detach()
        fast = fast_gradient(g, keep, wanted) if _on_host(g) else device_gradient(g, keep, wanted)
        return careful_gradient(g, keep) if fast is None else fast


def pair_moments(
    update: Float[Tensor, "sequence token feature"],
    skip: Float[Tensor, "sequence token feature"],
    total: Float[Tensor, "sequence token feature"] | None,
    keep: Bool[Tensor, "sequence token"] | None,
    known: tuple[TokenMoments | None, TokenMoments | None],
    wanted: Wanted,
) -> "Written | PairMoments":
    """Return the sums of a residual sum, or what its tokens contribute.

    Args:
        update: u, what is added.
        skip: s, what it is added to.
        total: the sum as it was stored, where there is one.
        keep: which tokens count; all unless given.
        known: moments of update and skip, if they have been computed.
        wanted: which numbers to compute.
    """
    written = native_pair(update, skip, total, keep)
    if written is not None:
        return written
    with quiet():
        update, skip, total = update.detach(), skip.detach(), None if total is None else total.detach()
        terms = zip((update, skip), known, strict=True)
        one, two = (_activation_moments(term, keep, wanted) if has is None else has for term, has in terms)
        both = fast_pair(update, skip, total, wanted) if comparable(one, two) else device_pair(update, skip, total)
        product, lost = careful_pair(update, skip, total) if both is None else both
        return PairMoments(one, two, product, lost, total is not None)


def _activation_moments(x: Tensor, keep: Tensor | None, wanted: Wanted) -> TokenMoments:
    fast = fast_activation(x, keep, wanted) if _on_host(x) else device_activation(x, keep, wanted)
    return careful_activation(x, keep) if fast is None else fast


def _on_host(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.numel() > 0
