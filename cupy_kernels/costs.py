"""What every kernel costs on every architecture, as ``tools/kernel_costs.py`` recorded it, and of which sources."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from normlab.cupy_kernels.catalogue import every_kernel
from normlab.cupy_kernels.compile import Cost
from normlab.cupy_kernels.source import render


@dataclass(frozen=True)
class Record:
    """What was recorded for one architecture.

    Attributes:
        sources: of each function the digest of the source that was compiled.
        costs: of each kernel, by symbol.
    """

    sources: Mapping[str, str]
    costs: Mapping[str, Cost]


def recorded() -> dict[str, Record]:
    """Return the record, by architecture."""
    text = files("normlab.cupy_kernels").joinpath("data", "costs.json").read_text(encoding="utf-8")
    return {architecture: _record(found) for architecture, found in json.loads(text).items()}


def _record(found: Mapping[str, Mapping[str, object]]) -> Record:
    costs = {symbol: Cost(*numbers) for symbol, numbers in found["costs"].items() if isinstance(numbers, list)}
    return Record({name: str(digest) for name, digest in found["sources"].items()}, costs)


@cache
def digests() -> dict[str, str]:
    """Return of each function a digest of its source as it is now: a record of another one is out of date."""
    first = {spec.function: spec for spec in reversed(every_kernel())}
    return {name: hashlib.sha256(render([spec]).encode()).hexdigest()[:16] for name, spec in sorted(first.items())}
