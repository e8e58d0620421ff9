"""Achieved bandwidth of the CUDA kernels, beside other implementations and the device's own copy."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from statistics import median
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F

from normlab.errors import NormlabError
from normlab.norms import backend

#: Rows and features: many rows that fill any device, and widths of every mapping.
SIZES: Final = ((65536, 256), (32768, 1024), (16384, 2048), (16384, 4096), (8192, 8192), (4096, 16384), (1024, 65536))
#: Tensors of a row's size that each operation must move at least.
MOVED: Final = {"forward": 2, "backward": 3, "add": 4, "statistics": 1}
EPS: Final = 1e-5


@dataclass(frozen=True)
class Timing:
    """How long one call took.

    Attributes:
        operation: a key of :data:`MOVED`; RMSNorm, and its statistics for the recorder.
        way: whose implementation.
        rows: number of rows.
        d: features.
        dtype: of the activations.
        seconds: median of the calls.
        bandwidth: bytes that must be moved, a second.
        share_of_copy: that, over what copying a tensor on the device achieves.
    """

    operation: str
    way: str
    rows: int
    d: int
    dtype: str
    seconds: float
    bandwidth: float
    share_of_copy: float


def bench_kernels(
    sizes: tuple[tuple[int, int], ...] = SIZES,
    dtypes: tuple[torch.dtype, ...] = (torch.bfloat16, torch.float32),
    *,
    rounds: int = 30,
    compiled: bool = True,
) -> dict[str, Any]:
    """Time every operation by every way that is installed.

    Args:
        sizes: rows and features.
        dtypes: of activations and weights.
        rounds: calls of each; the median counts.
        compiled: whether torch.compile takes part, which costs some seconds a size.

    Returns:
        ``device``, ``copy_bandwidth`` in bytes a second, ``timings`` as plain rows, and ``slower``: what another way
        does faster.

    Raises:
        NormlabError: there is no CUDA device, or no CuPy.
    """
    if backend.MISSING:
        raise NormlabError(f"the CUDA kernels cannot be timed here: {backend.MISSING}")
    copied = _copy_bandwidth(rounds)
    timings = [
        timing for dtype in dtypes for rows, d in sizes for timing in _timings(rows, d, dtype, copied, rounds, compiled)
    ]
    name = torch.cuda.get_device_name() if backend.DEVICE == "cuda" else backend.DEVICE
    return {
        "device": name,
        "copy_bandwidth": copied,
        "timings": [asdict(timing) for timing in timings],
        "slower": slower(timings),
    }


def slower(timings: list[Timing]) -> list[str]:
    """Name every size at which another way is faster than the kernels."""
    ours = {(each.operation, each.rows, each.d, each.dtype): each for each in timings if each.way == "normlab"}
    found = []
    for each in timings:
        own = ours[each.operation, each.rows, each.d, each.dtype]
        if each.seconds < own.seconds:
            ratio = own.seconds / each.seconds
            found.append(f"{each.operation} {each.rows}x{each.d} {each.dtype}: {each.way} is {ratio:.2f} times as fast")
    return found


def _timings(rows: int, d: int, dtype: torch.dtype, copied: float, rounds: int, compiled: bool) -> Iterator[Timing]:
    noise = torch.Generator(backend.DEVICE).manual_seed(rows + d)
    x, residual, dy = (torch.randn(rows, d, generator=noise, device=backend.DEVICE).to(dtype) for _ in range(3))
    gain = torch.ones(d, dtype=dtype, device=backend.DEVICE)
    for operation, ways in _ways(x, residual, dy, gain, compiled).items():
        for way, call in ways.items():
            seconds = _seconds(call, rounds)
            moved = MOVED[operation] * x.numel() * x.element_size() / seconds
            name = str(dtype).removeprefix("torch.")
            yield Timing(operation, way, rows, d, name, seconds, moved, moved / copied)


def _ways(
    x: Tensor, residual: Tensor, dy: Tensor, gain: Tensor, compiled: bool
) -> dict[str, Mapping[str, Callable[[], Any]]]:
    ours = backend.OPERATORS
    forwards: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "normlab": lambda x, gain: ours.norm(x, gain, None, "rms", EPS, False)[0],
        "torch": lambda x, gain: F.rms_norm(x, x.shape[-1:], gain, EPS),
        **_others(),
    }
    adds: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
        "normlab": lambda x, residual, gain: ours.add_norm(x, residual, gain, None, "rms", EPS, False),
        "torch": lambda x, residual, gain: (F.rms_norm(z := x + residual, x.shape[-1:], gain, EPS), z),
    }
    if compiled:
        forwards["torch.compile"] = torch.compile(forwards["torch"])
        adds["torch.compile"] = torch.compile(adds["torch"])
    with torch.no_grad():
        ready = {way: _bound(forward, x, gain) for way, forward in forwards.items()}
    return {
        "forward": ready,
        "backward": {way: _backward(forward, x, gain, dy) for way, forward in forwards.items()},
        "add": {way: _bound(add, x, residual, gain) for way, add in adds.items()},
        "statistics": {"normlab": lambda: ours.token_moments(x, None), "torch": lambda: torch.var_mean(x, -1)},
    }


def _others() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """Return the RMSNorm of other packages, of those that are installed."""
    found: dict[str, Callable[[Tensor, Tensor], Tensor]] = {}
    if find_spec("liger_kernel"):
        liger = import_module("liger_kernel.transformers.functional")
        found["liger"] = lambda x, gain: liger.liger_rms_norm(x, gain, EPS)
    if find_spec("quack"):
        quack = import_module("quack")
        found["quack"] = lambda x, gain: quack.rmsnorm(x, gain, eps=EPS)
    return found


def _bound(function: Callable[..., Any], *inputs: Tensor) -> Callable[[], Any]:
    def call() -> Any:
        with torch.no_grad():
            return function(*inputs)

    return call


def _backward(forward: Callable[[Tensor, Tensor], Tensor], x: Tensor, gain: Tensor, dy: Tensor) -> Callable[[], Any]:
    leaves = [each.detach().requires_grad_() for each in (x, gain)]
    y = forward(*leaves)
    return lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True)


def _copy_bandwidth(rounds: int) -> float:
    elements = 2**28 if backend.DEVICE == "cuda" else 2**20
    source = torch.empty(elements, dtype=torch.float32, device=backend.DEVICE).zero_()
    target = torch.empty_like(source)
    return 2 * source.numel() * 4 / _seconds(lambda: target.copy_(source), rounds)


def _seconds(call: Callable[[], Any], rounds: int) -> float:
    """Return the median time of a call, on the device's own clock where it has one."""
    for _ in range(3):
        call()
    if backend.DEVICE != "cuda":
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return median(times)
    # Between two calls the second-level cache is emptied: what is to be read comes from memory, as in a model.
    spoil = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(rounds)]
    for start_event, end_event in events:
        spoil.zero_()
        start_event.record()
        call()
        end_event.record()
    torch.cuda.synchronize()
    return float(median(start_event.elapsed_time(end_event) for start_event, end_event in events)) / 1e3
