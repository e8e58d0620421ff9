"""What was expected and what was observed."""

from collections.abc import Iterator
from typing import Final

import pandas as pd
from torch import Tensor

from normlab.recording.awaiting import SEVERAL_BACKWARD
from normlab.recording.observer import Observer
from normlab.recording.plan import Address
from normlab.recording.state import Expected, State, StepState
from normlab.recording.watches import Slot, Watches

_COLUMNS = ("stack", "layer", "sublayer", "site", "role", "name", "expected", "observed", "status")


#: Why a module has no values whose parameters took part.
BYPASSED: Final = "not reached: the module was not called, though something else uses its parameters"


def missing_of(watches: Watches, observer: Observer) -> dict[Expected, str]:
    """Return the expected sites that the step did not observe, and why."""
    assert observer.ledger is not None
    booked = observer.ledger.booked
    if not observer.reasons and watches.reported <= booked:
        return {}
    missing: dict[Expected, str] = {}
    for index, slot in enumerate(watches.slots):
        reason = observer.reasons.get(index, "")
        if index in watches.reported and (index not in booked or reason == SEVERAL_BACKWARD):
            missing[Expected(slot.address, slot.kind)] = reason or _silent(slot, watches, observer)
    return missing


def _silent(slot: Slot, watches: Watches, observer: Observer) -> str:
    """Say why a slot has neither a value nor a reason of its own."""
    if watches.identity(slot.port) not in observer.ran:
        used = any(_moved(parameter) for parameter in watches.module(slot.port).parameters())
        return BYPASSED if used else "not reached: the module was not called"
    return "no gradient" if slot.kind == "gradient" else "not observed"


def _moved(parameter: Tensor) -> bool:
    gradient = parameter.grad
    return gradient is not None and bool((gradient.coalesce().values() if gradient.is_sparse else gradient).any())


def unobserved(state: StepState) -> list[str]:
    """Return a phrase for each expected site that was not observed."""
    return [f"{_phrase(what.address)} ({why})" for what, why in state.missing.items()]


def _phrase(address: Address) -> str:
    where = " ".join(str(part) for part in (address.stack, address.sublayer, address.name) if part)
    return f"{address.site} of {where}" + ("" if address.layer is None else f" in layer {address.layer}")


def coverage_of(state: State) -> pd.DataFrame:
    """Return a line for each site and parameter; one that any step did not observe is not observed."""
    lines: dict[tuple[object, ...], tuple[bool, bool, str]] = {}
    for step in state.steps.values():
        for what, found in _lines(step, state):
            if what not in lines or not found[1]:
                lines[what] = found
    frame = pd.DataFrame([(*what, *found) for what, found in lines.items()], columns=list(_COLUMNS))
    return frame.astype({"layer": "Int64"})


def _lines(step: StepState, state: State) -> Iterator[tuple[tuple[object, ...], tuple[bool, bool, str]]]:
    for key in step.sums:
        if key.address.site in state.sites:
            yield _place(key.address), (True, True, "ok")
    for missing, reason in step.missing.items():
        yield _place(missing.address), (True, False, reason)
    for absent, reason in step.absent.items():
        # A pair is no site: where one of its terms is missing, that has a line.
        if absent.kind != "pair" and (not absent.address.site or absent.address.site in state.sites):
            yield _place(absent.address), (False, False, reason)
    for role, sums in step.parameters.items():
        yield _place(role.address, role.role), (True, bool(sums.gradient_entries), ", ".join(sums.without) or "ok")


def _place(address: Address, role: str = "") -> tuple[object, ...]:
    return address.stack, address.layer, address.sublayer, address.site, role, address.name
