"""What every kernel costs on every architecture, as ``tools/kernel_costs.py`` recorded it, and of which sources."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from normlab.cupy_kernels.catalogue import every_kernel
from normlab.cupy_kernels.compile import Cost
from normlab.cupy_kernels.sass import Work
from normlab.cupy_kernels.source import render


@dataclass(frozen=True)
class Record:
    """What was recorded for one architecture.

    Attributes:
        sources: of each function the digest of the source that was compiled.
        costs: of each kernel, by symbol.
        works: of each kernel the instructions for a few elements.
    """

    sources: Mapping[str, str]
    costs: Mapping[str, Cost]
    works: Mapping[str, Work]


def recorded() -> dict[str, Record]:
    """Return the record, by architecture."""
    text = files("normlab.cupy_kernels").joinpath("data", "costs.json").read_text(encoding="utf-8")
    return {architecture: _record(found) for architecture, found in json.loads(text).items()}


def _record(found: Mapping[str, Any]) -> Record:
    numbers: Mapping[str, Sequence[int]] = found["costs"]
    costs = {symbol: Cost(*each[:4]) for symbol, each in numbers.items()}
    works = {symbol: Work(each[4], tuple(each[5:])) for symbol, each in numbers.items()}
    return Record(found["sources"], costs, works)


@cache
def digests() -> dict[str, str]:
    """Return of each function a digest of its source as it is now: a record of another one is out of date."""
    first = {spec.function: spec for spec in reversed(every_kernel())}
    return {name: hashlib.sha256(render([spec]).encode()).hexdigest()[:16] for name, spec in sorted(first.items())}
