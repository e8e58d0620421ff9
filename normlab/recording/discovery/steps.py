"""Where norms are in a data flow, and walking back over what only rescales a tensor."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from torch import nn

from normlab.recording.discovery.graph import Flow, Value
from normlab.recording.discovery.norms import NormKind, probed

#: Functions of torch that normalise, where they stand outside a norm module.
_FUNCTIONS = {"native_layer_norm": "layernorm", "_fused_rms_norm": "rmsnorm", "rms_norm": "rmsnorm"}


class Norm(NamedTuple):
    """A norm that ran.

    Attributes:
        path: the norm module's path, or that of the module that calls the function.
        kind: what it computes.
        taken: the value that it normalises.
        given: its result.
    """

    path: str
    kind: NormKind
    taken: int
    given: int


class Step(NamedTuple):
    """Something on the way of a tensor that only rescales it.

    Attributes:
        what: ``norm``, ``factor``, ``dropout``, ``cast``, or ``layout`` where its first axes change places.
        norm: the norm.
        factor: what it is multiplied by: a number, the name of a parameter, or empty for another tensor.
    """

    what: Literal["norm", "factor", "dropout", "cast", "layout"]
    norm: Norm | None = None
    factor: float | str = ""


class Way(NamedTuple):
    """What a tensor was before it was rescaled, and the steps from there to it."""

    start: int
    steps: tuple[Step, ...]
    values: tuple[int, ...]

    @property
    def laid_out(self) -> int:
        """The value that was there before anything but the layout changed."""
        changes = 0
        while changes < len(self.steps) and self.steps[changes].what == "layout":
            changes += 1
        return self.values[changes]

    @property
    def norms(self) -> tuple[Norm, ...]:
        """The norms on the way, in the order in which they run."""
        return tuple(step.norm for step in self.steps if step.norm is not None)

    @property
    def factors(self) -> tuple[float | str, ...]:
        """What the tensor is multiplied by on the way."""
        return tuple(step.factor for step in self.steps if step.what == "factor")


@dataclass
class Tracks:
    """A data flow with its norms.

    Attributes:
        flow: the data flow.
        model: the model that it belongs to.
    """

    flow: Flow
    model: nn.Module

    @cached_property
    def norms(self) -> list[Norm]:
        """Every norm that ran, in the order of the flow."""
        taken: dict[str, int] = {}
        modules = dict(self.model.named_modules())
        found: list[Norm] = []
        for showing in self.flow.showings:
            if self.flow.calls[showing.module] > 1:
                continue
            if showing.side == "input":
                taken.setdefault(showing.module, showing.value)
            elif not showing.path and showing.module in taken:
                found += self._probe(modules[showing.module], showing.module, taken[showing.module], showing.value)
        inside = tuple(f"{norm.path}." for norm in found)
        paths = {norm.path for norm in found}
        found = [norm for norm in found if not any(p.startswith(f"{norm.path}.") for p in paths)]
        for value in self.flow.values:
            if value.op in _FUNCTIONS and not value.output and not f"{value.module}.".startswith(inside or ("\0",)):
                found.append(self._function(value))
        return sorted(found, key=lambda norm: norm.given)

    def _probe(self, module: nn.Module, path: str, taken: int, given: int) -> list[Norm]:
        before, after = self.flow.values[taken], self.flow.values[given]
        if before.shape != after.shape or not before.floating or not self.flow.live[given]:
            return []
        kind = probed(module, before.shape)
        return [] if kind is None else [Norm(path, kind, taken, given)]

    def _function(self, value: Value) -> Norm:
        assert value.function is not None
        _, args, _ = value.function
        named = [one for one in value.inputs[1:] if self.flow.values[one].kind == "parameter"]
        eps = next((float(one) for one in reversed(args) if isinstance(one, float)), None)
        kind = NormKind(_FUNCTIONS[value.op], value.shape[-1], "w" if named else "none", len(value.inputs) > 2, eps)
        return Norm(value.module, kind, value.inputs[0], value.index)

    @cached_property
    def _norm_of(self) -> dict[int, Norm]:
        return {self.flow.same(norm.given): norm for norm in self.norms}

    def back(self, index: int) -> Way:
        """Walk back from a value over norms, factors, dropout and casts."""
        steps: list[Step] = []
        values: list[int] = []
        while True:
            index = self.flow.same(index)
            values.append(index)
            found = self._step(index)
            if found is None:
                return Way(index, tuple(reversed(steps)), tuple(reversed(values)))
            step, index = found
            steps.append(step)

    def _step(self, index: int) -> tuple[Step, int] | None:
        if norm := self._norm_of.get(index):
            return Step("norm", norm=norm), norm.taken
        value = self.flow.values[index]
        if value.op == "native_dropout":
            return Step("dropout"), value.inputs[0]
        if value.op == "_to_copy":
            return Step("cast"), value.inputs[0]
        if _swaps_leading_axes(value):
            return Step("layout"), value.inputs[0]
        if value.op in ("mul", "div"):
            return self._factor(value)
        return None

    def _factor(self, value: Value) -> tuple[Step, int] | None:
        flow = self.flow
        carried = [one for one in value.inputs if flow.live[one]]
        if len(carried) != 1 or flow.values[carried[0]].shape != value.shape:
            return None
        if value.op == "div" and value.inputs[0] != carried[0]:
            return None
        others = [one for one in value.inputs if one != carried[0]]
        if not others:
            assert value.function is not None
            number = next((one for one in value.function[1] if isinstance(one, int | float)), None)
            if number is None:
                return None
            return Step("factor", factor=float(number) if value.op == "mul" else 1 / float(number)), carried[0]
        other = flow.values[others[0]]
        if _drawn(flow, other):
            return Step("dropout"), carried[0]
        names = [one.name for one in flow.leaves(other.index) if one.kind == "parameter"]
        return Step("factor", factor=names[0] if names else ""), carried[0]


def _swaps_leading_axes(value: Value) -> bool:
    """Whether axes other than that of the features change places."""
    rank = len(value.shape)
    if value.op not in ("transpose", "permute") or value.function is None or rank < 3:
        return False
    _, (_, *axes), _ = value.function
    order = axes[0] if value.op == "permute" else axes
    return (
        bool(order[-1] % rank == rank - 1) if value.op == "permute" else all(axis % rank != rank - 1 for axis in order)
    )


def _drawn(flow: Flow, value: Value) -> bool:
    """Whether a factor is a mask that was drawn at random."""
    return any(flow.depends(value.index, one.index) for one in flow.random)
