"""Backward of the norms by the emulator, and in float64."""

from cuemu.harness import Emulator, Outcome, Value
from cuemu.norms import H100, SHORT, Norm, nan_like, row_scalars, scale, vector
from torch import Tensor

from normlab.cupy_kernels import Device, Request, plan


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
    d, rows, layer = x.shape[-1], x.numel() // x.shape[-1], norm.statistic == "layer"
    shifts, rstds = statistics(norm, x)
    dx = nan_like(x)
    given = (("dy", dy), ("x", x), ("gain", gain), ("dz", dz), ("dx", dx))
    arrays = [(name, array) for name, array in given if array is not None and not (name == "gain" and norm.one_gain)]
    vec = vector(emulator, *arrays, d=d, itemsize=x.element_size())
    weight = SHORT[x.dtype if gain is None else gain.dtype]
    wanted = {"gain": gain is not None, "bias": gain is not None and layer, "one_gain": norm.one_gain}
    request = Request("norm_backward", SHORT[x.dtype], weight, rows, d, vec, norm.statistic, **wanted)
    chosen = plan(request, device)
    empty = {} if gain is None else {"dgain": nan_like(gain), "dbias": nan_like(gain)}
    values: dict[str, Value] = {
        **{"dy": dy, "x": x, "gain": gain, "dz": dz, "dx": dx, "shifts": shifts, "rstds": rstds, **empty},
        **{"rows": rows, "d": d, "eps": norm.eps, "one_gain": int(norm.one_gain), "cast_first": int(norm.cast_first)},
        **{**row_scalars(dy=dy, x=x, dx=dx), "dz_stride": 0 if dz is None else dz.stride(0)},
    }
    return emulator.run(chosen, values)


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
