"""Cases that are run by the emulator and, by tools/gpu_check, on a device: kernels against float64, one bound each."""

from collections.abc import Callable
from typing import Final

import torch
from cuemu import norms_backward, squash
from cuemu.harness import Emulator
from cuemu.norms import TORCH, Norm, error_in_ulp, forward, nan_like, placed, reference, scale
from torch import Tensor

from normlab.cupy_kernels import Device
from normlab.cupy_kernels.calls import moments_call

Case = Callable[[Emulator, Device], None]
#: (rows, elements of a row): every mapping of rows to threads, odd widths, shared memory, split rows.
SHAPES: Final = ((5, 1), (33, 61), (37, 64), (9, 1000), (5, 4096), (3, 8200), (2, 16_400), (1, 70_000))
#: Row lengths for what no row ties together.
POINTWISE: Final = (61, 1000, 4096)
KINDS: Final = (("f32", "f32"), ("f16", "f16"), ("bf16", "bf16"), ("bf16", "f32"))


def draw(rows: int, d: int, dtype: str, seed: int = 0) -> Tensor:
    """Draw rows whose scales lie apart."""
    noise = torch.Generator().manual_seed(seed + rows + d)
    scales = 2.0 ** torch.arange(rows).remainder(5).sub(2).unsqueeze(1)
    return (torch.randn(rows, d, generator=noise) * scales + 0.3).to(TORCH[dtype])


def check(found: Tensor, exact: Tensor, size: Tensor | float = 0.0) -> None:
    """Allow 0.52 units in the last place where storage rounds and 8 in float32, of numbers of ``size`` at least."""
    half = found.dtype != torch.float32
    floor = torch.as_tensor(size, dtype=torch.float64) * (2.0**-8 if half else 1.0)
    error = error_in_ulp(found, exact.reshape(found.shape), floor)
    assert error <= (0.52 if half else 8), f"{error:.3g} units in the last place"


def forward_case(statistic: str, rows: int, d: int, dtype: str, weight: str, add: bool) -> Case:
    """Return the check of a forward."""

    def run(runner: Emulator, device: Device) -> None:
        x, gain = draw(rows, d, dtype), 1 + draw(1, d, weight, seed=1)[0] / 2
        residual = draw(rows, d, dtype, seed=2) if add else None
        z = x if residual is None else x + residual
        done = forward(Norm(statistic), x, gain, residual=residual, emulator=runner, device=device)
        size = 4.0 if statistic == "layer" else 2.0 * scale(Norm(statistic), z)[1] * z.double().abs().amax(-1, True)
        check(done["y"], reference(Norm(statistic), z, gain)[0], size)
        check(done["rstds"], scale(Norm(statistic), z)[1])
        assert not add or done["z"].equal(z)

    return run


def backward_case(statistic: str, rows: int, d: int, dtype: str, weight: str) -> Case:
    """Return the check of a backward."""

    def run(runner: Emulator, device: Device) -> None:
        norm, x, dy = Norm(statistic), draw(rows, d, dtype), draw(rows, d, dtype, seed=3)
        gain = 1 + draw(1, d, weight, seed=1)[0] / 2
        done = norms_backward.backward(norm, dy, x, gain, emulator=runner, device=device)
        exact = norms_backward.reference(norm, dy, x, gain)
        terms = dy.double() * gain.double() * scale(norm, x)[1]
        check(done["dx"], exact[0], 4 * terms.abs().amax(-1, True))
        for name, each in zip(("dgain", "dbias"), exact[1:], strict=True):
            if name in done.arrays:
                check(done[name], each, rows * dy.double().square().mean().sqrt())

    return run


def squash_case(kind: str, rows: int, d: int, dtype: str, weight: str) -> Case:
    """Return the check of DyT or Derf, forward and backward."""

    def run(runner: Emulator, device: Device) -> None:
        x, dy, gain = draw(rows, d, dtype), draw(rows, d, dtype, seed=3), 1 + draw(1, d, weight, seed=1)[0] / 2
        number = torch.tensor([0.75]).to(TORCH[weight])
        shift = number if kind == "erf" else None
        weights: dict[str, Tensor | None] = {"alpha": number, "shift": shift, "gain": gain, "bias": gain / 2}
        exact = squash.reference(kind, x, {**weights, "shift": number}, dy)
        check(squash.run(kind, x, weights, emulator=runner, device=device)["y"], exact["y"], 4.0)
        done = squash.run(kind, x, weights, dy, emulator=runner, device=device)
        check(done["dx"], exact["dx"], 8 * float(dy.abs().max()))
        check(done["dgain"], exact["dgain"], rows * float(dy.abs().max()))

    return run


def moments_case(rows: int, d: int, dtype: str, factor: float) -> Case:
    """Return the check of the recorder's kernel: 1e-6 of each number, at any scale."""

    def run(runner: Emulator, device: Device) -> None:
        x = (draw(rows, d, dtype).double() * factor).to(TORCH[dtype])
        arrays = {"x": x, "tokens": nan_like(x, 6, rows, dtype=torch.float64)}
        found = runner.call(moments_call(arrays, address=placed(runner)), device)["tokens"]
        wide = x.double()
        centred = wide - wide.mean(-1, keepdim=True)
        exact = (wide.mean(-1), centred.square().sum(-1), centred.square().norm(dim=-1), wide.abs().amax(-1))
        for one, other in zip(found[:4], exact, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6 * float(other.abs().max()))

    return run


def _cases() -> dict[str, Case]:
    made: dict[str, Case] = {}
    for rows, d in SHAPES:
        for dtype, weight in KINDS:
            where = f"{rows}x{d} {dtype} {weight}"
            for statistic in ("rms", "layer", *(("l2",) if dtype != weight else ())):
                made[f"forward {statistic} {where}"] = forward_case(statistic, rows, d, dtype, weight, False)
                made[f"backward {statistic} {where}"] = backward_case(statistic, rows, d, dtype, weight)
            made[f"add rms {where}"] = forward_case("rms", rows, d, dtype, weight, True)
            for kind in ("tanh", "erf") if d in POINTWISE else ():
                made[f"{kind} {where}"] = squash_case(kind, rows, d, dtype, weight)
        for factor in (1e-20, 1.0, 1e20):
            made[f"moments {rows}x{d} f32 {factor:g}"] = moments_case(rows, d, "f32", factor)
    return made


CASES: Final = _cases()
#: Few enough for a sanitizer that slows kernels down a hundredfold.
SMALL: Final = tuple(name for name in CASES if any(f" {shape} " in name for shape in ("33x61", "9x1000")))
