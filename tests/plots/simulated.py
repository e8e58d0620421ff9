"""Tables of sweeps that never ran, with a known truth: Pre-LN's mean square is 1 + 1.2·ℓ, Post-LN's is 1."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from normlab.table import concat, from_rows

TOKENS = 64


def sweep(
    placements: Sequence[str] = ("pre", "post"),
    depths: Sequence[int] = (2, 4, 8, 16, 32, 64),
    seeds: int = 5,
    noise: float = 0.05,
) -> pd.DataFrame:
    """Return the table of a sweep; a placement that is not ``post`` grows like ``pre`` at a rate of its own."""
    return concat(
        cell(placement, depth, seed, noise=noise, rate=1.2 + 0.3 * place if placement != "post" else 0.0)
        for place, placement in enumerate(placements)
        for depth in depths
        for seed in range(seeds)
    )


def cell(placement: str, depth: int, seed: int, *, noise: float = 0.05, rate: float = 1.2) -> pd.DataFrame:
    """Return the rows of one cell."""
    random = np.random.default_rng([seed, depth, *placement.encode()])
    columns = {
        "placement": placement,
        "norm": "layernorm",
        "init": "xavier",
        "activation": "gelu",
        "attention": "softmax",
        "depth": depth,
        "width": 128,
        "kind": "decoder",
        "heads": 4,
        "kv_heads": 4,
        "head_width": 32,
        "mlp_width": 512,
        "encoder_depth": None,
        "vocab": 256,
        "context": 1024,
        "placement_options": "",
        "norm_eps": 1e-5,
        "norm_options": "",
        "final_norm": "on" if rate else "off",
        "embed_norm": "off",
        "qk_norm": "",
        "init_options": "",
        "embed_std": None,
        "bias": "off",
        "position": "none",
        "tie_embeddings": "off",
        "parallel": "off",
        "dropout": 0.0,
        "spec": f"{placement}-{depth}",
        "data": "text",
        "batch": 4,
        "tokens": TOKENS,
        "loss": "cross-entropy",
        "model_seed": seed,
        "data_seed": 10000 + seed,
    }
    return from_rows(list(_rows(depth, rate, noise, random)), columns)


def _rows(depth: int, rate: float, noise: float, random: np.random.Generator) -> Iterator[dict[str, object]]:
    layers = np.arange(depth + 1)
    steps = 1 + noise * random.standard_normal(depth + 1)
    q = 1 + rate * np.cumsum(np.where(layers > 0, steps, 0.0))
    jitter = np.exp(noise * random.standard_normal((8, depth + 1)))
    overlap = 1 - (1 + layers) ** -0.7 if rate else 1 - np.exp(-layers / 5)
    grads = np.exp(0.12 * random.standard_normal()) * (q / q[-1]) ** -0.5 * q[-1] ** -0.5
    for layer in layers:
        after = {"stack": "decoder", "layer": layer, "sublayer": "mlp" if layer else "embed", "dtype": "float32"}
        yield after | {"site": "stream", "quantity": "mean_square", "value": q[layer]}
        yield after | {"site": "stream", "quantity": "rms", "value": q[layer] ** 0.5}
        yield after | {"site": "stream", "quantity": "token_overlap", "value": overlap[layer] - 0.02 * jitter[0, layer]}
        coherence = min(1.0, (1 + 6 * overlap[layer]) / TOKENS * jitter[1, layer])
        yield after | {"site": "stream_grad", "quantity": "grad_coherence", "value": coherence}
        yield after | {"site": "stream_grad", "quantity": "l2", "value": grads[layer] * jitter[2, layer]}
        if not layer:
            continue
        yield after | {"role": "down", "quantity": "grad_norm", "value": 0.8 * grads[layer] * jitter[3, layer]}
        for place, sublayer in enumerate(("attn", "mlp")):
            branch = after | {"sublayer": sublayer}
            scale = (1 - 0.3 * overlap[layer] * (1 - place)) * jitter[4 + place, layer]
            yield branch | {"site": "input", "quantity": "rms", "value": jitter[6 + place, layer] ** 0.1}
            yield branch | {"site": "update", "quantity": "alignment", "value": 0.01 * np.log(jitter[4 + place, layer])}
            yield branch | {"site": "update", "quantity": "update_ratio", "value": 0.6 * scale / q[layer - 1] ** 0.5}
        yield after | {"sublayer": "attn", "site": "stream", "quantity": "mean_square", "value": q[layer] - rate / 2}
    for layer in layers[:-1]:
        block = {"stack": "decoder", "layer": layer, "to_layer": layer + 1, "dtype": "float64"}
        yield block | {
            "quantity": "lyapunov",
            "value": 0.5 * np.log(1 + rate / q[layer]) + 0.1 * np.log(jitter[1, layer]),
        }
        for place in (1, 2):
            largest = (1 + 3 / q[layer] ** 0.5) * jitter[place, layer] / place
            yield block | {"quantity": "singular_value", "name": f"{place:03d}", "value": largest}
    yield {"stack": "decoder", "quantity": "loss", "value": 5.5 * jitter[0, 0]}
