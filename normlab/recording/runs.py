"""Norms of short runs of a parameter's entries, from which its size follows in float64."""

from typing import Final

import torch
from torch import Tensor
from torch.linalg import vector_norm

from normlab.recording.plan import Parameter

#: Entries whose norm is taken in one go in float32: longer runs of additions lose digits of equal entries.
RUN: Final = 256


def part_of(tensor: Tensor, part: Parameter) -> Tensor:
    """Return the rows of a packed parameter that have the role of ``part``, or all of them."""
    return tensor if part.rows is None else tensor.narrow(part.axis, part.rows[0], part.rows[1] - part.rows[0])


def run_norms(tensor: Tensor) -> Tensor:
    """Return the Euclidean norm of each run of 256 entries, in float32 or, for a float64 tensor, float64."""
    dtype = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    flat = tensor.reshape(-1)
    whole = flat.numel() // RUN * RUN
    if whole == flat.numel():
        return vector_norm(flat.view(-1, RUN), dim=-1, dtype=dtype)
    rest = vector_norm(flat[whole:], dtype=dtype).reshape(1)
    return torch.cat([vector_norm(flat[:whole].view(-1, RUN), dim=-1, dtype=dtype), rest]) if whole else rest
