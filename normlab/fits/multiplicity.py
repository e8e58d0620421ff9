"""Many tests at once: Holm's step-down correction."""

from collections.abc import Sequence

import numpy as np

from normlab.errors import DataError


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return Holm's adjusted p-values, in the order given.

    Sorted upwards, p_(i) becomes the largest (m − j + 1)·p_(j) over j ≤ i, at most 1: with adjusted
    values at most α the probability of any false rejection is at most α, however the tests depend on
    each other. (Holm 1979.)

    Raises:
        DataError: a number that is no probability.

    >>> [round(p, 6) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    given = np.asarray(p_values, dtype=np.float64)
    if not ((given >= 0) & (given <= 1)).all():
        raise DataError(f"p-values {list(p_values)}: give numbers between 0 and 1")
    order = np.argsort(given, kind="stable")
    steps = np.maximum.accumulate(given[order] * np.arange(len(given), 0, -1))
    adjusted = np.empty(len(given))
    adjusted[order] = np.minimum(steps, 1.0)
    return tuple(float(p) for p in adjusted)
