"""DyT and Derf by the emulator, and in float64."""

import torch
from cuemu.harness import Emulator, Outcome, Value
from cuemu.norms import H100, SHORT, nan_like, row_scalars, vector
from torch import Tensor

from normlab.cupy_kernels import Device, Request, plan


def run(
    operation: str,
    kind: str,
    x: Tensor,
    weights: dict[str, Tensor | None],
    dy: Tensor | None = None,
    emulator: Emulator = Emulator(),  # noqa: B008
    device: Device = H100,
) -> Outcome:
    """Run ``squash_forward`` or, with ``dy``, ``squash_backward`` of ``tanh`` or ``erf``."""
    d, rows, alpha = x.shape[-1], x.numel() // x.shape[-1], weights["alpha"]
    assert alpha is not None
    arrays = {"x": x, "dx" if dy is not None else "y": nan_like(x), **({} if dy is None else {"dy": dy})}
    vectors = {**arrays, **{name: weights[name] for name in ("gain", "bias") if weights[name] is not None}}
    vec = vector(emulator, *vectors.items(), d=d, itemsize=x.element_size())
    wanted = {name: weights[name] is not None for name in ("gain", "bias")}
    request = Request(operation, SHORT[x.dtype], SHORT[alpha.dtype], rows, d, vec, kind, **wanted)
    empty = {f"d{name}": nan_like(each) for name, each in weights.items() if each is not None}
    values: dict[str, Value] = {**arrays, **weights, **empty, "rows": rows, "d": d, **row_scalars(**arrays)}
    return emulator.run(plan(request, device), values)


def reference(kind: str, x: Tensor, weights: dict[str, Tensor | None], dy: Tensor) -> dict[str, Tensor]:
    """Return y and all gradients in float64, by automatic differentiation."""
    leaves = {name: each.double().requires_grad_() for name, each in {**weights, "x": x}.items() if each is not None}
    u = leaves["alpha"] * leaves["x"] + (leaves["shift"] if kind == "erf" else 0.0)
    value = torch.tanh(u) if kind == "tanh" else torch.erf(u)
    y = value * leaves.get("gain", 1.0) + leaves.get("bias", 0.0)
    (y * dy.double()).sum().backward()
    return {"y": y.detach(), **{f"d{name}": each.grad for name, each in leaves.items() if each.grad is not None}}
