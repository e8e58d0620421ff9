"""Launches: a plan's kernels one after another, on torch's memory and torch's stream."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from normlab.cupy_kernels.arguments import pack
from normlab.cupy_kernels.calls import Call
from normlab.cupy_kernels.dispatch import plan
from normlab.cupy_kernels.functions import parameters
from normlab.cupy_kernels.plans import Device, Plan, Request
from normlab.cupy_kernels.source import render
from normlab.cupy_kernels.spec import KernelSpec, Parameter
from normlab.errors import NormlabError

#: A compiled kernel: takes blocks, threads a block, arguments in C types and bytes of dynamic shared memory.
Function: TypeAlias = Callable[[int, int, tuple[np.generic, ...], int], None]

#: The most dynamic shared memory that a kernel gets without asking.
UNASKED: Final = 48 * 1024


@runtime_checkable
class Driver(Protocol):
    """What compiles and launches a kernel: a GPU's, or one that stands in for it."""

    def device(self, index: int) -> Device:
        """Return what dispatch must know of the device ``index``."""

    def function(self, spec: KernelSpec, index: int, shared_bytes: int) -> Function:
        """Return the kernel ``spec`` on the device ``index``, which may use so many bytes of dynamic shared memory."""

    def current(self, index: int) -> AbstractContextManager[None]:
        """Make the device ``index``, and torch's stream on it, those that launches go to."""


def launch(call: Call, driver: Driver, index: int) -> None:
    """Launch the kernels of ``call`` on the device ``index``. No rows need none.

    Nothing is copied and nothing waited for: tensors are passed by address, on the stream that torch is using, so
    that its allocator need not be told.

    Raises:
        NormlabError: no kernel serves this call.
    """
    chosen = planned(call.request, driver.device(index))
    if not chosen.launches:
        return
    on = call.values["x"]
    assert isinstance(on, Tensor)
    scratch = {name: on.new_empty(length, dtype=torch.float32) for name, length in chosen.scratch.items()}
    known = {**call.values, **scratch}
    with driver.current(index):
        for one in chosen.launches:
            arrays = {name: known[other] for name, other in one.instead.items()}
            values = {**known, **one.scalars, **arrays}
            addresses = {name: _address(value) for name, value in values.items()}
            function = driver.function(one.spec, index, one.shared_bytes)
            function(one.grid, one.spec.threads, pack(_parameters(one.spec), addresses), one.shared_bytes)


@lru_cache(maxsize=4096)
def planned(request: Request, device: Device) -> Plan:
    """Return :func:`~normlab.cupy_kernels.dispatch.plan`, which is the same whenever it is asked."""
    return plan(request, device)


@cache
def _parameters(spec: KernelSpec) -> tuple[Parameter, ...]:
    return parameters(spec)


def _address(value: Any) -> Any:
    return value.data_ptr() if isinstance(value, Tensor) else value


def missing() -> str:
    """Say what CuPy's launches lack here; nothing if all is there. CuPy is looked for, not imported."""
    if find_spec("cupy") is None:
        return "CuPy is not installed: run pip install 'normlab[cuda]'"
    return "" if torch.cuda.is_available() else "torch sees no CUDA device"


@dataclass(frozen=True)
class _Stream:
    """A stream that CuPy takes for one of its own, whatever torch's release."""

    address: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.address


class CupyDriver:
    """Compiles by NVRTC and launches, through CuPy. CuPy keeps the binaries on disk (``CUPY_CACHE_DIR``).

    A kernel is compiled and loaded when it is first launched, which a CUDA graph must not capture: run once before.

    Args:
        cupy: returns the module.
    """

    def __init__(self, cupy: Callable[[], Any] | None = None) -> None:
        self._cupy = _cupy if cupy is None else cupy
        self._functions: dict[tuple[KernelSpec, int], Any] = {}
        self._devices: dict[int, Device] = {}

    def device(self, index: int) -> Device:
        """Return what dispatch must know of the device ``index``."""
        if index not in self._devices:
            attributes = self._cupy().cuda.Device(index).attributes
            shared = attributes.get("MaxSharedMemoryPerBlockOptin", UNASKED)
            self._devices[index] = Device(attributes["MultiProcessorCount"], shared)
        return self._devices[index]

    def function(self, spec: KernelSpec, index: int, shared_bytes: int) -> Function:
        """Return the kernel ``spec`` on the device ``index``, compiled when it is first asked for."""
        kernel = self._functions.get((spec, index))
        if kernel is None:
            kernel = self._cupy().RawModule(code=render([spec])).get_function(spec.symbol)
            if spec.per == 0:
                kernel.max_dynamic_shared_size_bytes = self.device(index).shared_bytes - 1024
            self._functions[spec, index] = kernel

        def run(grid: int, block: int, arguments: tuple[np.generic, ...], shared: int) -> None:
            kernel((grid,), (block,), arguments, shared_mem=shared)

        return run

    @contextmanager
    def current(self, index: int) -> Iterator[None]:
        """Make the device ``index``, and torch's stream on it, CuPy's own."""
        cupy = self._cupy()
        stream = _Stream(torch.cuda.current_stream(index).cuda_stream)
        with ExitStack() as stack:
            stack.enter_context(torch.cuda.device(index))
            stack.enter_context(cupy.cuda.Stream.from_external(stream))
            yield


@cache
def _cupy() -> Any:
    if reason := missing():
        raise NormlabError(f"the CUDA kernels cannot run here: {reason}")
    return import_module("cupy")
