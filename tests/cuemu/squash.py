"""DyT and Derf by the emulator, and in float64."""

import torch
from cuemu.harness import Emulator, Outcome
from cuemu.norms import H100, nan_like, placed
from torch import Tensor

from normlab.cupy_kernels import Device
from normlab.cupy_kernels.calls import squash_call


def run(
    kind: str,
    x: Tensor,
    weights: dict[str, Tensor | None],
    dy: Tensor | None = None,
    emulator: Emulator = Emulator(),  # noqa: B008
    device: Device = H100,
) -> Outcome:
    """Run the forward or, with ``dy``, the backward of ``tanh`` or ``erf``."""
    arrays: dict[str, Tensor | None] = {"x": x, **weights}
    if dy is None:
        arrays |= {"y": nan_like(x)}
    else:
        empty = {f"d{name}": nan_like(each) for name, each in weights.items() if each is not None}
        arrays |= {"dy": dy, "dx": nan_like(x), **empty}
    return emulator.call(squash_call(arrays, function=kind, address=placed(emulator)), device)


def reference(kind: str, x: Tensor, weights: dict[str, Tensor | None], dy: Tensor) -> dict[str, Tensor]:
    """Return y and all gradients in float64, by automatic differentiation."""
    leaves = {name: each.double().requires_grad_() for name, each in {**weights, "x": x}.items() if each is not None}
    u = leaves["alpha"] * leaves["x"] + (leaves["shift"] if kind == "erf" else 0.0)
    value = torch.tanh(u) if kind == "tanh" else torch.erf(u)
    y = value * leaves.get("gain", 1.0) + leaves.get("bias", 0.0)
    (y * dy.double()).sum().backward()
    return {"y": y.detach(), **{f"d{name}": each.grad for name, each in leaves.items() if each.grad is not None}}
