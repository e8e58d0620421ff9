"""Tensors that cannot be reduced, and why; and those that can be as sequences of tokens."""

from typing import Any, Final

import torch
from torch import Tensor

from normlab.errors import RecordingError
from normlab.recording.odd import silent, unreadable
from normlab.recording.tensors import arranged, quiet
from normlab.recording.tokens import as_sequences
from normlab.recording.watches import PortWatch

#: Why a tensor under a transform of torch.func has no values.
HIDDEN: Final = "inside a transform of torch.func, which hides its numbers"


def is_hidden(value: Any) -> bool:
    """Say whether a transform of torch.func stands between a tensor and its numbers."""
    return isinstance(value, Tensor) and bool(torch._C._functorch.is_functorch_wrapped_tensor(value))


def unread(value: Any) -> str:
    """Say why a tensor's numbers cannot be read, whatever they are, or nothing."""
    if not isinstance(value, Tensor):
        return "not there"
    return HIDDEN if is_hidden(value) else silent(value) or unreadable(value)


def problem_of(value: Any, port: PortWatch, mask: Tensor | None, tokens: tuple[int, int]) -> str:
    """Say why ``value`` cannot be reduced, or nothing.

    Args:
        value: what a module got or gave.
        port: where it was found.
        mask: which tokens are real; all where there is none.
        tokens: numbers of sequences and tokens of the last tensor that had both.

    Raises:
        RecordingError: the mask does not fit a tensor of a plan.
    """
    if value is None:
        return "not there"
    if isinstance(value, Tensor) and (reason := silent(value)):
        return reason
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return "not a floating-point tensor"
    if is_hidden(value):
        return HIDDEN
    if value.layout is not torch.strided or value.is_nested or value.is_meta:
        return "not a dense tensor"
    if reason := unreadable(value):
        return reason
    if port.port.layout == "flat" and value.shape[0] != tokens[0] * tokens[1]:
        return "a flat tensor of tokens of sequences that are not known"
    if mask is None:
        return ""
    there = tuple((value.detach()[:, 0] if port.heads else sequences_of(value, port, tokens)).shape[:2])
    if there == tuple(mask.shape):
        return ""
    what = f"the mask {list(mask.shape)} does not fit {list(there)} tokens"
    if port.planned:
        raise RecordingError(f"{what} at {port.port.module!r}: give a mask [batch, tokens], True for real tokens")
    return what


def sequences_of(tensor: Tensor, port: PortWatch, tokens: tuple[int, int]) -> Tensor:
    """Return a tensor as sequences of tokens."""
    if port.port.layout == "sequences first" and tensor.dim() == 3:
        return tensor
    with quiet():
        return as_sequences(arranged(tensor, port.port.layout, tokens))
