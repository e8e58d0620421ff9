"""The speed at which a machine copies memory: what a norm that reads and writes once could reach."""

import numpy as np
import torch

from normlab.benchmarks.timing import fixed_threads, interleaved


def copy_bandwidth(megabytes: float = 256.0, *, threads: int = 1, rounds: int = 11, device: str = "cpu") -> float:
    """Return the bytes per second, read and written, of copying an array far larger than any cache.

    Args:
        megabytes: size of the array that is copied; twice as much is moved.
        threads: threads of the copy.
        rounds: samples, whose median counts.
        device: torch's name of the device.
    """
    source = torch.ones(max(1, int(megabytes * 2**20 / 4)), device=device)
    target = torch.empty_like(source)
    wait = torch.cuda.synchronize if source.is_cuda else None
    with fixed_threads(threads):
        times = interleaved({"copy": lambda: target.copy_(source)}, rounds=rounds, synchronise=wait)["copy"]
    return 2 * source.numel() * 4 / float(np.median(times))
