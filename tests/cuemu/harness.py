"""Runs kernels of normlab.cupy_kernels on the CPU: the unchanged source, compiled by g++, a fiber for each thread."""

import ctypes
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from cuemu import build
from cuemu.memory import Block, Sparse
from torch import Tensor

from normlab.cupy_kernels import Device, KernelSpec, Parameter, Plan, pack, parameters, plan, render
from normlab.cupy_kernels.calls import Call as OnTensors

SCHEDULES = ("fifo", "lifo", "random")
Value = Tensor | Sparse | int | float | None


class KernelFault(Exception):
    """What the emulator found wrong with a kernel."""


@dataclass(frozen=True)
class Traffic:
    """What a kernel moved of one array: bytes, 32-byte sectors by instruction, and the fewest that could do."""

    read_bytes: int
    written_bytes: int
    read_sectors: int
    written_sectors: int
    fewest_read_sectors: int
    fewest_written_sectors: int
    read_instructions: int
    written_instructions: int


@dataclass(frozen=True)
class Call:
    """A kernel and its launch."""

    symbol: str
    parameters: tuple[Parameter, ...]
    threads: int
    grid: int = 1
    shared_bytes: int = 0


@dataclass(frozen=True)
class Outcome:
    """The arrays that were written, by name; the traffic of each array, by kernel and name, where it was counted."""

    arrays: dict[str, Tensor] = field(default_factory=dict)
    traffic: dict[str, Traffic] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Tensor:
        return self.arrays[name]


@dataclass(frozen=True)
class Emulator:
    """How kernels are run.

    Attributes:
        schedule: the order in which threads run: ``fifo``, ``lifo`` or ``random``.
        seed: of the random order.
        checked: whether every access is checked (slower): bounds, alignment, races.
        counting: whether traffic is counted; needs ``checked``.
        offsets: elements by which arrays miss a 256-byte boundary.
        mutate: what is done to the source before it is compiled.
        blocks: the first block to run, and how many; all where absent.
    """

    schedule: str = "fifo"
    seed: int = 0
    checked: bool = False
    counting: bool = False
    offsets: Mapping[str, int] = field(default_factory=dict)
    mutate: Callable[[str], str] | None = None
    blocks: tuple[int, int] | None = None

    def run(self, chosen: Plan, values: Mapping[str, Value]) -> Outcome:
        """Run the kernels of ``chosen`` one after another on ``values``, by name.

        Args:
            chosen: what to launch.
            values: tensors and numbers for the kernels' arguments; outputs hold what must be there if nothing is
                written.

        Raises:
            KernelFault: the emulator found something wrong.
        """
        specs = tuple(dict.fromkeys(launch.spec for launch in chosen.launches))
        library = self._library(specs)
        known = dict(values) | {name: torch.full((length,), torch.nan) for name, length in chosen.scratch.items()}
        outcome = Outcome()
        for launch in chosen.launches:
            spec = launch.spec
            call = Call(spec.symbol, parameters(spec), spec.threads, launch.grid, launch.shared_bytes)
            arrays = {name: known[other] for name, other in launch.instead.items()}
            part = self.execute(library, call, {**known, **launch.scalars, **arrays})
            written = {launch.instead.get(name, name): array for name, array in part.arrays.items()}
            known.update(written)
            outcome.arrays.update({name: array for name, array in written.items() if name not in chosen.scratch})
            outcome.traffic.update({f"{spec.function}.{name}": each for name, each in part.traffic.items()})
        return outcome

    def call(self, call: OnTensors, device: Device) -> Outcome:
        """Run an operation on tensors, with the kernels that dispatch chooses for ``device``.

        Raises:
            KernelFault: the emulator found something wrong.
        """
        return self.run(plan(call.request, device), call.values)

    def _library(self, specs: tuple[KernelSpec, ...]) -> ctypes.CDLL:
        source = render(specs)
        if self.mutate is not None:
            source = self.mutate(source)
        return build.module(source, tuple(spec.symbol for spec in specs), self.checked)

    def execute(self, library: ctypes.CDLL, call: Call, values: Mapping[str, Value]) -> Outcome:
        """Launch one kernel of a compiled module.

        Raises:
            KernelFault: the emulator found something wrong.
        """
        arrays = {one.name: self._place(one, values.get(one.name)) for one in call.parameters if "*" in one.type}
        if self.checked:
            self._declare(arrays)
        places = {name: None if array is None else array.address for name, array in arrays.items()}
        numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
        self._launch(library, call, pack(call.parameters, {**numbers, **places}))
        copies = {name: array for name, array in arrays.items() if isinstance(array, Block)}
        damage = "; ".join(filter(None, (copy.damage() for copy in copies.values())))
        if damage:
            raise KernelFault(damage)
        written = {name: copy.result() for name, copy in copies.items() if copy.writable}
        return Outcome(written, self._traffic(tuple(arrays)) if self.counting else {})

    def _place(self, parameter: Parameter, value: Value) -> Block | Sparse | None:
        if isinstance(value, Tensor):
            offset = self.offsets.get(parameter.name, 0)
            return Block(parameter.name, value, offset, writable="const" not in parameter.type)
        assert value is None or isinstance(value, Sparse), f"{parameter.name} is no array"
        return value

    def _declare(self, arrays: Mapping[str, Block | Sparse | None]) -> None:
        engine = build.engine()
        engine.cuemu_forget(int(self.counting))
        for array in arrays.values():  # the counters go by the order, so an absent array is declared as empty
            at, size, granule, writable = 1, 0, 1, False
            if isinstance(array, Block):
                at, size, granule, writable = (
                    *(array.address, array.bytes),
                    *(array.original.element_size(), array.writable),
                )
            engine.cuemu_region(*map(ctypes.c_size_t, (at, size, granule)), int(writable))

    def _launch(self, library: ctypes.CDLL, call: Call, packed: tuple[np.generic, ...]) -> None:
        run_entry(
            *(library, call.symbol, call.grid, call.threads, packed, call.shared_bytes),
            blocks=self.blocks,
            order=(self.schedule, self.seed),
        )

    def _traffic(self, names: tuple[str, ...]) -> dict[str, Traffic]:
        counted = {}
        for number, name in enumerate(names):
            eight = (ctypes.c_uint64 * 8)()
            build.engine().cuemu_traffic(number, eight)
            counted[name] = Traffic(*eight)
        return counted


