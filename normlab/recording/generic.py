"""The site plan of a model that nobody has described: what its modules give, and every parameter by name."""

from torch import nn

from normlab.recording.plan import Address, Observed, Parameter, Port, SitePlan


def generic_plan(model: nn.Module) -> SitePlan:
    """Return the plan that observes the output of every module without children or with parameters of its own.

    Some modules of the second kind, such as torch's attention, use the parameters of their children past them, so
    that those never run. A result that is not one tensor has rows for each tensor in it, with the way to it in
    brackets, a key in quotes where it would read as another one. A module that stands in several places is observed
    once, under the names of all of them; so is a parameter.
    """
    places: dict[int, list[str]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        if not any(module.children()) or any(True for _ in module.parameters(recurse=False)):
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
