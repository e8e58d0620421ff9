"""Which site plan a model gets that was given none."""

from dataclasses import replace

from torch import nn

from normlab.models import Transformer
from normlab.recording.discovery import discover
from normlab.recording.discovery.example import describes_itself
from normlab.recording.generic import generic_plan
from normlab.recording.plan import Absent, Address, SitePlan
from normlab.recording.tree import Tree
from normlab.recording.zoo import zoo_plan


def plan_of(model: nn.Module, tree: Tree | None = None) -> SitePlan:
    """Return the plan of a model of the zoo; one that is found; or one of the outputs of all modules.

    A model of transformers runs once on a small batch for it. For other models that takes a batch of theirs:
    ``record(model, sites=discover(model, batch).plan)``.

    Args:
        model: the model.
        tree: its modules and parameters as they are now, where somebody has them already.
    """
    if isinstance(model, Transformer):
        return zoo_plan(model, tree)
    if not describes_itself(model):
        return generic_plan(model)
    try:
        found = discover(model)
    except Exception as error:  # what a stranger's model raises must not end the recording
        return _without_stream(model, f"discovery failed ({type(error).__name__}): give a plan as sites=")
    return found.plan if found.stacks else _without_stream(model, found.reason)


def _without_stream(model: nn.Module, reason: str) -> SitePlan:
    plan = generic_plan(model)
    return replace(plan, absent=(*plan.absent, Absent(Address(site="stream"), reason)))