def run_entry(
    library: ctypes.CDLL,
    symbol: str,
    grid: int,
    threads: int,
    packed: tuple[np.generic, ...],
    shared_bytes: int,
    *,
    blocks: tuple[int, int] | None = None,
    order: tuple[str, int] = ("fifo", 0),
) -> None:
    """Launch a kernel of a compiled module on the addresses that its arguments hold.

    Raises:
        KernelFault: the emulator found something wrong.
    """
    engine, kept = build.engine(), [np.asarray(number) for number in packed]
    dynamic, base, size = ctypes.c_void_p(library.cuemu_dynamic()), ctypes.c_void_p(), ctypes.c_size_t()
    assert engine.cuemu_segment(dynamic, ctypes.byref(base), ctypes.byref(size))
    failed = engine.cuemu_launch(
        getattr(library, f"{symbol}_entry"),
        (ctypes.c_void_p * len(kept))(*(number.ctypes.data for number in kept)),
        (ctypes.c_uint * 6)(grid, 1, 1, threads, 1, 1),
        *map(ctypes.c_ulonglong, blocks or (0, grid)),
        *(base, size, dynamic, ctypes.c_size_t(shared_bytes), ctypes.c_size_t(build.MOST_DYNAMIC)),
        *(SCHEDULES.index(order[0]), ctypes.c_uint(order[1])),
    )
    if failed:
        text = engine.cuemu_error().decode()
        raise KernelFault(re.sub(r"\[\[(.*?)\]\]", lambda found: build.line_of(found[1]), text))
