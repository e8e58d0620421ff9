"""The site plan of a model that nobody has described: what its leaf modules give, and every parameter by name."""

from torch import nn

from normlab.recording.plan import Address, Observed, Parameter, Port, SitePlan


def generic_plan(model: nn.Module) -> SitePlan:
    """Return the plan that observes the output of every module without children.

    A module that stands in several places is observed once, under the names of all of them; so is a
    parameter.
    """
    places: dict[int, list[str]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        if not any(module.children()):
            places.setdefault(id(module), []).append(path)
    owners: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        owners.setdefault(id(parameter), []).append(name)
    return SitePlan(
        observed=tuple(
            Observed(Address(site="output", name=", ".join(paths)), Port(paths[0])) for paths in places.values()
        ),
        parameters=tuple(Parameter(names[0], Address(name=", ".join(names)), "") for names in owners.values()),
    )
