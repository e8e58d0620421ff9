"""An inspection of one model as the page shows it."""

import math
from dataclasses import dataclass
from typing import Final

from normlab.digits import cell
from normlab.inspection import Inspection
from normlab.inspection.attention import HeadLogits
from normlab.inspection.inspection import COLUMNS
from normlab.inspection.precision import doublings

#: The caption of the table by layer.
EVERY: Final = "Every sub-layer"
_WORDS = {"attn": "attention", "mlp": "MLP", "cross": "cross-attention", "embed": "embedding"}


@dataclass(frozen=True)
class LayerTable:
    """A table by layer.

    Attributes:
        caption: what it holds.
        corner: what the rows' headings are.
        columns: headings.
        rows: for each sub-layer its name and its cells.
    """

    caption: str
    corner: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


def tables_of(inspection: Inspection) -> tuple[LayerTable, ...]:
    """Return the table by layer, and where attention logits were seen, that of every head's largest."""
    return tuple(one for one in (layer_table(inspection), head_table(inspection)) if one.columns)


def layer_queries(inspection: Inspection) -> list[str]:
    """Return what the columns of the table by layer are, as queries of the rows."""
    shown = set(inspection.layers.columns)
    return [f"site == '{site}' and quantity == '{quantity}'" for name, site, quantity, _ in COLUMNS if name in shown]


def head_table(inspection: Inspection) -> LayerTable:
    """Return for each attention sub-layer the largest absolute logit of each head, and the least head-room of all."""
    seen = {at: [_room(heads), *map(_logit, heads)] for at, heads in inspection.look.heads.items()}
    most = max((len(cells) for cells in seen.values()), default=0)
    several = len({at.stack for at in seen}) > 1
    rows = tuple(
        (
            f"{f'{at.stack} ' if several else ''}{at.layer} {_words(at.name or at.sublayer)}",
            (*cells, *[""] * (most - len(cells))),
        )
        for at, cells in seen.items()
    )
    columns = ("fp16 doublings left", *(f"head {head}" for head in range(most - 1))) if seen else ()
    return LayerTable("Largest logit of every head", "sub-layer", columns, rows)


def layer_table(inspection: Inspection) -> LayerTable:
    """Return the table by layer, rounded; what was not measured is a dash."""
    frame = inspection.layers
    names = [name for name in frame.columns if name not in ("stack", "layer", "sublayer")]
    several = frame["stack"].nunique() > 1
    rows = []
    for row in frame.to_dict("records"):
        stack = f"{row['stack']} " if several else ""
        heading = f"{stack}{row['layer']} {_words(row['sublayer'])}"
        rows.append((heading, tuple(cell(row[name]) for name in names)))
    return LayerTable(EVERY, "sub-layer", tuple(str(name) for name in names), tuple(rows))


def _words(sublayer: str) -> str:
    """Return a sub-layer's name in words; a block that has several of a kind numbers them: attn 2."""
    kind, space, number = sublayer.partition(" ")
    return f"{_WORDS.get(kind, kind)}{space}{number}"


def _room(heads: list[HeadLogits]) -> str:
    return cell(min((doublings(one.max_abs) for one in heads), default=math.nan))


def _logit(one: HeadLogits) -> str:
    return "not finite" if one.nonfinite else cell(one.max_abs)
