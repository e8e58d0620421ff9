"""What a compiled kernel is: one function of the sources with every template argument fixed."""

from dataclasses import dataclass
from typing import Final

#: Storage types by their short name: the name in CUDA C, and bytes.
STORAGE: Final = {"f32": ("float", 4), "f16": ("__half", 2), "bf16": ("__nv_bfloat16", 2)}
#: The pairs of storage types of activations and weights that occur: weights in the same type, or kept in float32.
PAIRS: Final = (("f32", "f32"), ("f16", "f16"), ("f16", "f32"), ("bf16", "bf16"), ("bf16", "f32"))
#: Threads of a block that serves several rows.
SHARED_BLOCK: Final = 128


@dataclass(frozen=True)
class Parameter:
    """One argument of a kernel.

    Attributes:
        name: as in the sources.
        type: in CUDA C, with ``T`` for the activations' and ``W`` for the weights' storage type.
        role: ``input``, ``output``, ``scratch`` or ``scalar``.
        meaning: shape and unit, in words.
        optional: whether a null pointer stands for its absence.
    """

    name: str
    type: str
    role: str
    meaning: str
    optional: bool = False


@dataclass(frozen=True)
class KernelSpec:
    """A function of the sources with its template arguments.

    Attributes:
        function: its name, a key of :data:`normlab.cupy_kernels.functions.FUNCTIONS`.
        dtype: storage type of the activations, a key of :data:`STORAGE`.
        weight: storage type of gain and bias.
        vec: elements that a thread moves at once.
        per: vectors that a thread holds in registers; 0: the row is held in dynamic shared memory.
        team: threads that share a row.
        statistic: ``rms`` or ``layer``, ``tanh`` or ``erf``; empty for functions without one.
        add: whether a residual is added first.
    """

    function: str
    dtype: str
    weight: str
    vec: int
    per: int
    team: int
    statistic: str = ""
    add: bool = False

    @property
    def symbol(self) -> str:
        """The name of the compiled kernel."""
        kind = [self.function, self.statistic, "add" if self.add else ""]
        shape = [self.dtype, self.weight, f"v{self.vec}", f"p{self.per}", f"t{self.team}"]
        return "_".join(["normlab", *filter(None, kind), *shape])

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return max(self.team, SHARED_BLOCK) if self.team <= 32 else self.team

    @property
    def rows_per_block(self) -> int:
        """Rows that a block serves at once."""
        return self.threads // self.team

    @property
    def columns(self) -> int:
        """The widest row that fits in a team's registers; 0 where rows are not held there."""
        return self.vec * self.per * self.team

    @property
    def itemsize(self) -> int:
        """Bytes of an activation."""
        return STORAGE[self.dtype][1]
