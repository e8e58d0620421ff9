"""The recorder's kernels by the emulator, and in float64."""

from dataclasses import replace

import torch
from cuemu.harness import Emulator, Outcome
from cuemu.norms import H100, TORCH, nan_like, placed
from torch import Tensor

from normlab.cupy_kernels import Device, Plan, Request, plan
from normlab.cupy_kernels.calls import SHORT, moments_call
from normlab.cupy_kernels.plan_moments import total_moments

CHECKED = Emulator(checked=True)


def moments(x: Tensor, emulator: Emulator = CHECKED, *, mask: Tensor | None = None) -> Tensor:
    """Return the eight numbers of each row."""
    arrays = {"x": x, "mask": mask, "moments": nan_like(x, len(x), 8, dtype=torch.float64)}
    return emulator.call(moments_call(arrays, address=placed(emulator)), H100)["moments"]


def of_columns(x: Tensor) -> Tensor:
    """Return the eight numbers of each column."""
    rows, d = x.shape
    result = nan_like(x, d, 8, dtype=torch.float64)
    values = {"x": x, "moments": result, "rows": d, "columns": rows, "column_stride": x.stride(0)}
    places = {"x_stride": 1, "x_group": 0, "x_group_stride": 0}
    chosen = plan(Request("tensor_moments", SHORT[x.dtype], SHORT[x.dtype], d, rows, 1), H100)
    return CHECKED.run(chosen, {**values, **places})["moments"]


def pair(x: Tensor, other: Tensor, emulator: Emulator = CHECKED, stored: Tensor | None = None) -> Outcome:
    """Return what two tensors have in common, row by row, and what their stored sum lost."""
    empty = {"moments": nan_like(x, len(x), 8, dtype=torch.float64), "lost": nan_like(x, len(x), dtype=torch.float64)}
    call = moments_call({"x": x, "other": other, "stored": stored, **empty}, address=placed(emulator))
    return emulator.call(call, H100)


def total(rows: Tensor, emulator: Emulator = CHECKED) -> Tensor:
    """Return the eight numbers of all rows together."""
    values = {"moments": rows, "total": torch.full((8,), torch.nan, dtype=torch.float64), "rows": len(rows)}
    return emulator.run(Plan((total_moments(),)), values)["total"]


def exact(x: Tensor) -> Tensor:
    """Return the eight numbers of each row in float64."""
    x = x.double()
    mean = x.mean(-1, keepdim=True)
    powers = [(x - mean).pow(power).sum(-1) for power in (2, 3, 4)]
    count = torch.full_like(mean[..., 0], x.shape[-1])
    return torch.stack([count, mean[..., 0], *powers, x.abs().amax(-1), 0 * count, x.square().sum(-1)], -1)


def assert_close(found: Tensor, x: Tensor) -> None:
    """Check 1e-6 of each number, of the size of its terms where they may cancel."""
    expected = exact(x)
    deviation = (x.double() - x.double().mean(-1, keepdim=True)).abs()
    size = expected.abs().clone()
    size[..., 1] = x.double().square().mean(-1).sqrt()
    size[..., 3] = deviation.pow(3).sum(-1)
    assert ((found - expected).abs() <= 1e-6 * size).all()


def draw(rows: int, d: int, dtype: str = "f32") -> Tensor:
    """Draw rows about means that lie apart."""
    noise = torch.Generator().manual_seed(rows + d)
    return (torch.randn(rows, d, generator=noise) + torch.rand(rows, 1, generator=noise)).to(TORCH[dtype])


def tokens(x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the six numbers that the recorder keeps of a token."""
    arrays = {"x": x, "mask": mask, "tokens": nan_like(x, 6, len(x), dtype=torch.float64)}
    return CHECKED.call(moments_call(arrays), H100)["tokens"]


def sequence_sums(x: Tensor, norms: Tensor, emulator: Emulator = CHECKED, device: Device = H100) -> Tensor:
    """Return the sums over the tokens, and over their directions, of each sequence of [sequence, token, feature]."""
    length, d = x.shape[1:]
    call = moments_call({"x": x, "norms": norms.flatten()}, length=length)
    chunks = plan(call.request, device).launches[0].scalars["chunks"]
    parts = nan_like(x, len(x), chunks, 2, d, dtype=torch.float64)
    return emulator.call(replace(call, values={**call.values, "parts": parts}), device)["parts"].sum(1)
