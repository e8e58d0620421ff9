"""Where a model's norms are: the zoo's by its module tree, others by what discovery found."""

from collections.abc import Iterator
from typing import cast

from torch import nn

from normlab.models import Transformer
from normlab.recording import Architecture
from normlab.where import StackName

#: Names of the norms of a sub-layer of the zoo, relative to it, by position.
_ZOO = {
    "inner": "inner_norm",
    "output": "output_norm",
    "outer": "outer_norm",
    "mid": "mixer.mid_norm",
    "qk": "mixer.q_norm.norm",
    "value": "mixer.v_norm.norm",
}


def zoo_norms(model: Transformer, stack: str, layer: int, sublayer: str) -> Iterator[tuple[str, str]]:
    """Yield position and path of the norms of a sub-layer; queries stand for keys too."""
    for path, module in model.sublayers(cast(StackName, stack)):
        if (module.where.layer, module.where.sublayer) == (layer, sublayer):
            for position, name in _ZOO.items():
                if _has(module, name):
                    yield position, f"{path}.{name}"


def zoo_final_norm(model: Transformer, stack: str) -> str:
    """Return the path of the norm after the last block; empty where there is none."""
    path = f"stacks.{stack}.final_norm"
    return path if _has(model, path) else ""


def found_norms(found: Architecture, stack: str, layer: int, sublayer: str) -> Iterator[tuple[str, str]]:
    """Yield position and path of the norms of a sub-layer."""
    for one in found.stacks:
        for part in one.sublayers if one.name == stack else ():
            if (part.layer, part.sublayer) == (layer, sublayer):
                yield from ((norm.position, norm.path) for norm in part.norms)


def found_final_norm(found: Architecture, stack: str) -> str:
    """Return the path of the norm after the last block; empty where there is none."""
    finals = [one.final_norm for one in found.stacks if one.name == stack and one.final_norm is not None]
    return finals[0].path if finals else ""


def _has(module: nn.Module, path: str) -> bool:
    for name in path.split("."):
        child = getattr(module, name, None)
        if not isinstance(child, nn.Module):
            return False
        module = child
    return True
