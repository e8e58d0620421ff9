"""What a recorder refuses because its numbers would be wrong, and what it warns of."""

import math
import warnings
from collections.abc import Iterable

import torch
from torch import Tensor

from normlab.errors import RecordingError


class RecordingWarning(UserWarning):
    """A recording that holds less than was probably meant."""


def check_arguments(loss_scale: float, every: int) -> None:
    """Refuse numbers out of range."""
    if not (math.isfinite(loss_scale) and loss_scale):
        raise RecordingError(f"loss_scale is {loss_scale!r}: give a finite number other than zero")
    if every < 1:
        raise RecordingError(f"every is {every!r}: give a whole number of at least 1")


def checked_mask(mask: Tensor | None) -> Tensor | None:
    """Return ``mask``, refused unless it is boolean: what another dtype's numbers mean cannot be told."""
    if mask is not None and mask.dtype != torch.bool:
        raise RecordingError(
            f"the mask is of {mask.dtype}: give a bool mask [batch, tokens], True for real tokens, "
            "such as mask.bool() of ones and zeros"
        )
    return mask


def refuse_unobserved(missing: list[str], step: int) -> None:
    """Refuse a step that did not observe what was expected."""
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise RecordingError(
            f"step {step} did not observe {'; '.join(missing[:3])}{more}: "
            "run the model forward and backward inside the block, or ask for other sites"
        )


def refuse_stale(name: str) -> None:
    """Refuse a parameter that has a gradient before the step begins."""
    if name:
        raise RecordingError(
            f"the parameter {name!r} has a gradient already, which would be counted as this step's: "
            "call model.zero_grad() first"
        )


def refuse_changed(name: str) -> None:
    """Refuse a pass whose parameters are others than those of the passes before it in the same step."""
    if name:
        raise RecordingError(
            f"the parameter {name!r} changed between two forward passes of one step, which would mix two "
            "models: call recorder.step() after each backward pass, before the optimizer changes the parameters, and "
            "between calls with other parameters, as by functional_call"
        )


def warn_if_cleared(parameters: Iterable[Tensor]) -> bool:
    """Warn if no parameter has a gradient at the end of a step, and say whether that is so."""
    trained = False
    for parameter in parameters:
        if parameter.grad is not None:
            return False
        trained |= parameter.requires_grad
    if trained:
        warnings.warn(
            "step() found no gradient of any parameter: call it after the backward pass and before zero_grad()",
            RecordingWarning,
            stacklevel=3,
        )
    return trained


def warn_of_nothing(*, ran: bool) -> None:
    """Warn that a block is over and none of the modules that were to be observed was called.

    Args:
        ran: whether the model itself was.
    """
    what = (
        "the model ran, but none of the modules that were to be observed: it calls none of them, or a fused or "
        "scripted kernel does their work past them (torch.backends.mha.set_fastpath_enabled(False) keeps torch's "
        "own transformer layers from that)"
        if ran
        else "nothing of the model ran inside the with block, so the table has no values of its sites: "
        "run the very model that was given to record() there"
    )
    warnings.warn(what, RecordingWarning, stacklevel=3)
