"""How the scale of activations and gradients changes with depth in transformers: measured, predicted and judged.

``import normlab as nl`` is quick: each name below is imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from normlab import claims, data, fits, jacobian, losses, plots, presets, table, theory
    from normlab.claims import register_claim
    from normlab.errors import NormlabError
    from normlab.inits import register_init
    from normlab.inspection import compare, inspect
    from normlab.models import build
    from normlab.norms import kernels_info, register_norm
    from normlab.placements import register_placement
    from normlab.recording import RecordingWarning, check_transparent, discover, merge, record
    from normlab.reports import report
    from normlab.spec import ModelSpec
    from normlab.sweeps import grid, load, sweep
    from normlab.table import QUANTITIES, SITES

__version__ = "0.1.0"

__all__ = [
    # models and what they are fed
    "ModelSpec",
    "build",
    "data",
    "losses",
    "presets",
    # recording
    "record",
    "merge",
    "check_transparent",
    "discover",
    # one model in words, and where two part
    "inspect",
    "compare",
    # derivatives, and what is expected
    "jacobian",
    "theory",
    # sweeps
    "grid",
    "sweep",
    "load",
    # the table, and what its rows mean
    "table",
    "QUANTITIES",
    "SITES",
    # from tables to laws, verdicts, plots and the report
    "fits",
    "claims",
    "plots",
    "report",
    # which implementation of the norms is used, and why
    "kernels_info",
    # additions of your own
    "register_norm",
    "register_placement",
    "register_init",
    "register_claim",
    # errors and warnings
    "NormlabError",
    "RecordingWarning",
    "__version__",
]

_MODULES = ("claims", "data", "fits", "jacobian", "losses", "plots", "presets", "table", "theory")
_HOMES = {
    "ModelSpec": "spec",
    "build": "models",
    "record": "recording",
    "merge": "recording",
    "check_transparent": "recording",
    "discover": "recording",
    "RecordingWarning": "recording",
    "inspect": "inspection",
    "compare": "inspection",
    "grid": "sweeps",
    "sweep": "sweeps",
    "load": "sweeps",
    "QUANTITIES": "table",
    "SITES": "table",
    "report": "reports",
    "register_norm": "norms",
    "kernels_info": "norms",
    "register_placement": "placements",
    "register_init": "inits",
    "register_claim": "claims",
    "NormlabError": "errors",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"normlab.{name}")
    if name in _HOMES:
        value = getattr(import_module(f"normlab.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'normlab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
