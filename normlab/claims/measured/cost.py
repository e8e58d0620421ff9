"""Times and memory of LayerNorm and RMSNorm on a CPU."""

import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from normlab.claims.evidence import Number
from normlab.data import Random
from normlab.models import build
from normlab.norms import NORMS
from normlab.spec import ModelSpec

_ROWS = 32


def numpy_norms(seed: int) -> list[Number]:
    """Time both norms, written out in NumPy and as torch's fused operations, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [found for width in (256, 1024, 4096) for found in _ratios(seed, width)]
    finally:
        torch.set_num_threads(threads)


def _ratios(seed: int, width: int) -> list[Number]:
    x = np.random.default_rng(seed).normal(size=(_ROWS, width)).astype(np.float32)
    tensor = torch.from_numpy(x)
    plain = _interleaved(lambda: _layer_norm(x), lambda: _rms_norm(x))
    fused = _interleaved(
        lambda: nn.functional.layer_norm(tensor, (width,)), lambda: nn.functional.rms_norm(tensor, (width,))
    )
    return [
        Number(f"numpy-ratio-{width}", plain, None, {"width": width}),
        Number(f"torch-ratio-{width}", fused, None, {"width": width}),
    ]


def _layer_norm(x: NDArray[np.float32]) -> NDArray[np.float32]:
    mean = x.mean(-1, keepdims=True)
    variance = x.var(-1, keepdims=True)
    return np.asarray((x - mean) / np.sqrt(variance + 1e-5))


def _rms_norm(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5))


def _interleaved(first: Callable[[], object], second: Callable[[], object], runs: int = 15) -> float:
    """Return the ratio of the medians of runs that take turns, so that a busy machine slows both alike."""
    times: tuple[list[float], list[float]] = ([], [])
    for run in range(runs + 2):
        for function, kept in zip((first, second), times, strict=True):
            begin = time.perf_counter()
            function()
            if run >= 2:
                kept.append(time.perf_counter() - begin)
    return median(times[0]) / median(times[1])


def saved_memory(seed: int) -> list[Number]:
    """Count the bytes that autograd keeps for the backward pass of a norm and of a Pre-LN block."""
    x = torch.randn(2, 64, 128, generator=torch.Generator().manual_seed(seed), requires_grad=True)
    alone = [_kept(NORMS[norm].make(128, eps=1e-5), x) for norm in ("layernorm", "rmsnorm")]
    blocks = [
        _kept(build(ModelSpec(depth=1, width=128, norm=norm), seed=seed).stack("decoder").blocks[0], x)
        for norm in ("layernorm", "rmsnorm")
    ]
    return [
        Number("norm-memory-ratio", alone[0] / alone[1], None, {"width": 128}),
        Number("block-memory-ratio", blocks[0] / blocks[1], None, {"width": 128, "depth": 1}),
    ]


def _kept(module: nn.Module, x: Tensor) -> float:
    """Bytes of the tensors that are kept, each storage once and parameters left out."""
    storages: dict[int, int] = {}
    own = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = module(x)
    del output
    return float(sum(storages.values()))


def step_time(seed: int) -> list[Number]:
    """Time a forward and backward pass of two models that differ in the norm alone."""
    batch = Random(2, 64).draw(seed)
    first, second = (build(ModelSpec(depth=2, width=128, norm=norm), seed=seed) for norm in ("layernorm", "rmsnorm"))
    ratio = _interleaved(
        lambda: first.loss(*batch).backward(),
        lambda: second.loss(*batch).backward(),
        runs=15,
    )
    return [Number("step-time-saved", 1 - 1 / ratio, None, {"width": 128, "depth": 2})]
