"""The data flow of one forward pass: values, what each was computed from, and at which modules it shows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

from torch import Tensor

#: Operations that only change how a tensor is laid out, or copy it.
LAYOUT: Final = frozenset(
    "view _unsafe_view reshape _reshape_alias unsqueeze squeeze alias detach clone contiguous lift_fresh expand "
    "permute transpose t slice select split split_with_sizes chunk unbind unfold narrow flatten unflatten movedim "
    "as_strided view_as copy".split()
)
#: Those of them after which a tensor of the same last axis and size holds the same features in the same order.
_FAITHFUL: Final = LAYOUT - {"permute", "transpose", "t", "as_strided"}
#: Matrix products, and where their two factors stand among the tensors that they take.
PRODUCTS: Final = {"mm": 0, "bmm": 0, "matmul": 0, "linear": 0, "_grouped_mm": 0, "addmm": 1, "baddbmm": 1}

#: Operations that take a tensor's shape and nothing else of it.
SHAPED: Final = frozenset(
    "new_empty new_zeros new_ones new_full empty_like zeros_like ones_like full_like new_empty_strided".split()
)

_DRAWN: Final = ("bernoulli", "native_dropout", "uniform", "rand", "rand_like", "random", "randint", "randperm")

Kind = Literal["input", "parameter", "constant", "op"]


class Ref(NamedTuple):
    """A value among the arguments of an operation."""

    number: int


@dataclass(frozen=True)
class Value:
    """A tensor at one moment: an operation that changes it in place makes another value.

    Attributes:
        index: its number; what it was computed from has smaller ones.
        kind: where it comes from.
        op: the operation's name.
        inputs: the values that it was computed from.
        shape: its shape.
        floating: whether it is a floating-point tensor.
        dtype: its dtype.
        module: path of the innermost module that was running.
        name: the name of a parameter.
        function: the operation, and its arguments with values in place of tensors.
        output: its number among the operation's results.
        data: the entries of a small tensor of whole numbers that comes from nowhere.
    """

    index: int
    kind: Kind
    op: str
    inputs: tuple[int, ...]
    shape: tuple[int, ...]
    floating: bool
    dtype: str
    module: str = ""
    name: str = ""
    function: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]] | None = None
    output: int = 0
    data: Any = None


class Showing(NamedTuple):
    """A value at a module: as its argument or in its result.

    Attributes:
        value: which.
        module: the module's path.
        side: ``input`` or ``output``.
        path: as in :class:`~normlab.recording.Port`.
        call: the number of the module's call.
    """

    value: int
    module: str
    side: Literal["input", "output"]
    path: tuple[int | str, ...]
    call: int


@dataclass
class Flow:
    """Everything that one traced forward pass did.

    Attributes:
        values: every value, in the order of computation.
        showings: where values are seen at modules; a module's arguments are seen when it has run.
        calls: how often each module ran, in the order of their first ends.
        training: whether the model was in training mode.
        counting: look-ups of consecutive rows.
        causal: for attention weights, and what fused attention gives, whether no position saw a later one.
        entries: those of masks and places that operations of somebody's own took.
        undone: sums that were written as part of another one, as f - x of x + 0.3 (f - x).
    """

    values: list[Value] = field(default_factory=list)
    showings: list[Showing] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    training: bool = False
    counting: set[int] = field(default_factory=set)
    causal: dict[int, bool] = field(default_factory=dict)
    entries: dict[int, Tensor] = field(default_factory=dict)
    undone: set[int] = field(default_factory=set)

    @cached_property
    def ancestors(self) -> list[int]:
        """For each value the set of values that it depends on, itself among them, as bits."""
        sets: list[int] = []
        for value in self.values:
            bits = 1 << value.index
            for one in value.inputs:
                bits |= sets[one]
            sets.append(bits)
        return sets

    @cached_property
    def uses(self) -> list[list[int]]:
        """For each value the values that were computed from it directly."""
        found: list[list[int]] = [[] for _ in self.values]
        for value in self.values:
            for one in set(value.inputs):
                found[one].append(value.index)
        return found

    @cached_property
    def fed(self) -> list[bool]:
        """For each value whether it depends on an input of the model at all."""
        found: list[bool] = []
        for value in self.values:
            found.append(value.kind == "input" or any(found[one] for one in value.inputs))
        return found

    @cached_property
    def live(self) -> list[bool]:
        """For each value whether it carries features of the input: not token numbers, masks, positions, weights."""
        found: list[bool] = []
        for value in self.values:
            found.append(self._is_live(value, found))
        return found

    def _is_live(self, value: Value, live: list[bool]) -> bool:
        if value.kind != "op":
            return value.kind == "input" and value.floating
        if value.op in ("embedding", "index", "index_select", "gather") and not live[value.inputs[0]]:
            # A look-up in a table: by token numbers an embedding, by a router's choice some of the weights.
            indices = value.inputs[1:]
            return value.floating and any(self.fed[one] for one in indices) and not any(live[one] for one in indices)
        return any(live[one] for one in value.inputs)

    def depends(self, value: int, on: int) -> bool:
        """Whether a value was computed from another, or is it."""
        return bool(self.ancestors[value] >> on & 1)

    def same(self, index: int) -> int:
        """Return the first value that holds the same features in the same order, whatever its leading axes."""
        return self._roots[index]

    @cached_property
    def _roots(self) -> list[int]:
        roots: list[int] = []
        for index in range(len(self.values)):
            before = self.unchanged(index)
            roots.append(index if before is None else roots[before])
        return roots

    @cached_property
    def weighs(self) -> list[bool]:
        """For each value whether it is a product of features and weights."""
        return [self._weighs(value) for value in self.values]

    def _weighs(self, value: Value) -> bool:
        if value.op == "convolution":
            return not self.live[value.inputs[1]]
        if value.op not in PRODUCTS:
            return False
        one, two = value.inputs[PRODUCTS[value.op] : PRODUCTS[value.op] + 2]
        return self.live[one] != self.live[two]

    def unchanged(self, index: int) -> int | None:
        """Return the value that this one is only another layout of, or nothing."""
        value = self.values[index]
        if not value.inputs or not (value.op in _FAITHFUL or _is_neutral(value)):
            return None
        before = self.values[value.inputs[-1] if value.op == "copy" else value.inputs[0]]
        same = before.shape[-1:] == value.shape[-1:] and _size(before) == _size(value) and before.dtype == value.dtype
        return before.index if same else None

    @cached_property
    def seen_at(self) -> dict[int, list[Showing]]:
        """For each value, by its first equal, where it or an equal shows at a module."""
        found: dict[int, list[Showing]] = {}
        for showing in self.showings:
            found.setdefault(self.same(showing.value), []).append(showing)
        return found

    @cached_property
    def needed(self) -> int:
        """The values that something at a module was computed from, as bits."""
        bits = 0
        for showing in self.showings:
            bits |= self.ancestors[showing.value]
        return bits

    @cached_property
    def given(self) -> int:
        """The values that the model's result was computed from, as bits."""
        bits = 0
        for showing in self.showings:
            bits |= self.ancestors[showing.value] if not showing.module and showing.side == "output" else 0
        return bits

    def whole(self, index: int) -> bool:
        """Whether everything that uses a value's first equal does so through this value.

        Only then is the gradient at this tensor the whole gradient.
        """
        while (before := self.unchanged(index)) is not None:
            if self.uses[before] != [index]:
                return False
            index = before
        return True

    @cached_property
    def random(self) -> list[Value]:
        """The values that were drawn at random."""
        return [value for value in self.values if value.op in _DRAWN]

    def made_of(self, index: int) -> Iterator[Value]:
        """Yield everything that a value was computed from, and itself."""
        before = self.ancestors[index]
        return (value for value in self.values[: index + 1] if before >> value.index & 1)

    def leaves(self, index: int) -> Iterator[Value]:
        """Yield the values without inputs that a value was computed from."""
        return (value for value in self.made_of(index) if not value.inputs)

    def between(self, start: int, end: int) -> Iterator[Value]:
        """Yield the values on the ways from ``start`` to ``end``, in order, without ``start``."""
        before, ancestors = self.ancestors[end], self.ancestors
        for index in range(start + 1, end + 1):
            if before >> index & 1 and ancestors[index] >> start & 1:
                yield self.values[index]


def _is_neutral(value: Value) -> bool:
    """Whether 0 is added, as sum([x, y]) does to its first term, or a tensor is multiplied or divided by 1."""
    if value.op not in ("add", "mul", "div") or len(value.inputs) != 1 or value.function is None:
        return False
    _, (first, *rest), options = value.function
    return isinstance(first, Ref) and rest == [0 if value.op == "add" else 1] and not options


def _size(value: Value) -> int:
    size = 1
    for extent in value.shape:
        size *= extent
    return size
