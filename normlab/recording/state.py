"""What a recorder knows, as plain data: it can be pickled, sent, merged, and turned into a table."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import pandas as pd

from normlab.errors import RecordingError
from normlab.recording.parameters import Role, RoleSums
from normlab.recording.plan import Address
from normlab.recording.sums import Kind, Sums


class SiteKey(NamedTuple):
    """What the sums of a site are booked under."""

    address: Address
    call: int
    dtype: str
    kind: Kind


class Expected(NamedTuple):
    """A site, or a pair at a site, that was to be observed."""

    address: Address
    kind: Kind


@dataclass(frozen=True)
class StepState:
    """What was recorded in one step.

    Attributes:
        sums: the sums of every site.
        missing: the sites that were expected and not observed, and why.
        absent: the sites that the model does not have, and why.
        parameters: the sums of every role.
    """

    sums: dict[SiteKey, Sums]
    missing: dict[Expected, str]
    absent: dict[Expected, str]
    parameters: dict[Role, RoleSums]

    def __add__(self, other: "StepState") -> "StepState":
        """Return what both recorded together, of different batches."""
        sums = dict(self.sums)
        for key, value in other.sums.items():
            sums[key] = sums[key] + value if key in sums else value
        seen = {Expected(key.address, key.kind) for key in sums}
        missing = {what: why for what, why in (other.missing | self.missing).items() if what not in seen}
        parameters = dict(other.parameters)
        for role, own in self.parameters.items():
            parameters[role] = _agreed(own, parameters[role]) if role in parameters else own
        return StepState(sums, missing, other.absent | self.absent, parameters)


@dataclass(frozen=True)
class State:
    """What a recorder knows; :func:`merge` makes one table of those of several.

    Attributes:
        steps: what was recorded, by step.
        sites: the sites that have rows.
        quantities: the quantities that have rows.
    """

    steps: dict[int, StepState]
    sites: frozenset[str]
    quantities: frozenset[str]

    def __add__(self, other: "State") -> "State":
        """Return both together.

        Raises:
            RecordingError: they recorded different sites or quantities.
        """
        if (self.sites, self.quantities) != (other.sites, other.quantities):
            raise RecordingError(
                "the states were recorded with different sites or quantities: record all with the same arguments"
            )
        steps = dict(self.steps)
        for step, value in other.steps.items():
            steps[step] = steps[step] + value if step in steps else value
        return State(steps, self.sites, self.quantities)


def merged(states: Iterable[State]) -> State:
    """Add states of different batches, micro-batches or processes.

    Raises:
        RecordingError: there is none, something is no state, or they recorded different things.
    """
    given = _checked(states)
    if not given:
        raise RecordingError("there is no state to merge: give at least one, from Recorder.state()")
    return reduce(add, given)


def _checked(states: Any) -> tuple[State, ...]:
    if not isinstance(states, Iterable) or isinstance(states, str | bytes | Mapping | pd.DataFrame):
        raise _no_state("what was given", states)
    given = tuple(states)
    for place, state in enumerate(given):
        if not isinstance(state, State):
            raise _no_state(f"item {place}", state)
    return given


def _no_state(what: str, value: Any) -> RecordingError:
    shown = repr(value) if value is None or isinstance(value, int | float) else f"a {type(value).__name__}"
    return RecordingError(
        f"merge takes a list of states, and {what} is {shown}: give it those that Recorder.state() returned, "
        "as in merge([one.state(), two.state()])"
    )


def merge(states: Iterable[State]) -> pd.DataFrame:
    """Return the table of several recordings of the same model on different batches or processes.

    Rows of sites come out as if all tokens had been recorded at once. A parameter's gradient is a sum over
    batches that norms cannot be added to: its rows have a value where all states agree, as they do on
    processes that share their gradients.

    Args:
        states: what :meth:`Recorder.state` returned, also after pickling.

    Raises:
        RecordingError: there is none, something is no state, or they recorded different sites or quantities.
    """
    from normlab.recording.rows import table_of

    return table_of(merged(states))


def _agreed(one: RoleSums, two: RoleSums) -> RoleSums:
    if one == two:
        return one
    squares = one.squares if (one.squares, one.broken) == (two.squares, two.broken) else float("nan")
    return one._replace(
        squares=squares,
        gradient_entries=0,
        gradient_squares=0.0,
        nonfinite=0,
        without=("gradients of different batches do not merge",),
        broken=max(one.broken, two.broken),
        unread=one.unread or two.unread,
    )
