"""Sums of tensors in host memory by the compiled ``native.cpp``: one pass a tensor, in float64.

Between the layers of a model every call finds cold caches, so that a handful of torch operations a tensor
costs several times what reading it does. The library is compiled where the package is built and a C++
compiler is there; without it, and for every tensor that it does not take, there is torch.
"""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from normlab.recording.odd import is_usual
from normlab.recording.radii import KEPT, Radii
from normlab.recording.sums import COLUMNS, Sums
from normlab.recording.tensors import version
from normlab.recording.tokens import Wanted

if TYPE_CHECKING:
    from normlab.recording._native import Written

NAME: Final = "normlab.recording._native"
_SAMPLES: Final = 16


@cache
def library() -> Any:
    """Return the compiled library, or ``None`` where the package was built without it."""
    try:
        return import_module(NAME)
    except ImportError:
        return None


def loaded(path: str) -> Any:
    """Load a compiled ``native.cpp``.

    Raises:
        ImportError: it cannot be loaded.
    """
    loader = ExtensionFileLoader(NAME, path)
    spec = spec_from_loader(NAME, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def native_activation(
    x: Float[Tensor, "sequence token feature"],
    keep: Bool[Tensor, "sequence token"] | None,
    wanted: Wanted,
) -> "Written | None":
    """Return the sums of an activation, or ``None`` where it needs another way.

    Args:
        x: the tensor, of any strides.
        keep: which tokens count; all unless given.
        wanted: which numbers are of use.
    """
    compiled = library()
    return compiled and compiled.activation(x, _contiguous(keep), wanted.total or wanted.direction)


def native_gradient(
    g: Float[Tensor, "sequence token feature"], keep: Bool[Tensor, "sequence token"] | None
) -> "Written | None":
    """Return the sums of a gradient, or ``None`` where it needs another way."""
    compiled = library()
    return compiled and compiled.gradient(g, _contiguous(keep))


def native_pair(
    update: Float[Tensor, "sequence token feature"],
    skip: Float[Tensor, "sequence token feature"],
    total: Float[Tensor, "sequence token feature"] | None,
    keep: Bool[Tensor, "sequence token"] | None,
) -> "Written | None":
    """Return the sums of a residual sum, or ``None`` where it needs another way.

    Args:
        update: u, what is added.
        skip: s, what it is added to.
        total: the sum as it was stored, where there is one.
        keep: which tokens count; all unless given.
    """
    compiled = library()
    return compiled and compiled.pair(update, skip, total, _contiguous(keep))


def native_sizes(tensors: list[Tensor], places: list[tuple[int, ...] | None]) -> np.ndarray:
    """Return the number of entries of each tensor and the sum of their squares; NaN where it needs another way.

    Args:
        tensors: the tensors; one with entries that are not finite needs another way.
        places: first and last-plus-one place on the first axis, where not the whole tensor is meant; nothing in it
            where the part is of another axis, which needs another way.

    Raises:
        ValueError: there are not as many of these as tensors.
    """
    compiled = library()
    if compiled is None:
        return np.full((len(tensors), 2), np.nan)
    return np.array(compiled.sizes(tensors, places)).reshape(-1, 2)


def marks(tensors: Sequence[Tensor | None]) -> list[tuple[int, int, int]]:
    """Return of each tensor how often it was changed in place, how many bytes it has, and a number of some entries.

    Not everybody who writes into a tensor lets torch count, as who writes by ``tensor.data``: some entries, spread over
    all of it, tell of that. Where torch does not count, or no tensor is there, the first is -1; where the entries are
    not in host memory the last two are 0.
    """
    if (compiled := library()) is not None:
        found: list[tuple[int, int, int]] = compiled.marks(tensors)
        return found
    return [(-1, 0, 0) if tensor is None else (version(tensor), *sampled(tensor)) for tensor in tensors]


def sampled(tensor: Tensor) -> tuple[int, int]:
    """Return how many bytes a tensor in host memory has and a number of 16 entries; both 0 where it cannot be read."""
    if not (is_usual(tensor) and tensor.is_cpu and tensor.numel()):
        return 0, 0
    with torch.no_grad():
        places = torch.arange(_SAMPLES, device="cpu") * (tensor.numel() - 1) // (_SAMPLES - 1)
        values = tensor.detach()[torch.unravel_index(places, tensor.shape)]
    return tensor.nbytes, hash(values.reshape(-1).view(torch.uint8).numpy().tobytes())


def sums_of(written: "Written") -> Sums:
    """Return what the library wrote about a tensor as sums."""
    columns, numbers = len(COLUMNS[written.kind]), np.frombuffer(memoryview(written))
    values = numbers[:columns]
    if written.kind == "pair":
        return Sums(written.kind, values)
    if written.kind == "gradient":
        return Sums(written.kind, values, float(numbers[columns]))
    radii = Radii(numbers[columns + 1 :].view(np.float32)[: written.tokens])
    if written.tokens > KEPT:
        # A histogram takes less memory.
        values, radii = values.copy(), radii.binned()
    return Sums(written.kind, values, float(numbers[columns]), radii)


def _contiguous(keep: Tensor | None) -> Tensor | None:
    return None if keep is None else keep.contiguous()
