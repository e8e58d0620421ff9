"""Times of LayerNorm, RMSNorm and a fused residual add on a GPU: nothing without one."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from normlab.benchmarks import WAYS, Problem, median_seconds
from normlab.benchmarks.ways import EPS, fused_layer_norm, fused_rms_norm
from normlab.claims.evidence import Number

#: 64 MB in bfloat16: far more than a GPU's caches hold.
_ROWS, _WIDTH = 8192, 4096
_SIZE = {"width": _WIDTH}


def norm_times(seed: int, *, rows: int = _ROWS, width: int = _WIDTH, device: str = "cuda") -> list[Number]:
    """Time both norms forward in bfloat16: written out, compiled, as torch's own operations, as normlab's kernels.

    What cannot run is not a number.
    """
    torch.compiler.reset()  # every seed would compile the same code again, up to a limit
    problem = Problem.draw(rows, width, seed=seed, dtype=torch.bfloat16, device=device)
    wanted = ("eager", "compiled", "fused", "kernels")
    ways = [way for way in wanted if not WAYS[way].missing(device, torch.bfloat16)]
    runs = {f"{norm}-{way}": WAYS[way].forward(norm, problem) for way in ways for norm in ("layernorm", "rmsnorm")}
    medians = median_seconds(runs, seed=seed, device=device)
    ratios = {way: medians[f"layernorm-{way}"] / medians[f"rmsnorm-{way}"] for way in ways}
    return [Number(f"gpu-ratio-{way}", ratios.get(way, math.nan), None, _SIZE) for way in wanted]


def fused_add(seed: int, *, rows: int = _ROWS, width: int = _WIDTH, device: str = "cuda") -> list[Number]:
    """Time a residual add and a norm of the sum, as two operations and compiled into one; both return sum and norm."""
    torch.compiler.reset()  # every seed would compile the same code again, up to a limit
    problem = Problem.draw(rows, width, seed=seed, dtype=torch.bfloat16, device=device)
    found = []
    for name, norm in (("layernorm", fused_layer_norm), ("rmsnorm", fused_rms_norm)):
        apart = _add_and(norm, problem)
        together = torch.compile(_written_out(name, problem), dynamic=False)
        medians = median_seconds({"apart": apart, "together": together}, seed=seed, device=device)
        found.append(Number(f"gpu-add-{name}", medians["apart"] / medians["together"], None, _SIZE))
    return found


def _add_and(norm: Callable[[Tensor, Tensor, Tensor], Tensor], problem: Problem) -> Callable[[], tuple[Tensor, Tensor]]:
    def run() -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            total = problem.x + problem.dy
            return total, norm(total, problem.gain, problem.bias)

    return run


def _written_out(name: str, problem: Problem) -> Callable[[], tuple[Tensor, Tensor]]:
    """The same with statistics in float32, in operations that a compiler can put into one kernel."""

    def run() -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            total = problem.x + problem.dy
            wide = total.float()
            centred = wide - wide.mean(-1, keepdim=True) if name == "layernorm" else wide
            normed = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + EPS) * problem.gain
            return total, (normed + problem.bias if name == "layernorm" else normed).to(total.dtype)

    return run
