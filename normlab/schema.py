"""The columns of the table, and which of them identify a row. Importable without pandas."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

ColumnKind: TypeAlias = Literal["text", "integer", "float"]

SCHEMA_VERSION: Final = 1

#: What every table has, in order.
COLUMNS: Final[Mapping[str, ColumnKind]] = {
    "source": "text",
    "stack": "text",
    "layer": "integer",
    "to_layer": "integer",
    "sublayer": "text",
    "site": "text",
    "quantity": "text",
    "role": "text",
    "head": "integer",
    "name": "text",
    "call": "integer",
    "dtype": "text",
    "value": "float",
    "se": "float",
    "sd_log": "float",
    "status": "text",
    "step": "integer",
}

#: What a sweep adds, in order: every field of a ModelSpec, its id, and what it was run on.
CELL_COLUMNS: Final[Mapping[str, ColumnKind]] = {
    "placement": "text",
    "norm": "text",
    "init": "text",
    "activation": "text",
    "attention": "text",
    "depth": "integer",
    "width": "integer",
    "kind": "text",
    "heads": "integer",
    "kv_heads": "integer",
    "head_width": "integer",
    "mlp_width": "integer",
    "encoder_depth": "integer",
    "vocab": "integer",
    "context": "integer",
    "placement_options": "text",
    "norm_eps": "float",
    "norm_options": "text",
    "final_norm": "text",
    "embed_norm": "text",
    "qk_norm": "text",
    "v_norm": "text",
    "init_options": "text",
    "embed_std": "float",
    "bias": "text",
    "position": "text",
    "tie_embeddings": "text",
    "parallel": "text",
    "dropout": "float",
    "spec": "text",
    "data": "text",
    "batch": "integer",
    "tokens": "integer",
    "loss": "text",
    "model_seed": "integer",
    "data_seed": "integer",
}

#: Columns that hold what was found, and so cannot identify a row.
RESULTS: Final = ("value", "se", "sd_log", "status")

#: Sub-layers in the order in which a block runs them.
SUBLAYERS: Final = ("embed", "attn", "cross", "mlp", "final", "head")


def kinds(columns: Iterable[str]) -> dict[str, ColumnKind]:
    """Return the kind of each of ``columns``; one that this module does not define is text."""
    return {name: COLUMNS.get(name) or CELL_COLUMNS.get(name) or "text" for name in columns}


def key(columns: Iterable[str]) -> list[str]:
    """Return those of ``columns`` that identify a row, in the order in which rows are sorted."""
    present = list(columns)
    measured = [name for name in COLUMNS if name in present and name not in (*RESULTS, "step")]
    cell = [name for name in present if name not in COLUMNS]
    known = [name for name in CELL_COLUMNS if name in cell]
    other = sorted(set(cell) - set(known))
    return [*known, *other, *(["step"] if "step" in present else []), *measured]
