"""What is observed on a running model: site plans, hooks, streaming moments, parameter gradients, coverage."""

from normlab.recording.discovery import Architecture, discover
from normlab.recording.plan import (
    Absent,
    Address,
    Observed,
    Parameter,
    Port,
    Residual,
    Scores,
    SitePlan,
)
from normlab.recording.recorder import Recorder, record
from normlab.recording.refusals import RecordingWarning
from normlab.recording.state import State, merge
from normlab.recording.transparent import Transparency, check_transparent

__all__ = [
    # recording
    "Recorder",
    "RecordingWarning",
    "State",
    "merge",
    "record",
    # what a model is made of
    "Architecture",
    "discover",
    # proof that it changes nothing
    "Transparency",
    "check_transparent",
    # plans
    "Absent",
    "Address",
    "Observed",
    "Parameter",
    "Port",
    "Residual",
    "Scores",
    "SitePlan",
]
