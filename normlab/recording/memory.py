"""How many bytes a step holds: at its highest, and when its forward pass is over."""

import tracemalloc
from types import TracebackType
from typing import Any, Final, NamedTuple

import torch
from torch import nn
from torch.autograd.profiler import record_function

#: Where torch has its older profiler.
_PROFILER: Final[Any] = torch.autograd
_MARK: Final = "normlab: a phase is over"


class Bytes(NamedTuple):
    """What was allocated beyond what was there before.

    Attributes:
        after_forward: when the forward pass was over: what is kept for the backward pass, and the outputs.
        peak: at most.
    """

    after_forward: float
    peak: float


class HostMeter:
    """Counts every allocation of torch on the host, those inside of operations too, and those of Python and numpy.

    Torch's older profiler lists its own in order. (The newer one does too, and writes to the terminal.) Of the
    others the highest number is known in each phase: what both hold together is bounded from above.
    """

    def __init__(self) -> None:
        self._events: list[Any] = []
        self._start, self._others = 0, [0]
        self._tracing = False

    def __enter__(self) -> "HostMeter":
        """Begin to count."""
        self._tracing = tracemalloc.is_tracing()
        if not self._tracing:
            tracemalloc.start()
        self._start, self._others = tracemalloc.get_traced_memory()[0], []
        tracemalloc.reset_peak()
        state, options = _PROFILER.ProfilerState.CPU, torch._C._profiler._ExperimentalConfig()
        # Of its five switches the second is that for memory.
        config = _PROFILER.ProfilerConfig(state, False, True, False, False, False, options)
        _PROFILER._enable_profiler_legacy(config)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        self._note()
        threads = _PROFILER._disable_profiler_legacy()
        self._events = [event for events in threads for event in events]
        if not self._tracing:
            tracemalloc.stop()

    def mark(self) -> None:
        """Say that a phase is over: first the forward pass, then the backward pass."""
        self._note()
        with record_function(_MARK):
            pass

    def _note(self) -> None:
        self._others.append(tracemalloc.get_traced_memory()[1] - self._start)
        tracemalloc.reset_peak()

    @property
    def found(self) -> Bytes:
        """What was counted."""
        held, peaks, after = 0, [0], []
        for event in self._events:
            if event.kind() == "memory_alloc":
                held += event.cpu_memory_usage()
                peaks[-1] = max(peaks[-1], held)
            elif event.kind() == "push" and event.name() == _MARK:
                after.append(held)
                peaks.append(held)
        return Bytes(after[0] if after else held, max(map(sum, zip(peaks, self._others, strict=True))))


class DeviceMeter:
    """Reads the counters of the allocator of an accelerator.

    Args:
        device: which.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._before, self._peak = device, 0, 0
        self._after: list[int] = []

    def __enter__(self) -> "DeviceMeter":
        """Begin to count."""
        torch.cuda.reset_peak_memory_stats(self._device)
        self._before = torch.cuda.memory_allocated(self._device)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        self._peak = torch.cuda.max_memory_allocated(self._device)

    def mark(self) -> None:
        """Say that a phase is over: first the forward pass, then the backward pass."""
        self._after.append(torch.cuda.memory_allocated(self._device))

    @property
    def found(self) -> Bytes:
        """What was counted."""
        return Bytes(self._after[0] - self._before, self._peak - self._before)


def meter_of(model: nn.Module) -> HostMeter | DeviceMeter:
    """Return a meter for the device that a model is on."""
    device = next((tensor.device for tensor in model.parameters()), torch.device("cpu"))
    return DeviceMeter(device) if device.type == "cuda" else HostMeter()
