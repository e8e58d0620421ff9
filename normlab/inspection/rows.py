"""The rows of the table that an inspection adds to a recorder's."""

import math
from collections.abc import Iterator

from normlab.inspection.looking import Look
from normlab.inspection.precision import doublings
from normlab.recording import Address


def rows_of(seen: Look) -> Iterator[dict[str, object]]:
    """Yield the rows of what the recorder does not measure."""
    for at, one in seen.streams.items():
        key = _key(at) | {"dtype": seen.dtypes[at]} | ({"status": "nonfinite"} if one.nonfinite else {})
        yield from _valued(key, "bulk_mean_square", one.bulk_mean_square)
        yield from _valued(key, "bulk_rms", one.bulk_mean_square**0.5)
        yield from _valued(key, "top_share", one.top_share)
        yield from _valued(key, "massive_ratio", one.massive_ratio)
    for at, value in seen.changes.items():
        yield from _valued(_key(at) | {"dtype": seen.dtypes[at]}, "block_change", value)
    for at, value in seen.updates.items():
        yield from _valued(_key(at) | {"dtype": seen.dtypes[at]}, "median_update_ratio", value)
    for at, (_, median) in seen.lost.items():
        yield from _valued(_key(at) | {"dtype": seen.dtypes[at]}, "bf16_lost_share", median)
    for at, heads in seen.heads.items():
        for head, logit in enumerate(heads):
            key = _key(at._replace(site="logits")) | {"head": head}
            key |= {"status": "nonfinite"} if logit.nonfinite else {}
            for name, value in (
                ("mean_square", logit.mean_square),
                ("rms", logit.mean_square**0.5),
                ("mean", logit.mean),
                ("max_abs", logit.max_abs),
            ):
                yield from _valued(key, name, value)
            yield _doublings(key, logit.max_abs)
    for at in seen.unseen:
        status = "no softmax over all pairs of tokens was seen here"
        yield _key(at._replace(site="logits")) | {"quantity": "max_abs", "value": float("nan"), "status": status}
    yield _doublings({"name": seen.peak.module}, seen.peak.max_abs)


def _key(at: Address) -> dict[str, object]:
    return {"stack": at.stack, "layer": at.layer, "sublayer": at.sublayer, "site": at.site, "name": at.name}


def _valued(key: dict[str, object], quantity: str, value: float) -> Iterator[dict[str, object]]:
    known = value == value
    status = (
        "undefined" if not known else "exact-zero" if value == 0 else "ok" if abs(value) < math.inf else "nonfinite"
    )
    yield {"status": status} | key | {"quantity": quantity, "value": value}


def _doublings(key: dict[str, object], largest: float) -> dict[str, object]:
    """Return the row of the doublings that are left; what is zero has no number of them."""
    value, status = (doublings(largest), "ok") if largest > 0 else (math.nan, "undefined" if largest else "zero tensor")
    return {"status": status} | key | {"quantity": "fp16_doublings", "value": value}
