"""Where norms are in a data flow, and walking back over what only rescales a tensor."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from torch import nn

from normlab.recording.discovery.graph import LAYOUT, Flow, Ref, Value
from normlab.recording.discovery.norms import NormKind, probed
from normlab.recording.discovery.written import written_out

#: Functions of torch that normalise, where they stand outside a norm module.
_FUNCTIONS = {"native_layer_norm": "layernorm", "_fused_rms_norm": "rmsnorm", "rms_norm": "rmsnorm"}


class Norm(NamedTuple):
    """A norm that ran.

    Attributes:
        path: the norm module's path, or that of the module that calls the function.
        kind: what it computes.
        taken: the value that it normalises.
        given: its result.
        roles: names of its parameters in the model, each with its role.
    """

    path: str
    kind: NormKind
    taken: int
    given: int
    roles: tuple[tuple[str, str], ...] = ()


class Step(NamedTuple):
    """Something on the way of a tensor that only rescales it.

    Attributes:
        what: ``norm``, ``factor``, ``dropout``, ``cast``, or ``layout`` where its first axes change places.
        norm: the norm.
        factor: what it is multiplied by: a number, the name of a parameter, ``1-name``, ``?(name)`` for something else
            that is computed from parameters, ``g(x)`` for a number for each token that a matrix made of what it
            carries, or empty for another tensor.
        parameters: names of the parameters that it is computed from.
    """

    what: Literal["norm", "factor", "dropout", "cast", "layout"]
    norm: Norm | None = None
    factor: float | str = ""
    parameters: tuple[str, ...] = ()


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
        return (*self.inside, *self.outside)

    @property
    def inside(self) -> tuple[float | str, ...]:
        """What it is multiplied by before the last norm on the way."""
        return tuple(step.factor for step in self.steps[: self._normed] if step.what == "factor")

    @property
    def outside(self) -> tuple[float | str, ...]:
        """What it is multiplied by after the last norm on the way, or at all."""
        return tuple(step.factor for step in self.steps[self._normed :] if step.what == "factor")

    @property
    def _normed(self) -> int:
        return max((place for place, step in enumerate(self.steps, 1) if step.what == "norm"), default=0)


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
        """Every norm that ran, once a run, in the order of the flow."""
        found = self._modules()
        paths = {norm.path for norm in found}
        found = [norm for norm in found if not any(path.startswith(f"{norm.path}.") for path in paths)]
        inside = tuple(f"{norm.path}." for norm in found)
        for value in self.flow.values:
            if not f"{value.module}.".startswith(inside or ("\0",)):
                if value.op in _FUNCTIONS and not value.output:
                    found.append(self._function(value))
                elif (own := written_out(self.flow, value)) is not None:
                    found.append(Norm(value.module, *own))
        return sorted(found, key=lambda norm: norm.given)

    def _modules(self) -> list[Norm]:
        """Return the modules that are norms; one that runs several times, as a shared block's does, each time."""
        taken: dict[tuple[str, int], int] = {}
        modules = dict(self.model.named_modules())
        kinds: dict[tuple[str, tuple[int, ...]], NormKind | None] = {}
        found: list[Norm] = []
        for showing in self.flow.showings:
            run = showing.module, showing.call
            if showing.side == "input":
                taken.setdefault(run, showing.value)
            elif not showing.path and run in taken and self._may_be(taken[run], showing.value):
                shape = self.flow.values[showing.value].shape
                if (showing.module, shape[-1:]) not in kinds:
                    kinds[showing.module, shape[-1:]] = probed(modules[showing.module], shape)
                if (kind := kinds[showing.module, shape[-1:]]) is not None:
                    start = f"{showing.module}." if showing.module else ""
                    roles = tuple((start + name, role) for name, role in kind.parameters)
                    found.append(Norm(showing.module, kind, taken[run], showing.value, roles))
        return found

    def _may_be(self, taken: int, given: int) -> bool:
        before, after = self.flow.values[taken], self.flow.values[given]
        return before.shape == after.shape and before.floating and self.flow.live[given]

    def _function(self, value: Value) -> Norm:
        assert value.function is not None
        _, (_, _, *given), _ = value.function
        gain, bias = (self._taken_by(given[place]) if len(given) > place else None for place in (0, 1))
        roles = [(one.name, role) for one, role in ((gain, "norm_gain"), (bias, "norm_bias")) if one and one.name]
        eps = next((float(one) for one in reversed(given) if isinstance(one, float)), None)
        form = "none" if gain is None else "w" if gain.name else "other"
        kind = NormKind(_FUNCTIONS[value.op], value.shape[-1], form, bias is not None, eps)
        return Norm(value.module, kind, value.inputs[0], value.index, tuple(roles))

    def _taken_by(self, argument: Any) -> Value | None:
        return self.flow.values[argument.number] if isinstance(argument, Ref) else None

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
        if swaps_leading_axes(value):
            return Step("layout"), value.inputs[0]
        if value.op in ("mul", "div"):
            return self._factor(value)
        return None

    def _dropped(self, index: int) -> bool:
        """Whether a value is one that a mask was put on: a number that it is multiplied by makes up for the mask."""
        value = self.flow.values[self.flow.same(index)]
        return value.op == "mul" and any(_drawn(self.flow, self.flow.values[one]) for one in value.inputs)

    def _factor(self, value: Value) -> tuple[Step, int] | None:
        flow = self.flow
        carried = [one for one in value.inputs if flow.live[one]]
        if len(carried) == 2 and value.op == "mul":
            return self._gate(value)
        if len(carried) != 1 or flow.values[carried[0]].shape != value.shape:
            return None
        if value.op == "div" and value.inputs[0] != carried[0]:
            return None
        others = [one for one in value.inputs if one != carried[0]]
        if not others and self._dropped(carried[0]):
            return Step("dropout"), carried[0]
        if not others:
            assert value.function is not None
            number = next((one for one in value.function[1] if isinstance(one, int | float)), None)
            if number is None:
                return None
            return Step("factor", factor=float(number) if value.op == "mul" else 1 / float(number)), carried[0]
        other = flow.values[others[0]]
        if _drawn(flow, other):
            return Step("dropout"), carried[0]
        names = tuple(one.name for one in flow.leaves(other.index) if one.kind == "parameter")
        return Step("factor", factor=self._called(value, other, names), parameters=names), carried[0]

    def _gate(self, value: Value) -> tuple[Step, int] | None:
        """Step over a factor of each token that a matrix of its own made."""
        flow = self.flow
        for wide, narrow in (value.inputs, value.inputs[::-1]):
            if flow.values[wide].shape == value.shape and flow.values[narrow].shape[-1:] == (1,) != value.shape[-1:]:
                made = (one.index for one in flow.made_of(narrow) if not flow.depends(wide, one.index))
                if any(flow.weighs[one] for one in made):
                    return Step("factor", factor="g(x)"), wide
        return None

    def _called(self, value: Value, other: Value, names: tuple[str, ...]) -> str:
        """Return what a factor that is a tensor is called."""
        if not names:
            return ""
        named = ", ".join(names)
        if len(names) == 1 and value.op == "mul":
            if self._is_plainly(other, names[0]):
                return named
            if other.op == "rsub" and other.function and other.function[1][1:] == (1,):
                return f"1-{named}" if self._is_plainly(self.flow.values[other.inputs[0]], names[0]) else f"?({named})"
        return f"?({named})"

    def _is_plainly(self, value: Value, name: str) -> bool:
        """Whether a value is a parameter, but for its layout and its dtype."""
        while value.op in LAYOUT or value.op == "_to_copy":
            value = self.flow.values[value.inputs[0]]
        return value.name == name


def swaps_leading_axes(value: Value) -> bool:
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
    return not flow.live[value.index] and any(flow.depends(value.index, one.index) for one in flow.random)
