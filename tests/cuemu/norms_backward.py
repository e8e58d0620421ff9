"""Backward of the norms by the emulator, and in float64."""

from cuemu.harness import Emulator, Outcome
from cuemu.norms import H100, Norm, nan_like, placed, scale
from torch import Tensor

from normlab.cupy_kernels import Device
from normlab.cupy_kernels.calls import norm_call


def backward(
    norm: Norm,
    dy: Tensor,
    x: Tensor,
    gain: Tensor | None = None,
    dz: Tensor | None = None,
    emulator: Emulator = Emulator(),  # noqa: B008
    device: Device = H100,
) -> Outcome:
    """Run the backward of ``norm``: dx, and dgain and dbias (of a layer) where there is a gain."""
    shifts, rstds = statistics(norm, x)
    arrays = {"dy": dy, "x": x, "gain": gain, "shifts": shifts, "rstds": rstds, "dz": dz, "dx": nan_like(x)}
    if gain is not None:
        arrays |= {"dgain": nan_like(gain), "dbias": nan_like(gain) if norm.statistic == "layer" else None}
    return emulator.call(norm_call(arrays, **vars(norm), address=placed(emulator)), device)


def statistics(norm: Norm, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return what forward leaves, correctly rounded: the mean less the first element, and the inverse scale."""
    rows = x.double().reshape(-1, x.shape[-1])
    rstds = scale(norm, rows)[1].flatten()
    # A short row is recognised by its inverse scale being that of eps, bit for bit.
    return (rows.mean(1) - rows[:, 0]).float(), rstds.float()


def reference(
    norm: Norm, dy: Tensor, x: Tensor, gain: Tensor | None = None, dz: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return dx, dgain and dbias in float64, dx by automatic differentiation."""
    rows, dy = x.double().reshape(-1, x.shape[-1]).requires_grad_(), dy.double().reshape(-1, x.shape[-1])
    centred, rstd = scale(norm, rows)
    normed = centred * rstd
    (normed * (1.0 if gain is None else gain.double()) * dy).sum().backward()
    dx = rows.grad if dz is None else rows.grad + dz.double()
    normed = normed.detach()
    normed = normed.to(x.dtype).double() if norm.cast_first else normed
    return dx.reshape(x.shape), (dy * normed).sum() if norm.one_gain else (dy * normed).sum(0), dy.sum(0)
