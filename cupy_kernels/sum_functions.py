"""The functions of the recorder's statistics, and the one that adds up parts of sums."""

from dataclasses import replace
from typing import Final

from normlab.cupy_kernels.signature import (
    ROUND,
    ROW_COUNT,
    TILES,
    D,
    Function,
    X,
    pointer,
    rows,
    rows_value,
    scalar,
)

_MASK = pointer("mask", "[rows]; 0: the row counts nowhere", type="const unsigned char*", optional=True)
_MOMENTS_OUT = pointer("moments", "[rows, 8], as the kernel's file says", type="double*", role="output")
_TOKENS_OUT = pointer("tokens", "[6, rows], as the kernel's file says", type="double*", role="output", optional=True)
_STORED = pointer("stored", "[rows, d], rows as stored_stride says; the sum of both as it was rounded", optional=True)
_LOST = pointer("lost", "[rows]; written where stored is given", type="double*", role="output", optional=True)
_COLUMNS = scalar("columns", "elements of a row")
_COLUMN_STRIDE = scalar("column_stride", "elements between neighbours of a row; 1 where vectors are wider than one")
_MOMENTS = ("storage.cuh", "team.cuh", "moments.cuh")

SUM_FUNCTIONS: Final[dict[str, Function]] = {
    "tensor_moments": Function(
        grid=ROUND,
        files=_MOMENTS,
        template="{T}, {vec}, {team}",
        parameters=(
            *(X, _MASK, replace(_MOMENTS_OUT, optional=True), _TOKENS_OUT, ROW_COUNT, _COLUMNS),
            *(*rows("x"), _COLUMN_STRIDE),
        ),
        call=("x", "mask", "moments", "tokens", "rows", "columns", rows_value("x"), "column_stride"),
    ),
    "pair_moments": Function(
        grid=ROUND,
        files=(*_MOMENTS, "pair_moments.cuh"),
        template="{T}, {vec}, {team}",
        parameters=(
            *(X, pointer("other", "[rows, d], rows as other_stride says"), _STORED, _MASK, _MOMENTS_OUT, _LOST),
            *(ROW_COUNT, _COLUMNS, *rows("x"), *rows("other"), *rows("stored"), _COLUMN_STRIDE),
        ),
        call=(
            *("x", "other", "stored", "mask", "moments", "lost", "rows", "columns"),
            *(rows_value("x"), rows_value("other"), rows_value("stored"), "column_stride"),
        ),
    ),
    "sequence_sums": Function(
        grid="tiles * chunks * sequences, with tiles = ceil(d / {tile}) and chunks = ceil(length / chunk)",
        files=("storage.cuh", "team.cuh", "sequence_sums.cuh"),
        template="{T}, {vec}, {team}",
        parameters=(
            X,
            pointer("norms", "[sequences * length]; NaN: the token counts nowhere", type="const double*"),
            pointer("parts", "[sequences, chunks, 2, d]", type="double*", role="output"),
            *(scalar("length", "tokens of a sequence"), D, *TILES, scalar("chunks", "chunks of a sequence")),
            *rows("x"),
        ),
        call=("x", "norms", "parts", "length", "d", "tiles", "chunk", "chunks", rows_value("x")),
    ),
    "moments_total": Function(
        grid="1",
        files=_MOMENTS,
        template="{team}",
        parameters=(
            pointer("moments", "[rows, 8]", type="const double*"),
            *(pointer("total", "[8]", type="double*", role="output"), ROW_COUNT),
        ),
        call=("moments", "total", "rows"),
    ),
    "column_sum": Function(
        grid="ceil(d / 32)",
        files=("storage.cuh", "team.cuh", "columns.cuh"),
        template="{W}",
        parameters=(
            pointer("parts", "[count, d]", type="const float*"),
            pointer("total", "[d]", type="W*", role="output"),
            *(scalar("count", "rows of parts"), D),
        ),
        call=("parts", "total", "count", "d"),
    ),
}
