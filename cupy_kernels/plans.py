"""What a choice of kernels depends on, and what it is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from normlab.cupy_kernels.spec import STORAGE, KernelSpec

MOST_BLOCKS: Final = 2**31 - 1


@dataclass(frozen=True)
class Device:
    """What dispatch needs to know of a GPU: its multiprocessors, and the dynamic shared memory a block may ask for."""

    multiprocessors: int
    shared_bytes: int


#: Known architectures, with the multiprocessors of their usual data-centre or desktop part.
DEVICES: Final[dict[str, Device]] = {
    "sm_80": Device(108, 163 * 1024),
    "sm_86": Device(84, 99 * 1024),
    "sm_89": Device(128, 99 * 1024),
    "sm_90": Device(132, 227 * 1024),
    "sm_100": Device(148, 227 * 1024),
    "sm_120": Device(170, 99 * 1024),
}


@dataclass(frozen=True)
class Request:
    """One call of an operation, as far as the choice of kernels depends on it.

    Attributes:
        operation: a key of :data:`normlab.cupy_kernels.dispatch.PLANNERS`.
        dtype: storage type of the activations.
        weight: storage type of gain and bias.
        rows: number of rows.
        d: elements of a row.
        vec: elements that may be moved at once (:func:`normlab.cupy_kernels.dispatch.widest_vector`).
        statistic: ``rms`` or ``layer``; of a pointwise operation ``tanh`` or ``erf``.
        add: whether a residual is added first.
        gain: backward: whether the gain's gradient is wanted.
        bias: backward: whether the bias's gradient is wanted.
        one_gain: whether the gain is a single number.
        length: rows of a sequence; 0: all of them are one.
    """

    operation: str
    dtype: str
    weight: str
    rows: int
    d: int
    vec: int
    statistic: str = ""
    add: bool = False
    gain: bool = False
    bias: bool = False
    one_gain: bool = False
    length: int = 0

    @property
    def itemsize(self) -> int:
        """Bytes of an activation."""
        return STORAGE[self.dtype][1]

    @property
    def full(self) -> bool:
        """Whether a vector is 16 bytes of activations."""
        return self.vec * self.itemsize == 16

    def kernel(self, function: str, *, per: int, team: int, add: bool = False, weightless: bool = False) -> KernelSpec:
        """Return the kernel ``function`` for this request; a weightless one is the same for every type of weights."""
        weight = self.dtype if weightless else self.weight
        return KernelSpec(function, self.dtype, weight, self.vec, per, team, self.statistic, add)


@dataclass(frozen=True)
class Launch:
    """One kernel and how it is launched.

    Attributes:
        spec: the kernel.
        grid: blocks.
        shared_bytes: dynamic shared memory of a block.
        scalars: arguments that the plan decides.
        instead: for an argument the name of the array that it takes, where that is another.
    """

    spec: KernelSpec
    grid: int
    shared_bytes: int = 0
    scalars: Mapping[str, int] = field(default_factory=dict)
    instead: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """Kernels to launch one after another, and the float32 scratch arrays they share, by name and length."""

    launches: tuple[Launch, ...]
    scratch: Mapping[str, int] = field(default_factory=dict)
