"""Instructions of a compiled kernel for one element, from nvdisasm's listing.

What is counted is one trip of the loop that goes over the rows, or over the columns of a long row: of the ways through
it the one that moves most bytes of device memory, of those the one that computes most, of those the shortest. So it
serves a row in full, with gain and bias and a residual gradient, and takes no slow path of a division. A row in shared
memory is gone over by two loops or three, whose trips are added. All that is issued counts, predicated or not.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import lcm
from typing import Final

from normlab.cupy_kernels.accesses import promise, width
from normlab.cupy_kernels.paths import Block, trips
from normlab.cupy_kernels.spec import KernelSpec
from normlab.errors import NormlabError

#: The kinds of instructions that are counted apart; ``other`` are addresses, moves, comparisons and conversions.
KINDS: Final = ("global", "shared", "arithmetic", "special", "exchange", "control", "other")
_OPCODES: Final = {
    "global": "LDG STG",
    "shared": "LDS STS",
    "arithmetic": "FADD FMUL FFMA FADD2 FMUL2 FFMA2 FMNMX FMNMX3 FSETP FSET FSEL FCHK DADD DMUL DFMA DSETP DMNMX",
    "special": "MUFU",
    "exchange": "SHFL BAR VOTE WARPSYNC",
    "control": "BRA BSSY BSYNC BREAK CALL RET EXIT NOP",
}
_KIND_OF: Final = {opcode: kind for kind, opcodes in _OPCODES.items() for opcode in opcodes.split()}
_SECTION: Final = re.compile(r"^\.text\.(\w+):$", re.MULTILINE)
_LINE: Final = re.compile(
    r"^(?:([.$][^\s:]+):|\s+/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);)", re.MULTILINE
)
_TARGET: Final = re.compile(r"`\(([^)]+)\)")
_CONDITION: Final = re.compile(r"\s*!?U?[PR]\w+,")  # a second predicate before the label
_WIDTH: Final = re.compile(r"\.(128|64|[US]16|[US]8)\b")
_BYTES: Final = {"": 4, "128": 16, "64": 8, "16": 2, "8": 1}


@dataclass(frozen=True)
class Work:
    """What a thread executes for a few elements.

    Attributes:
        elements: how many.
        counts: instructions of each of :data:`KINDS`.
    """

    elements: int
    counts: tuple[int, ...]

    def an_element(self, *kinds: str) -> float:
        """Return the instructions for one element; all of them unless ``kinds`` are named."""
        return sum(self.counts[KINDS.index(kind)] for kind in kinds or KINDS) / self.elements


@dataclass(frozen=True)
class Instruction:
    """An instruction: its name with all suffixes, and how many the subroutine has that it calls."""

    name: str
    called: int = 0

    @property
    def opcode(self) -> str:
        """The name without suffixes."""
        return self.name.split(".")[0]

    @property
    def kind(self) -> str:
        """Which of :data:`KINDS` it is."""
        return _KIND_OF.get(self.opcode, "other")

    @property
    def bytes(self) -> int:
        """Bytes of memory that it moves for a thread."""
        found = _WIDTH.search(self.name)
        return _BYTES[found[1].lstrip("US") if found else ""] if self.kind in ("global", "shared") else 0


def work(listing: str, specs: Iterable[KernelSpec]) -> dict[str, Work]:
    """Return the work of each kernel in ``listing``, the output of ``nvdisasm -c``, by symbol.

    Raises:
        NormlabError: a kernel accesses local memory, or moves a row by other widths than it promises.
    """
    known = {spec.symbol: spec for spec in specs}
    parts = _SECTION.split(listing)[1:]  # a symbol, its code, a symbol, its code
    return {symbol: _work(known[symbol], body) for symbol, body in zip(parts[::2], parts[1::2], strict=True)}


def _work(spec: KernelSpec, body: str) -> Work:
    if local := re.findall(r"\s(?:LDL|STL)\b", body):
        raise NormlabError(f"{spec.symbol} accesses local memory {len(local)} times: nothing may spill")
    served = [_Trip(spec, path) for path in trips(blocks(body), _cost)]
    chosen = _phases(trip for trip in served if trip.serves)
    if len(chosen) != (1 if spec.per else 3 if spec.statistic == "layer" else 2):
        raise NormlabError(f"{spec.symbol} does not move its row by {width(spec)} bytes at once")
    whole = lcm(*(trip.serves for trip in chosen))
    counts = {kind: sum(trip.count(kind) * whole // trip.serves for trip in chosen) for kind in KINDS}
    return Work(whole, tuple(counts.values()))


def _cost(instruction: Instruction) -> tuple[int, int, int]:
    """Return what a way is chosen by: see the head of this file."""
    moved = instruction.bytes if instruction.kind == "global" else 0
    return -moved, -int(instruction.kind == "arithmetic"), 1 + instruction.called


class _Trip:
    """One trip of a loop; ``serves`` is how many elements of a row by the widths that are promised, or 0."""

    def __init__(self, spec: KernelSpec, instructions: Sequence[Instruction]) -> None:
        self._all = instructions
        self._moved = Counter((each.opcode, each.bytes) for each in instructions if each.bytes)
        self.kept, self.read, self.loaded, self.stored = map(self._bytes, ("STS", "LDS", "LDG", "STG"))
        self.serves = self._held(spec) if spec.per == 0 else self._streamed(spec)
        self.does = spec.per == 0 and (self.kept > 0, self.stored > 0 and not self.kept)

    @property
    def rank(self) -> tuple[float, int]:
        """Where compilers made several loops of one: those that move more of each element, then the most unrolled."""
        return (self.loaded + self.stored) / self.serves, self.serves

    def count(self, kind: str) -> int:
        """Return the instructions of a kind."""
        return sum(1 + each.called for each in self._all if each.kind == kind)

    def _bytes(self, opcode: str) -> int:
        return sum(count * bytes for (name, bytes), count in self._moved.items() if name == opcode)

    def _streamed(self, spec: KernelSpec) -> int:
        made, wide = promise(spec), width(spec)
        loads, stores = self._moved["LDG", wide], self._moved["STG", wide]
        if spec.function in ("norm_forward", "norm_backward"):  # unrolled whole; a row's statistics are stored besides
            times = int(stores >= made.stores)
        elif made.stores:
            times = stores // made.stores
        else:
            times = self.loaded // (made.loads * wide + made.beside)
        return times * made.elements if loads >= times * made.loads else 0

    def _held(self, spec: KernelSpec) -> int:
        """Of a row in shared memory: loads and keeps it, reads it, or reads and stores it."""
        wide = width(spec)
        vectors = (self.kept or self.read) // wide
        loads = vectors * (1 + spec.add) if self.kept else 0
        stores = vectors * (spec.add if self.kept else self.stored > 0)
        enough = self._moved["LDG", wide] >= loads and self._moved["STG", wide] >= stores
        return vectors * spec.vec if enough and not (self.kept and self.read) else 0


def _phases(served: Iterable[_Trip]) -> list[_Trip]:
    """Return of the trips that do the same to a row the first by rank."""
    best: dict[object, _Trip] = {}
    for trip in served:
        if trip.does not in best or trip.rank > best[trip.does].rank:
            best[trip.does] = trip
    return list(best.values())


def blocks(body: str) -> list[Block[Instruction]]:
    """Return the blocks of a kernel, from its part of a listing."""
    lines = _LINE.findall(body)
    sizes, starts = _subroutines(lines), dict[str, int]()
    made: list[tuple[list[Instruction], list[str | int]]] = [([], [])]
    for label, guard, name, operands in lines:
        if label.startswith("$"):
            break
        instructions, after = made[-1]
        if label:
            if instructions:
                after.append(len(made))
                made.append(([], []))
            starts[label] = len(made) - 1
            continue
        opcode, target = name.split(".")[0], _TARGET.search(operands)
        instructions.append(Instruction(name, sizes.get(target[1], 0) if target and opcode == "CALL" else 0))
        if opcode in ("BRA", "EXIT", "RET"):
            after += [target[1]] if target and opcode == "BRA" else []
            after += [len(made)] if guard or _CONDITION.match(operands) else []
            made.append(([], []))
    numbers = ([starts.get(each, -1) if isinstance(each, str) else each for each in after] for _, after in made)
    inside = ([number for number in each if 0 <= number < len(made)] for each in numbers)
    return [Block(instructions, after) for (instructions, _), after in zip(made, inside, strict=True)]


def _subroutines(lines: Iterable[tuple[str, ...]]) -> dict[str, int]:
    """Return the instructions of each subroutine behind a kernel."""
    sizes: dict[str, int] = {}
    name = ""
    for label, _, opcode, _ in lines:
        name = label if label.startswith("$") else name
        if name:
            sizes[name] = sizes.get(name, 0) + bool(opcode)
    return sizes
