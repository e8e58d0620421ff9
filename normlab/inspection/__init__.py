"""What a given model does to the scale of its activations, in words, and where two models part."""

from normlab.inspection.asserting import Outcome, check, outcome
from normlab.inspection.comparing import compare, compare_runs, compare_subjects, run_at
from normlab.inspection.comparison import Comparison
from normlab.inspection.conditions import Condition, check_recorded, parse
from normlab.inspection.feeding import Windows
from normlab.inspection.finding import Finding
from normlab.inspection.inspecting import inspect, inspect_subject
from normlab.inspection.inspection import Inspection, by_layer
from normlab.inspection.loading import load_subject
from normlab.inspection.parting import Part
from normlab.inspection.subject import Subject

__all__ = [
    "Comparison",
    "Condition",
    "Finding",
    "Inspection",
    "Outcome",
    "Part",
    "Subject",
    "Windows",
    "by_layer",
    "check",
    "check_recorded",
    "compare",
    "compare_runs",
    "compare_subjects",
    "inspect",
    "inspect_subject",
    "load_subject",
    "outcome",
    "parse",
    "run_at",
]
