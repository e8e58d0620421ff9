"""Records of several layers as one: their arrays one above the other, with a first axis of layers."""

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, TypeVar, cast

import numpy as np

from normlab.theory.copies import replace

T = TypeVar("T")


def stacked(records: Sequence[T]) -> T:
    """Return records of one kind as one.

    Args:
        records: of each layer. What is the same in all stays as it is; numbers that differ become a column, which
            multiplies each layer's entries, and a number beside arrays one of their shape.
    """
    return cast(T, _stacked(records))


def _stacked(records: Sequence[Any]) -> Any:
    first = records[0]
    if len(records) > 1 and all(one is first for one in records):
        return first
    if is_dataclass(first):
        parts = [vars(one) for one in records]
        return replace(first, **{name: _stacked([part[name] for part in parts]) for name in parts[0]})
    if isinstance(first, Mapping):
        return {name: _stacked([one[name] for one in records]) for name in first}
    arrays = [one for one in records if isinstance(one, np.ndarray)]
    if arrays:
        if len(arrays) < len(records):
            arrays = [np.broadcast_to(one, arrays[0].shape) for one in records]
        return np.concatenate(arrays).reshape(len(records), -1)
    return first if all(one == first for one in records) else np.array(records)[:, None]
