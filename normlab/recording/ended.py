"""A step that ended, before anybody looks at it."""

from typing import NamedTuple

from normlab.recording.ledger import Ledger
from normlab.recording.parameters import Measured
from normlab.recording.state import Expected


class Ended(NamedTuple):
    """What a step left. It is added up when somebody asks for it, not while a model trains.

    Attributes:
        ledger: its books.
        spoilt: slots whose numbers mean nothing.
        missing: the sites that were expected and not observed, and why.
        parameters: what was measured of the parameters.
    """

    ledger: Ledger
    spoilt: frozenset[int]
    missing: dict[Expected, str]
    parameters: Measured
