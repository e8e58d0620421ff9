"""Claims about normalization, and verdicts on them.

A claim states what its source asserts, how it is decided and what would refute it, before any data is
seen; :func:`judge` takes it and a table to a :class:`Verdict`. The table is that of a sweep, or of the
claim's own computations (:func:`run`).
"""

# Importing the families registers their claims.
from normlab.claims import families as _families  # noqa: F401
from normlab.claims.catalogue import catalog
from normlab.claims.claim import CLAIMS, Claim, Design, Gap, Regime, Sample, Statistic, register_claim
from normlab.claims.combining import combine
from normlab.claims.evidence import Evidence, Number
from normlab.claims.exactness import AtLeast, AtMost
from normlab.claims.finite_size import FiniteSize, Size
from normlab.claims.judging import false_verdicts_expected, judge, judge_all, kept
from normlab.claims.provenance import measured_with, rows_hash
from normlab.claims.rules import Above, Below, Decision, EqualWithin, Rule, ZeroWithin
from normlab.claims.running import Plan, check, plan, read, run
from normlab.claims.scoreboard import scoreboard
from normlab.claims.verdict import RegimeVerdict, Verdict

__all__ = [
    # judging
    "CLAIMS",
    "catalog",
    "check",
    "false_verdicts_expected",
    "judge",
    "judge_all",
    "kept",
    "measured_with",
    "rows_hash",
    "scoreboard",
    # running
    "Plan",
    "plan",
    "read",
    "run",
    # verdicts
    "FiniteSize",
    "RegimeVerdict",
    "Size",
    "Verdict",
    "combine",
    # claims of your own
    "Claim",
    "Design",
    "Evidence",
    "Gap",
    "Number",
    "Regime",
    "Sample",
    "Statistic",
    "register_claim",
    # decision rules
    "Above",
    "AtLeast",
    "AtMost",
    "Below",
    "Decision",
    "EqualWithin",
    "Rule",
    "ZeroWithin",
]
