"""Memory for temporaries that is kept from call to call.

A fresh temporary of some hundred kilobytes costs a page fault every four of them: at two dozen sub-layers
a recorded step took thirty thousand faults more than a bare one, and a tenth more time.
"""

import threading
from typing import Final

import numpy as np
import torch
from torch import Tensor

_NUMPY: Final = {torch.float32: np.float32, torch.float64: np.float64}
#: Entries beyond which memory is not kept.
_MOST: Final = 512 * 1024


class _Kept(threading.local):
    """The buffers of one thread."""

    def __init__(self) -> None:
        self.buffers: dict[tuple[torch.dtype, int], np.ndarray] = {}


_KEPT: Final = _Kept()


def scratch(like: Tensor, slot: int) -> Tensor:
    """Return an uninitialised tensor of the shape and dtype of ``like``, float32 or float64, on the host.

    It is the caller's until the same thread asks for the same ``slot`` again.
    """
    entries = like.numel()
    if entries > _MOST:
        return torch.empty_like(like, memory_format=torch.contiguous_format)
    buffer = _KEPT.buffers.get((like.dtype, slot))
    if buffer is None or buffer.size < entries:
        buffer = _KEPT.buffers[like.dtype, slot] = np.empty(entries, _NUMPY[like.dtype])
    # Wrapped anew each time: a tensor that was made in inference mode could not be written to outside of it.
    return torch.from_numpy(buffer[:entries]).view(like.shape)
