"""Times and memory of LayerNorm and RMSNorm on a CPU."""

import torch
from torch import Tensor, nn

from normlab.benchmarks import WAYS, Problem, fixed_threads, median_seconds
from normlab.benchmarks.timing import Timed
from normlab.claims.evidence import Number
from normlab.data import Random
from normlab.models import build
from normlab.norms import NORMS
from normlab.spec import ModelSpec

_ROWS = 32


def numpy_norms(seed: int) -> list[Number]:
    """Time both norms, written out in NumPy and as torch's own operations, forward, on one thread."""
    with fixed_threads(1):
        return [found for width in (256, 1024, 4096) for found in _ratios(seed, width)]


def _ratios(seed: int, width: int) -> list[Number]:
    problem = Problem.draw(_ROWS, width, seed=seed)
    runs: dict[str, Timed] = {
        f"{norm}-{way}": WAYS[way].forward(norm, problem)
        for way in ("numpy", "fused")
        for norm in ("layernorm", "rmsnorm")
    }
    medians = median_seconds(runs, seed=seed)
    return [
        Number(f"{name}-ratio-{width}", medians[f"layernorm-{way}"] / medians[f"rmsnorm-{way}"], None, {"width": width})
        for name, way in (("numpy", "numpy"), ("torch", "fused"))
    ]


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
    medians = median_seconds(
        {"layernorm": lambda: first.loss(*batch).backward(), "rmsnorm": lambda: second.loss(*batch).backward()},
        seed=seed,
    )
    saved = 1 - medians["rmsnorm"] / medians["layernorm"]
    return [Number("step-time-saved", saved, None, {"width": 128, "depth": 2})]
