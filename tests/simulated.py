"""Tables of sweeps whose truth is known: drawn from laws, without any network.

The stream of a Pre-LN model is a sum of noisy increments, as in a network: block ℓ adds
``step·ℓ^increment_exponent`` on average, and a cross term whose variance is ``noise·4·increment·q``
(``noise`` = .003 gives ln q_64 a standard deviation of .08 over seeds, as measured at width 128).
The last block's gradient is ln G = ``gradient_on_stream``·ln q_L + ``gradient_on_depth``·ln L + noise.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from normlab.table import concat, normalise, ordered

DEPTHS = (4, 8, 16, 32, 64)


def stream(
    rng: np.random.Generator, seeds: int, depth: int, *, exponent: float = 0.0, step: float = 0.3, noise: float = 0.003
) -> np.ndarray:
    """Draw mean squares of layers 0..depth, ``[seeds, depth + 1]``."""
    q = np.ones((seeds, depth + 1))
    for layer in range(1, depth + 1):
        gain = step * layer**exponent
        cross = rng.normal(size=seeds) * np.sqrt(4 * noise * gain * q[:, layer - 1])
        q[:, layer] = np.maximum(q[:, layer - 1] + gain * rng.chisquare(128, seeds) / 128 + cross, 0.05)
    return q


def sweep(
    *,
    placement: str = "pre",
    final_norm: str | None = None,
    attention: str = "softmax",
    depths: Iterable[int] = DEPTHS,
    width: int = 128,
    seeds: Sequence[int] = range(8),
    increment_exponent: float = 0.0,
    noise: float = 0.003,
    gradient_on_stream: float | None = None,
    gradient_on_depth: float = 0.0,
    gradient_scale: float = 1.0,
    gradient_sd: float = 0.12,
    draw: int = 0,
    **columns: object,
) -> pd.DataFrame:
    """Return the table of a sweep over depths and seeds of one placement.

    Args:
        placement: its stream grows, unless it is ``post``, whose stream stays at 1.
        final_norm: ``on`` or ``off``; on but for ``post`` unless given.
        attention: ``softmax``, ``uniform`` or ``none``.
        depths: L of each model.
        width: d of each model.
        seeds: model seeds.
        increment_exponent: exponent of the stream's increments against the block.
        noise: see the module.
        gradient_on_stream: slope of ln G on ln q_L; −½ with a final norm, ½ without, 0 for ``post``.
        gradient_on_depth: slope of ln G on ln L beyond that.
        gradient_scale: G of a stream of mean square 1.
        gradient_sd: standard deviation of ln G over seeds, for a given stream.
        draw: which draw of the noise.
        columns: other cell columns, such as ``norm="rmsnorm"`` or ``tokens=32``.
    """
    final = final_norm or ("off" if placement == "post" else "on")
    if gradient_on_stream is None:
        gradient_on_stream = 0.0 if placement == "post" else -0.5 if final == "on" else 0.5
    rng = np.random.default_rng([draw, *placement.encode(), *final.encode(), *attention.encode(), width])
    cell = {"placement": placement, "final_norm": final, "attention": attention, "width": width}
    parts = []
    for depth in depths:
        if placement == "post":
            q = np.exp(0.01 * rng.normal(size=(len(seeds), depth + 1)))
        else:
            q = stream(rng, len(seeds), depth, exponent=increment_exponent, noise=noise)
        log_g = np.log(gradient_scale) - 0.5 * np.log(q[:, 1:] / q[:, -1:])
        log_g += (gradient_on_stream * np.log(q[:, -1]) + gradient_on_depth * np.log(depth))[:, None]
        log_g += rng.normal(scale=gradient_sd, size=(len(seeds), 1))
        parts.append(_model(depth, seeds, q, np.exp(log_g), cell | columns))
    return ordered(normalise(pd.concat(parts, ignore_index=True)))


def _model(
    depth: int, seeds: Sequence[int], q: np.ndarray, gradient: np.ndarray, cell: dict[str, object]
) -> pd.DataFrame:
    layers = np.arange(depth + 1)
    up = np.diff(q, axis=1, prepend=np.nan)
    share = np.broadcast_to(layers / (layers + 8.0), q.shape)
    ones = np.ones_like(q)
    wide = [
        ("stream", "mean_square", "", q, 0),
        ("stream", "rms", "", np.sqrt(q), 0),
        ("stream", "token_overlap", "", share, 0),
        ("input", "rms", "", ones, 1),
        ("update", "update_ratio", "", np.sqrt(np.abs(up[:, 1:]) / q[:, :-1]), 1),
        ("stream_grad", "grad_coherence", "", 0.1 + 0.5 * share, 1),
        ("stream_grad", "l2", "", 1 / np.sqrt(q), 0),
        ("", "grad_norm", "down", gradient, 1),
    ]
    return pd.concat([_rows(depth, seeds, first, *what, cell) for *what, first in wide], ignore_index=True)


def _rows(
    depth: int,
    seeds: Sequence[int],
    first: int,
    site: str,
    quantity: str,
    role: str,
    values: np.ndarray,
    cell: dict[str, object],
) -> pd.DataFrame:
    layers = np.arange(first, depth + 1)
    values = values[:, -len(layers) :]
    defaults = {
        "norm": "layernorm", "init": "xavier", "activation": "gelu", "kind": "decoder", "heads": 4,
        "mlp_width": 4 * int(str(cell["width"])), "head_width": int(str(cell["width"])) // 4,
        "data": "text", "batch": 4, "tokens": 64,
    }  # fmt: skip
    repeated = np.repeat(np.asarray(seeds), len(layers))
    layer = np.tile(layers, len(seeds))
    return pd.DataFrame(
        {
            "source": "measured",
            "stack": "decoder",
            "layer": layer,
            "sublayer": np.where(layer == 0, "embed", "mlp"),
            "site": site,
            "quantity": quantity,
            "role": role,
            "dtype": "float32",
            "value": values.ravel(),
            "status": "ok",
            "step": 0,
            **defaults,
            **cell,
            "depth": depth,
            "model_seed": repeated,
            "data_seed": 10_000 + repeated,
        }
    )


def demo(*, seeds: Sequence[int] = range(8), depths: Iterable[int] = DEPTHS, draw: int = 0) -> pd.DataFrame:
    """Return the table of a sweep in which every claim gets the verdict that its file expects.

    Pre-LN with and without the final norm and without attention (flat increments there, rising ones in
    the full block), and Post-LN.
    """
    depths = tuple(depths)
    rising = {"increment_exponent": 0.3, "seeds": seeds, "depths": depths, "draw": draw}
    return concat(
        [
            sweep(placement="pre", **rising),
            sweep(placement="pre", final_norm="off", **rising),
            sweep(placement="pre", attention="none", seeds=seeds, depths=depths, draw=draw),
            sweep(placement="post", seeds=seeds, depths=depths, draw=draw),
        ]
    )
