"""Buffers that a model changes while it runs are put back afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def buffers_as_before(model: nn.Module) -> Iterator[None]:
    """Put back the buffers of a model, those that it changes in place and those that it replaces."""
    # Those of a scripted module are no dictionary, and cannot be replaced.
    standing = [(module._buffers, {**module._buffers}) for module in model.modules() if type(module._buffers) is dict]
    kept = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        for buffers, before in standing:
            buffers.clear()
            buffers.update(before)
        with torch.no_grad():
            for buffer, numbers in kept:
                buffer.copy_(numbers)
