"""The functions of DyT and Derf."""

from typing import Final

from normlab.cupy_kernels.signature import (
    BIAS,
    BIAS_PARTS,
    DX,
    DY,
    GAIN,
    GAIN_PARTS,
    ROW_COUNT,
    TILED,
    TILES,
    D,
    Function,
    X,
    Y,
    pointer,
    rows,
    rows_value,
)

_ALPHA = pointer("alpha", "[1]", type="const W*")
_SHIFT = pointer("shift", "[1]", type="const W*")
_SQUASH = ("storage.cuh", "team.cuh", "squash.cuh")

SQUASH_FUNCTIONS: Final[dict[str, Function]] = {
    "squash_forward": Function(
        grid=TILED,
        files=_SQUASH,
        template="{STATISTIC}, {T}, {W}, {vec}, {team}",
        parameters=(
            *(X, _ALPHA, _SHIFT, GAIN, BIAS, Y, ROW_COUNT, D, *TILES),
            *(*rows("x"), *rows("y")),
        ),
        call=(
            *("x", "alpha", "shift", "gain", "bias", "y", "rows", "d", "tiles", "chunk"),
            *(rows_value("x"), rows_value("y")),
        ),
    ),
    "squash_backward": Function(
        grid=TILED,
        files=_SQUASH,
        template="{STATISTIC}, {T}, {W}, {vec}, {team}",
        parameters=(
            *(DY, X, _ALPHA, _SHIFT, GAIN, DX),
            pointer("alpha_parts", "[blocks]", type="float*", role="scratch"),
            pointer("shift_parts", "[blocks]", type="float*", role="scratch"),
            *(GAIN_PARTS, BIAS_PARTS, ROW_COUNT, D, *TILES, *rows("dy"), *rows("x"), *rows("dx")),
        ),
        call=(
            *("dy", "x", "alpha", "shift", "gain", "dx", "alpha_parts", "shift_parts", "gain_parts", "bias_parts"),
            *("rows", "d", "tiles", "chunk", rows_value("dy"), rows_value("x"), rows_value("dx")),
        ),
    ),
}
