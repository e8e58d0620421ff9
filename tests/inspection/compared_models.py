"""Two models compared on a short text, and what the table has of them after each block."""

import torch

import normlab as nl
from normlab.inspection import Comparison

TOKENS = 16


def compared(one: torch.nn.Module, two: torch.nn.Module, **more: object) -> Comparison:
    return nl.compare(one, two, tokens=TOKENS, **more)  # type: ignore[arg-type]


def values(found: Comparison, quantity: str) -> dict[int, float]:
    rows = found.table[(found.table["quantity"] == quantity) & (found.table["sublayer"] == "mlp")]
    return {int(row.layer): float(row.value) for row in rows[rows["site"] == "stream"].itertuples()}
