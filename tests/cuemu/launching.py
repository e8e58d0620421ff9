"""A CuPy that stands in for the real one: the same source, addresses, argument bytes and grids, run by the emulator.

Kernels run in place, on the memory of CPU tensors: what the launch path passes is what they get.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from cuemu import build
from cuemu.harness import run_entry

from normlab.cupy_kernels import DEVICES, Device
from normlab.cupy_kernels.launch import UNASKED, CupyDriver
from normlab.cupy_kernels.torch_ops import register


@dataclass(frozen=True)
class Launched:
    """A kernel, and what it was launched with."""

    symbol: str
    grid: int
    block: int
    arguments: tuple[np.generic, ...]
    shared_bytes: int


@dataclass
class Kernel:
    """Stands for a ``cupy.RawKernel``."""

    code: str
    name: str
    log: list[Launched]
    max_dynamic_shared_size_bytes: int = UNASKED

    def __call__(self, grid: tuple[int], block: tuple[int], args: tuple[np.generic, ...], *, shared_mem: int) -> None:
        assert shared_mem <= self.max_dynamic_shared_size_bytes
        assert all(isinstance(each, np.uint64 | np.int64 | np.int32 | np.float32) for each in args)
        self.log.append(Launched(self.name, *grid, *block, args, shared_mem))
        run_entry(build.module(self.code, (self.name,), False), self.name, *grid, *block, args, shared_mem)


@dataclass
class Cupy:
    """Stands for the module ``cupy``: one device, whose kernels the emulator runs."""

    device: Device
    log: list[Launched] = field(default_factory=list)

    @property
    def cuda(self) -> Any:
        """What stands for ``cupy.cuda``."""
        attributes = {
            "MultiProcessorCount": self.device.multiprocessors,
            "MaxSharedMemoryPerBlockOptin": self.device.shared_bytes,
        }
        return SimpleNamespace(Device=lambda index: SimpleNamespace(attributes=attributes))

    def RawModule(self, *, code: str) -> Any:  # noqa: N802
        """Stand for ``cupy.RawModule``."""
        return SimpleNamespace(get_function=lambda name: Kernel(code, name, self.log))


class EmulatedDriver(CupyDriver):
    """The driver, without the streams of a GPU."""

    def __init__(self, device: Device = DEVICES["sm_90"]) -> None:
        self.cupy = Cupy(device)
        super().__init__(lambda: self.cupy)

    def current(self, index: int) -> AbstractContextManager[None]:
        """Return a context that does nothing."""
        return nullcontext()


DRIVER = EmulatedDriver()
LIBRARY = register("normlab_emulated", "CPU", DRIVER)
#: The operators of ``torch.ops.normlab``, with what runs on CUDA tensors run on CPU tensors.
EMULATED: Any = torch.ops.normlab_emulated
