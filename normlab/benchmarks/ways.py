"""The ways to compute a norm: NumPy, torch's operations one by one, compiled, and fused; the kernels of normlab."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from normlab.benchmarks.timing import Timed

EPS: Final = 1e-5
NORMS: Final = ("layernorm", "rmsnorm")

Array: TypeAlias = NDArray[np.float32]
#: Maps x, gain and bias to y.
Function: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Problem:
    """What is normalized: rows of features, a gain, a bias that RMSNorm does not use, and the gradient of y.

    Attributes:
        x: ``[rows, width]``.
        gain: ``[width]``.
        bias: ``[width]``.
        dy: gradient at the output, ``[rows, width]``.
    """

    x: Tensor
    gain: Tensor
    bias: Tensor
    dy: Tensor

    @classmethod
    def draw(
        cls, rows: int, width: int, *, seed: int = 0, dtype: torch.dtype = torch.float32, device: str = "cpu"
    ) -> "Problem":
        """Draw one from a standard normal distribution."""
        generator = torch.Generator().manual_seed(seed)
        shapes = ((rows, width), (width,), (width,), (rows, width))
        drawn = [torch.randn(shape, generator=generator).to(device, dtype) for shape in shapes]
        return cls(*drawn)


@dataclass(frozen=True)
class Way:
    """A way to compute both norms.

    Attributes:
        name: in tables and on the command line.
        words: what it is.
        forward: returns what is timed, for a norm and a problem: y without gradients.
        both: the same for a forward and a backward pass, up to the gradients of x, gain and bias.
        missing: why it cannot be done for a device and a type of numbers here; nothing if it can.
    """

    name: str
    words: str
    forward: Callable[[str, Problem], Timed]
    both: Callable[[str, Problem], Timed]
    missing: Callable[[str, torch.dtype], str]


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """LayerNorm written out in torch's operations."""
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    variance = centred.square().mean(-1, keepdim=True)
    return centred * torch.rsqrt(variance + EPS) * gain + bias


def rms_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """RMSNorm written out in torch's operations."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * gain


def fused_layer_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """LayerNorm as torch's own operation."""
    return torch.nn.functional.layer_norm(x, gain.shape, gain, bias, EPS)


def fused_rms_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """RMSNorm as torch's own operation."""
    return torch.nn.functional.rms_norm(x, list(gain.shape), gain, EPS)


def numpy_forward(norm: str, x: Array, gain: Array, bias: Array) -> Array:
    """Either norm written out in NumPy."""
    if norm == "layernorm":
        centred = x - x.mean(-1, keepdims=True)
        return np.asarray(centred / np.sqrt(x.var(-1, keepdims=True) + np.float32(EPS)) * gain + bias)
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(EPS)) * gain)


def numpy_both(norm: str, x: Array, gain: Array, bias: Array, dy: Array) -> tuple[Array, ...]:
    """Either norm and its gradients, written out in NumPy: y, dx, and the gradients of gain and bias.

    With x̂ the normalized row and g = dy·γ: dx = (g − mean(g) − x̂·mean(g·x̂))/σ for LayerNorm, and
    dx = (g − x̂·mean(g·x̂))/rms for RMSNorm.
    """
    layer = norm == "layernorm"
    centred = x - x.mean(-1, keepdims=True) if layer else x
    inverse = 1 / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(EPS))
    normed = centred * inverse
    weighted = dy * gain
    dx = weighted - normed * (weighted * normed).mean(-1, keepdims=True)
    if layer:
        dx = dx - weighted.mean(-1, keepdims=True)
        return normed * gain + bias, dx * inverse, (dy * normed).sum(0), dy.sum(0)
    return normed * gain, dx * inverse, (dy * normed).sum(0)


def _numpy_forward(norm: str, problem: Problem) -> Timed:
    x, gain, bias = problem.x.numpy(), problem.gain.numpy(), problem.bias.numpy()
    return lambda: numpy_forward(norm, x, gain, bias)


def _numpy_both(norm: str, problem: Problem) -> Timed:
    x, gain, bias, dy = problem.x.numpy(), problem.gain.numpy(), problem.bias.numpy(), problem.dy.numpy()
    return lambda: numpy_both(norm, x, gain, bias, dy)


def forward_of(function: Function, problem: Problem) -> Timed:
    """Return what computes y without gradients."""

    def run() -> Tensor:
        with torch.no_grad():
            return function(problem.x, problem.gain, problem.bias)

    return run


def both_of(function: Function, norm: str, problem: Problem) -> Timed:
    """Return what computes y and the gradients of x, the gain and, for LayerNorm, the bias."""
    x, gain, bias = (each.detach().requires_grad_() for each in (problem.x, problem.gain, problem.bias))
    wanted = (x, gain, bias) if norm == "layernorm" else (x, gain)
    return lambda: torch.autograd.grad(function(x, gain, bias), wanted, problem.dy)


def _torch_way(name: str, words: str, functions: dict[str, Function]) -> Way:
    return Way(
        name,
        words,
        lambda norm, problem: forward_of(functions[norm], problem),
        lambda norm, problem: both_of(functions[norm], norm, problem),
        lambda device, dtype: "",
    )


def _compiled(norm: str) -> Function:
    # Dynamic shapes would time code that no fixed size gets.
    function: Function = torch.compile({"layernorm": layer_norm, "rmsnorm": rms_norm}[norm], dynamic=False)
    return function


def kernel_norm(norm: str) -> Function:
    """Either norm as this package's operator, which runs the CUDA kernels on a GPU."""
    import normlab.norms  # noqa: F401 - defines the operator

    def layer(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
        y: Tensor = torch.ops.normlab.norm(x, gain, bias, "layer", EPS, False)[0]
        return y

    def rms(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
        y: Tensor = torch.ops.normlab.norm(x, gain, None, "rms", EPS, False)[0]
        return y

    return layer if norm == "layernorm" else rms


def no_kernels(device: str, dtype: torch.dtype = torch.float32) -> str:
    """Say why the CUDA kernels cannot run; nothing if they can."""
    from normlab.cupy_kernels.launch import missing

    return missing() if device.startswith("cuda") else "the CUDA kernels need a GPU"


def _no_compiler(device: str, dtype: torch.dtype) -> str:
    if device == "cpu" and not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        return "torch.compile needs a C++ compiler, and there is none"
    return ""


def _no_numpy(device: str, dtype: torch.dtype) -> str:
    return "" if device == "cpu" and dtype == torch.float32 else "NumPy computes float32 on the CPU"


#: Every way, in the order of the tables.
WAYS: Final[dict[str, Way]] = {
    way.name: way
    for way in (
        Way("numpy", "written out in NumPy", _numpy_forward, _numpy_both, _no_numpy),
        _torch_way("eager", "written out in torch, one operation after another",
                   {"layernorm": layer_norm, "rmsnorm": rms_norm}),
        Way(
            "compiled",
            "the same through torch.compile",
            lambda norm, problem: forward_of(_compiled(norm), problem),
            lambda norm, problem: both_of(_compiled(norm), norm, problem),
            _no_compiler,
        ),
        _torch_way("fused", "torch's own layer_norm and rms_norm",
                   {"layernorm": fused_layer_norm, "rmsnorm": fused_rms_norm}),
        Way(
            "kernels",
            "normlab's CUDA kernels",
            lambda norm, problem: forward_of(kernel_norm(norm), problem),
            lambda norm, problem: both_of(kernel_norm(norm), norm, problem),
            no_kernels,
        ),
    )
}  # fmt: skip
