"""The operations of normlab.cupy_kernels on tensors, by the emulator, and the float64 references they are held to."""

from dataclasses import dataclass

import torch
from cuemu.harness import Emulator, Outcome
from torch import Tensor

from normlab.cupy_kernels import DEVICES, Device
from normlab.cupy_kernels.calls import SHORT, Address, norm_call

TORCH = {name: dtype for dtype, name in SHORT.items()}

H100 = DEVICES["sm_90"]


def nan_like(x: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
    """Return NaN in the shape and strides of ``x``, or in ``shape``: what no kernel wrote stays visible."""
    if shape:
        return torch.full(shape, torch.nan, dtype=dtype or x.dtype)
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).fill_(torch.nan)


@dataclass(frozen=True)
class Norm:
    """A norm and its options: what is computed, apart from the data."""

    statistic: str
    eps: float = 1e-5
    cast_first: bool = False
    one_gain: bool = False


def placed(emulator: Emulator) -> Address:
    """Return where the emulator will place each array, but for whole multiples of its boundary."""
    return lambda name, x: emulator.offsets.get(name, 0) * x.element_size()


def forward(
    norm: Norm,
    x: Tensor,
    gain: Tensor | None = None,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    emulator: Emulator = Emulator(),  # noqa: B008
    device: Device = H100,
    y: Tensor | None = None,
) -> Outcome:
    """Run the forward of ``norm`` on [rows, d] or [groups, rows, d]."""
    rows = x.numel() // x.shape[-1]
    arrays = {
        **{"x": x, "gain": gain, "bias": bias, "residual": residual, "y": nan_like(x) if y is None else y},
        **{"z": None if residual is None else nan_like(x, rows, x.shape[-1])},
        **{name: nan_like(x, rows, dtype=torch.float32) for name in ("rstds", "shifts")},
    }
    return emulator.call(norm_call(arrays, **vars(norm), address=placed(emulator)), device)


def scale(norm: Norm, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the centred rows and what they are multiplied by, in float64."""
    x = x.double()
    centred = x - x.mean(-1, keepdim=True) if norm.statistic == "layer" else x
    squares = centred.square().sum(-1, keepdim=True)
    if norm.statistic == "l2":
        return centred, squares.clamp(min=norm.eps).rsqrt()
    return centred, (squares / x.shape[-1] + norm.eps).rsqrt()


def reference(norm: Norm, x: Tensor, gain: Tensor | None = None, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return y in float64 by two routes that differ only where a first rounding could go either way.

    Without ``cast_first`` there is no first rounding and both are the same.
    """
    centred, rstd = scale(norm, x)
    routes = []
    for nudge in (1 - 2.0**-21, 1 + 2.0**-21):
        normed = centred * rstd
        normed = (normed * nudge).to(x.dtype).double() if norm.cast_first and x.dtype != torch.float32 else normed
        normed = normed if gain is None else normed * gain.double()
        routes.append(normed if bias is None else normed + bias.double())
    return routes[0], routes[1]


_DIGITS = {torch.float32: (24, -125), torch.float16: (11, -13), torch.bfloat16: (8, -125)}


def ulp(exact: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the distance of neighbouring numbers of ``dtype`` around ``exact``."""
    digits, least = _DIGITS[dtype]
    _, exponent = torch.frexp(exact.double())
    return torch.ldexp(torch.ones_like(exact, dtype=torch.float64), exponent.clamp(min=least) - digits)


def error_in_ulp(actual: Tensor, exact: Tensor, floor: Tensor | float = 0.0) -> float:
    """Return the largest error in units of the last place of numbers that are ``floor`` at least."""
    size = torch.maximum(exact.abs(), torch.as_tensor(floor, dtype=torch.float64).expand_as(exact))
    error = (actual.double() - exact).abs() / ulp(size, actual.dtype)
    return float(error.max()) if bool(actual.isfinite().all()) else float("inf")
