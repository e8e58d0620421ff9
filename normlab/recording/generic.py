"""The site plan of a model that nobody has described: what its modules give, and every parameter by name."""

from collections.abc import Iterator
from typing import Final

import torch
from torch import nn

from normlab.recording.plan import Absent, Address, Observed, Parameter, Port, SitePlan

#: In what the entries of packed weights are kept, several of them in one where they have few bits.
_PACKED: Final = tuple(
    getattr(torch, name)
    for name in ("int8", "uint8", "int16", "int32", "float8_e4m3fn", "float8_e5m2")
    if hasattr(torch, name)
)


def generic_plan(model: nn.Module) -> SitePlan:
    """Return the plan that observes the output of every module without children or with parameters of its own.

    Some modules of the second kind, such as torch's attention, use the parameters of their children past them, so
    that those never run. A result that is not one tensor has rows for each tensor in it, with the way to it in
    brackets, a key in quotes where it would read as another one. A module that stands in several places is observed
    once, under the names of all of them; so is a parameter.
    """
    places: dict[int, list[str]] = {}
    stores = {id(store) for module in model.modules() if (store := _store(module)) is not None}
    for path, module in model.named_modules(remove_duplicate=False):
        own = not any(module.children()) or any(True for _ in module.parameters(recurse=False))
        if (own or _store(module) is not None) and id(module) not in stores:
            places.setdefault(id(module), []).append(path)
    owners: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        owners.setdefault(id(parameter), []).append(name)
    return SitePlan(
        observed=tuple(
            Observed(Address(site="output", name=", ".join(paths)), Port(paths[0])) for paths in places.values()
        ),
        absent=tuple(packed(model)),
        parameters=tuple(Parameter(names[0], Address(name=", ".join(names)), "") for names in owners.values()),
    )


def packed(model: nn.Module) -> Iterator[Absent]:
    """Yield what stands in for parameters: weights of few bits, which no parameter holds."""
    for path, module in model.named_modules():
        start = f"{path}." if path else ""
        if _store(module) is not None or (
            "_packed_params" in vars(module) and callable(getattr(module, "weight", None))
        ):
            yield Absent(Address(name=f"{start}weight"), f"packed by {type(module).__name__}, no parameter")
        buffers = module._buffers
        if any("scale" in name for name in buffers.keys()):
            for name, buffer in buffers.items():
                if buffer is not None and buffer.dim() > 1 and buffer.dtype in _PACKED:
                    dtype = str(buffer.dtype).removeprefix("torch.")
                    yield Absent(Address(name=start + name), f"packed as {dtype}, no parameter")


def _store(module: nn.Module) -> nn.Module | None:
    """Return the module in which a quantised one keeps its weights, and which never runs."""
    if "_packed_params" not in module._modules or not callable(getattr(module, "weight", None)):
        return None
    return module._modules["_packed_params"]
