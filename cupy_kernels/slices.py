"""Rows that are cut into slices: which, and how many."""

from dataclasses import dataclass
from typing import Final

from normlab.cupy_kernels.plans import MOST_BLOCKS, Device, Request
from normlab.errors import NormlabError

#: Threads of a block that takes a slice, and vectors that each holds at a time.
TEAM: Final = 256
PER: Final = 4
#: Rows of so many bytes are split where blocks would be idle: fewer rows than a quarter of the multiprocessors.
LONG_BYTES: Final = 65536


@dataclass(frozen=True)
class Slices:
    """How rows are cut: slices a row, elements a slice."""

    count: int
    width: int

    @property
    def scalars(self) -> dict[str, int]:
        """The arguments of the kernels that take slices."""
        return {"slices": self.count, "slice_width": self.width}


def fill_better(request: Request, device: Device) -> bool:
    """Return whether the rows are so few and so long that blocks of one row each would leave the device idle."""
    return request.rows * 4 <= device.multiprocessors and request.d * request.itemsize >= LONG_BYTES


def cut(request: Request, device: Device) -> Slices:
    """Cut rows into slices of whole chunks, about two blocks a multiprocessor.

    Raises:
        NormlabError: more blocks than a grid has.
    """
    chunk = request.vec * PER * TEAM
    chunks = -(-request.d // chunk)
    wanted = max(1, -(-2 * device.multiprocessors // request.rows))
    width = -(-chunks // min(chunks, wanted)) * chunk
    slices = Slices(-(-request.d // width), width)
    if request.rows * slices.count > MOST_BLOCKS:
        raise NormlabError(
            f"{request.rows} rows of {request.d} elements: more than {MOST_BLOCKS} blocks; split the rows"
        )
    return slices
