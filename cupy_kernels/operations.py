"""The operations on tensors: outputs are allocated, and kernels launched that write them."""

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from normlab.cupy_kernels.calls import Call, moments_call, norm_call, rows_of, squash_call
from normlab.cupy_kernels.launch import Driver, launch, planned

#: The numbers of a row in the results of ``moments``, and in those of ``pair_moments``.
MOMENTS: Final = ("count", "mean", "m2", "m3", "m4", "largest", "nonfinite", "squares")
PAIR_MOMENTS: Final = ("count", "mean", "other_mean", "m2", "other_m2", "covariance", "product", "nonfinite")
#: What is kept of a token, in the results of ``token_moments``.
TOKEN_MOMENTS: Final = ("mean", "m2", "root_m4", "largest", "nonfinite", "norm")


@dataclass(frozen=True)
class Operations:
    """All operations, by kernels that ``driver`` compiles and launches.

    Tensors of a layout that the kernels do not take (:func:`~normlab.cupy_kernels.calls.rows_of`) are copied into one
    that they do; all others are read in place. Outputs are contiguous. An output that was not asked for is empty.
    """

    driver: Driver

    def norm(
        self, x: Tensor, gain: Tensor | None, bias: Tensor | None, statistic: str, eps: float, cast_first: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return y, and of each row the mean less the first element (of a layer), and the inverse scale."""
        y = x.new_empty(x.shape)
        shifts, rstds = statistics(x, statistic)
        arrays = {"x": _rows(x), "gain": gain, "bias": bias, "y": y, "shifts": _or_none(shifts), "rstds": rstds}
        self._norm(arrays, statistic, eps, cast_first)
        return y, shifts, rstds

    def add_norm(
        self,
        x: Tensor,
        residual: Tensor,
        gain: Tensor | None,
        bias: Tensor | None,
        statistic: str,
        eps: float,
        cast_first: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return y and z = x + residual as stored, of which y is the norm, then as :meth:`norm`."""
        y, z = x.new_empty(x.shape), x.new_empty(x.shape)
        shifts, rstds = statistics(x, statistic)
        weights = {"gain": gain, "bias": bias, "shifts": _or_none(shifts), "rstds": rstds}
        self._norm({"x": _rows(x), "residual": _even(residual), "y": y, "z": z, **weights}, statistic, eps, cast_first)
        return y, z, shifts, rstds

    def norm_backward(
        self,
        dy: Tensor,
        x: Tensor,
        gain: Tensor | None,
        bias: Tensor | None,
        shifts: Tensor,
        rstds: Tensor,
        dz: Tensor | None,
        statistic: str,
        eps: float,
        cast_first: bool,
        gain_wanted: bool,
        bias_wanted: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of x, gain and bias; x is what was normed, and dz reaches it past the norm."""
        dx = x.new_empty(x.shape)
        dgain, dbias = gradient(gain, x, wanted=gain_wanted), gradient(bias, x, wanted=bias_wanted)
        ends = {"dy": _rows(dy), "x": _rows(x), "dz": None if dz is None else _even(dz), "dx": dx}
        weights = {"gain": gain, "dgain": _or_none(dgain), "dbias": _or_none(dbias)}
        self._norm({**ends, **weights, "shifts": _or_none(shifts), "rstds": rstds}, statistic, eps, cast_first)
        return dx, dgain, dbias

    def squash(
        self, x: Tensor, alpha: Tensor, shift: Tensor | None, gain: Tensor | None, bias: Tensor | None, function: str
    ) -> Tensor:
        """Return gain · f(alpha · x + shift) + bias."""
        y = x.new_empty(x.shape)
        arrays = {"x": _rows(x), "alpha": alpha, "shift": shift, "gain": gain, "bias": bias, "y": y}
        self._launch(squash_call(arrays, function=function) if x.numel() else None)
        return y

    def squash_backward(
        self,
        dy: Tensor,
        x: Tensor,
        alpha: Tensor,
        shift: Tensor | None,
        gain: Tensor | None,
        bias: Tensor | None,
        function: str,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return the gradients of x, alpha, shift, gain and bias."""
        dx = x.new_empty(x.shape)
        weights = {"alpha": alpha, "shift": shift, "gain": gain, "bias": bias}
        gradients = {f"d{name}": gradient(each, x, wanted=each is not None) for name, each in weights.items()}
        written = {name: _or_none(each) for name, each in gradients.items()}
        arrays = {"dy": _rows(dy), "x": _rows(x), "dx": dx, "alpha": alpha, "shift": shift, "gain": gain, **written}
        self._launch(squash_call(arrays, function=function) if x.numel() else None)
        return dx, gradients["dalpha"], gradients["dshift"], gradients["dgain"], gradients["dbias"]

    def moments(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the :data:`MOMENTS` of each row, ``[*rows, 8]`` in float64; zeros for rows that the mask leaves out.

        The elements of a row need not be neighbours: ``x.T`` gives those of each channel, ``x.reshape(1, -1)`` those
        of all elements.
        """
        found = _doubles(x, *x.shape[:-1], len(MOMENTS))
        self._launch(moments_call({"x": _any(x), "mask": _bytes(mask), "moments": found}) if x.numel() else None)
        return found

    def pair_moments(
        self, x: Tensor, other: Tensor, stored: Tensor | None, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the :data:`PAIR_MOMENTS` of each row, and what their stored sum lost to rounding, squared."""
        found = _doubles(x, *x.shape[:-1], len(PAIR_MOMENTS))
        lost = _doubles(x, *(x.shape[:-1] if stored is not None else (0,)))
        ends = {"x": _rows(x), "other": _rows(other), "stored": None if stored is None else _rows(stored)}
        arrays = {**ends, "mask": _bytes(mask), "moments": found, "lost": _or_none(lost)}
        self._launch(moments_call(arrays) if x.numel() else None)
        return found, lost

    def token_moments(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the :data:`TOKEN_MOMENTS`, ``[6, *rows]`` in float64.

        A row that is masked or not finite has NaN for its mean and its norm, and zero moments.
        """
        found = _doubles(x, len(TOKEN_MOMENTS), *x.shape[:-1])
        self._launch(moments_call({"x": _any(x), "mask": _bytes(mask), "tokens": found}) if x.numel() else None)
        return found

    def sequence_sums(self, x: Tensor, norms: Tensor) -> Tensor:
        """Return Σx and Σx/|x| over the tokens of each sequence, ``[sequence, 2, feature]`` in float64.

        Args:
            x: ``[sequence, token, feature]``.
            norms: ``[sequence, token]``; a token whose norm is NaN is left out.
        """
        sequences, length, d = x.shape
        if not x.numel():
            return _doubles(x, sequences, 2, d).zero_()
        arrays = {"x": _rows(x), "norms": norms.contiguous()}
        chosen = planned(moments_call(arrays, length=length).request, self.driver.device(x.device.index or 0))
        parts = _doubles(x, sequences, chosen.launches[0].scalars["chunks"], 2, d)
        self._launch(moments_call({**arrays, "parts": parts}, length=length))
        return parts.sum(1)

    def _norm(self, arrays: dict[str, Tensor | None], statistic: str, eps: float, cast_first: bool) -> None:
        x, gain = arrays["x"], arrays["gain"]
        assert x is not None
        if not x.numel():
            return
        one_gain = gain is not None and gain.dim() == 0
        options: dict[str, Any] = {"statistic": statistic, "eps": eps, "cast_first": cast_first}
        self._launch(norm_call(arrays, **options, one_gain=one_gain))

    def _launch(self, call: Call | None) -> None:
        if call is None:
            return
        x = call.values["x"]
        assert isinstance(x, Tensor)
        launch(call, self.driver, x.device.index or 0)


def statistics(x: Tensor, statistic: str) -> tuple[Tensor, Tensor]:
    """Return where a forward puts the statistics of the rows of ``x``; only a layer's have a shift."""
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    shifts = x.new_empty(x.shape[:-1] if statistic == "layer" else (0,), dtype=dtype)
    return shifts, x.new_empty(x.shape[:-1], dtype=dtype)


def gradient(weight: Tensor | None, x: Tensor, *, wanted: bool) -> Tensor:
    """Return where a backward puts the gradient of ``weight``: empty if it is not wanted, zero if there is no row."""
    if weight is None or not wanted:
        return x.new_empty(0)
    return weight.new_empty(weight.shape) if x.numel() else weight.new_zeros(weight.shape)


def _doubles(x: Tensor, *shape: int) -> Tensor:
    return x.new_empty(shape, dtype=torch.float64) if x.numel() else x.new_zeros(shape, dtype=torch.float64)


def _or_none(x: Tensor) -> Tensor | None:
    return x if x.numel() else None


def _rows(x: Tensor) -> Tensor:
    return x if rows_of(x) is not None else x.contiguous()


def _any(x: Tensor) -> Tensor:
    return x if x.dim() == 2 else _rows(x)


def _even(x: Tensor) -> Tensor:
    """Return ``x`` with all rows equally far apart."""
    found = rows_of(x)
    return x if found is not None and found[1] == 0 else x.contiguous()


def _bytes(mask: Tensor | None) -> Tensor | None:
    if mask is None:
        return None
    return mask.contiguous().view(torch.uint8) if mask.dtype == torch.bool else mask.contiguous()
