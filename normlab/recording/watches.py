"""A plan made ready for a model: for each module, which tensors to look at and where they are booked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from torch import nn

from normlab.errors import RecordingError, suggest
from normlab.recording.plan import Address, Observed, Port, Residual, Scores, SitePlan
from normlab.recording.selection import Selection
from normlab.recording.sums import Kind
from normlab.recording.tensors import shown

#: A port without its module: side, path, what is added to it, and the module's call.
Place: TypeAlias = tuple[str, tuple[int | str, ...], tuple[Port, ...], int | None]


class Slot(NamedTuple):
    """Something that is expected to be observed.

    Attributes:
        address: where its rows belong.
        kind: what kind of sums it gets.
        port: the tensor.
    """

    address: Address
    kind: Kind
    port: Port


@dataclass(eq=False, slots=True)
class PortWatch:
    """One tensor of one module.

    Attributes:
        port: which.
        index: its place among those of its module.
        others: the tensors of other modules that are added to it.
        heads: whether its second axis is heads.
        forward: slots under which the tensor is booked.
        backward: slots under which its gradient is booked.
        reduced: whether the tensor is reduced although no slot asks for it, because a pair needs it.
        remembered: how many sums with tensors of other modules need it later.
        planned: whether it has tokens by a plan, so that a mask must fit it.
    """

    port: Port
    index: int = 0
    others: "tuple[PortWatch, ...]" = ()
    heads: bool = False
    forward: list[int] = field(default_factory=list)
    backward: list[int] = field(default_factory=list)
    reduced: bool = False
    remembered: int = 0
    planned: bool = True

    def number(self, call: int) -> int:
        """Return the number of a call that rows have: one call alone has none."""
        return call if self.port.call is None else 0


class Pair(NamedTuple):
    """A residual sum whose last tensor has appeared.

    Attributes:
        slot: where it is booked.
        residual: the sum.
        update: the watch of its update.
        skip: the watch of its skip.
        last: the watch of the tensor that appears last.
        here: whether update and skip appear with it.
    """

    slot: int
    residual: Residual
    update: PortWatch
    skip: PortWatch
    last: PortWatch
    here: tuple[bool, bool]


@dataclass
class Watch:
    """What is read when a module has run.

    Attributes:
        ports: its tensors.
        pairs: the residual sums that it stores.
        scores: the attention logits that it computes, with their slots.
        loss: the loss that it computes, with its slot.
    """

    ports: dict[Place, PortWatch] = field(default_factory=dict)
    pairs: list[Pair] = field(default_factory=list)
    scores: list[tuple[int, Scores]] = field(default_factory=list)
    loss: tuple[int, Port] | None = None


class Prepared:
    """A plan and a selection, made ready for all models whose modules are named alike; nothing in it changes.

    Args:
        plan: the sites.
        selection: which of them are recorded.
        numbers: the number of each module that the plan names, by its path.

    Attributes:
        slots: everything that is expected.
        reported: numbers of the slots whose rows were asked for, without that of the loss; the others serve them.
        by_number: what is read at each module, by the module's number.
    """

    def __init__(self, plan: SitePlan, selection: Selection, numbers: Mapping[str, int]) -> None:
        self.slots: list[Slot] = []
        self.reported: set[int] = set()
        self.by_number: dict[int, Watch] = {}
        self._selection, self._numbers = selection, numbers
        for observed in plan.observed:
            self._observe(observed)
        if selection.pairs:
            for residual in plan.residuals:
                self._compare(residual)
        for scores in plan.scores:
            if scores.address.site in selection.sites:
                self._watch(scores.key).scores.append((self._slot(scores.address, "scores", scores.key), scores))
        if plan.loss is not None and "loss" in selection.quantities:
            self._watch(plan.loss).loss = (self._slot(Address(), "loss", plan.loss), plan.loss)

    def _observe(self, observed: Observed) -> None:
        address, port, heads = observed.address, observed.port, observed.heads
        site, gradient = address.site, address.gradient() if observed.gradient else None
        asked = site in self._selection.sites
        if asked or self._selection.also_reads(site):
            watch = self._port(port)
            watch.forward.append(self._slot(address, "activation", port, reported=asked))
            watch.heads, watch.planned = heads, site != "output"
        if gradient is not None and gradient.site in self._selection.sites:
            watch = self._port(port)
            watch.backward.append(self._slot(gradient, "gradient", port))
            watch.heads, watch.planned = heads, site != "output"

    def _compare(self, residual: Residual) -> None:
        last = residual.last
        slot = self._slot(residual.address, "pair", last)
        update, skip, total = (self._port(port) for port in (residual.update, residual.skip, last))
        here = together(residual.update, last), together(residual.skip, last)
        self._watch(last).pairs.append(Pair(slot, residual, update, skip, total, here))
        for port, watch in ((residual.skip, skip), (residual.update, update), (last, total)):
            watch.reduced |= port is not residual.total
            watch.remembered += not together(port, last)

    def _slot(self, address: Address, kind: Kind, port: Port, *, reported: bool = True) -> int:
        if reported and kind != "loss":
            self.reported.add(len(self.slots))
        self.slots.append(Slot(address, kind, port))
        return len(self.slots) - 1

    def _watch(self, port: Port) -> Watch:
        return self.by_number.setdefault(self._numbers[port.module], Watch())

    def _port(self, port: Port) -> PortWatch:
        # A module that stands in several places is read once, whatever its path.
        ports, where = self._watch(port).ports, (port.side, port.path, port.plus, port.call)
        if where not in ports:
            others = tuple(self._port(other) for other in port.plus)
            ports[where] = PortWatch(port, len(ports), others)
            for other in others:
                other.remembered += 1
        return ports[where]


@lru_cache(maxsize=4)
def _prepared(plan: SitePlan, selection: Selection, numbers: tuple[int, ...]) -> Prepared:
    return Prepared(plan, selection, dict(zip(plan.modules, numbers, strict=True)))


class Watches:
    """A plan and a selection, made ready for one model.

    Args:
        modules: the model's modules by path.
        plan: its sites.
        selection: which of them are recorded.

    Attributes:
        prepared: what does not depend on the model.
        slots: everything that is expected, also tensors of containers that have been seen.
        reported: numbers of the slots whose rows were asked for, without that of the loss; the others serve them.
        by_module: what is read at each module, by the module's identity.
        watched: these modules.
        once: whether every module runs once in a pass.
        in_place: whether tensors may be changed in place after they were seen.

    Raises:
        RecordingError: the plan names a module that the model does not have.
    """

    def __init__(self, modules: Mapping[str, nn.Module], plan: SitePlan, selection: Selection) -> None:
        self._modules = modules
        found = _modules_at(plan.modules, modules)
        # A module that stands in several places has one number.
        first: dict[int, int] = {}
        numbers = tuple(first.setdefault(id(module), number) for number, module in enumerate(found))
        self.prepared = _prepared(plan, selection, numbers)
        self.slots, self.reported = list(self.prepared.slots), set(self.prepared.reported)
        self.by_module = {id(found[number]): watch for number, watch in self.prepared.by_number.items()}
        self.watched = [found[number] for number in self.prepared.by_number]
        self.once, self.in_place = plan.once, plan.in_place
        self._parts: dict[tuple[PortWatch, tuple[int | str, ...]], PortWatch] = {}

    def part(self, whole: PortWatch, path: tuple[int | str, ...]) -> PortWatch:
        """Return the watch of one tensor of a container, which takes the place of the watch of the whole."""
        if (whole, path) not in self._parts:
            suffix = f"[{'.'.join(map(shown, path))}]"
            port = replace(whole.port, path=path)
            self._parts[whole, path] = PortWatch(
                port,
                forward=[self._of_part(slot, port, suffix) for slot in whole.forward],
                backward=[self._of_part(slot, port, suffix) for slot in whole.backward],
                planned=False,
            )
        return self._parts[whole, path]

    def _of_part(self, slot: int, port: Port, suffix: str) -> int:
        old = self.slots[slot]
        self.reported.discard(slot)
        self.reported.add(len(self.slots))
        self.slots.append(Slot(old.address._replace(name=old.address.name + suffix), old.kind, port))
        return len(self.slots) - 1

    def identity(self, port: Port) -> int:
        """Return the identity of a port's module."""
        return id(self.module(port))

    def module(self, port: Port) -> nn.Module:
        """Return a port's module."""
        return self._modules[port.module]


def together(one: Port, two: Port) -> bool:
    """Whether two ports are read at the same time."""
    return one.module == two.module and one.call == two.call


def _modules_at(paths: Sequence[str], modules: Mapping[str, nn.Module]) -> list[nn.Module]:
    """Return the modules at some paths."""
    for path in paths:
        if path not in modules:
            raise RecordingError(
                f"the site plan names the module {path!r}, which the model does not have: "
                f"give a path from model.named_modules(){suggest(path, modules)}"
            )
    return [modules[path] for path in paths]
