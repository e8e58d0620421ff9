"""What is to be said of a plain loop's tensors, from the definitions alone, in float64 and without the library."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, groupby
from typing import Any

import numpy as np
from scipy import optimize
from torch import Tensor

Site = tuple[int, str]

#: How each law bends, and whether it is one of ln q.
LAWS = {
    "logarithmic": (np.log, False),
    "sqrt": (np.sqrt, False),
    "linear": (np.asarray, False),
    "quadratic": (np.square, False),
    "stretched-exponential": (np.sqrt, True),
    "exponential": (np.asarray, True),
}


def squares(x: Tensor) -> np.ndarray:
    """The mean square of each token."""
    return np.asarray(x.detach().square().mean(-1))


def median_rms(x: Tensor) -> float:
    return float(np.median(np.sqrt(squares(x))))


def without_the_largest(each: np.ndarray) -> np.ndarray:
    """The tokens but for the largest of each sequence."""
    return np.sort(each, axis=1)[:, :-1]


def by_layer(plain: Any) -> Iterator[dict[str, Any]]:
    """The table by layer, the share that bfloat16 loses apart."""
    ends = {layer: x.detach() for (layer, name), x in plain.streams.items() if name in ("embed", "mlp")}
    for (layer, name), x in plain.streams.items():
        each = squares(x)
        row: dict[str, Any] = {
            "layer": layer,
            "sublayer": name,
            "rms": each.mean() ** 0.5,
            "median rms": median_rms(x),
            "bulk rms": without_the_largest(each).mean() ** 0.5,
            "max": float(x.abs().max()),
            "gradient": float(x.grad.norm()),
        }
        if name != "embed":
            update, skip = plain.updates[layer, name].detach(), plain.skips[layer, name].detach()
            row["update ratio"] = float(update.norm() / skip.norm())
            row["median update ratio"] = float(np.median(update.norm(dim=-1) / skip.norm(dim=-1)))
            row["alignment"] = float((update * skip).sum() / (update.norm() * skip.norm()))
            row["input rms"] = squares(plain.inputs[layer, name]).mean() ** 0.5
        if name == "attn":
            row["logit max"] = max(one["max_abs"] for one in heads(plain.logits[layer]))
        if name == "mlp":
            row["block change"] = change(ends[layer - 1], ends[layer])
        yield row


def change(before: Tensor, after: Tensor) -> float:
    return float(np.median((after - before).norm(dim=-1) / before.norm(dim=-1)))


def growth(plain: Any) -> dict[str, Any]:
    blocks = {layer: squares(x) for (layer, name), x in plain.streams.items() if name == "mlp"}
    every = [each.mean() for each in blocks.values()]
    bulk = [without_the_largest(each).mean() for each in blocks.values()]
    return {
        "layers": list(blocks),
        "mean_square": every,
        "bulk_mean_square": bulk,
        "rms_ratio_without_massive": (max(bulk) / min(bulk)) ** 0.5,
        "least_after": 1 + int(np.argmin(bulk)),
        "largest_after": 1 + int(np.argmax(bulk)),
        "largest_top_token_share": max(each.max(1).sum() / each.sum() for each in blocks.values()),
        "laws": {"all tokens": law(every), "without the most massive tokens": law(bulk)},
    }


def law(values: Sequence[float]) -> dict[str, Any] | None:
    """The least residuals of ln q of two-parameter curves; none for what stays within a factor of 1.5."""
    q, layer = np.array(values), np.arange(1.0, len(values) + 1)
    if q.max() <= 1.5 * q.min():
        return None
    found = {}
    for name, (bend, exponential) in LAWS.items():
        design = np.stack([np.ones_like(layer), bend(layer)], axis=1)
        if exponential:
            a, b = np.linalg.lstsq(design, np.log(q))[0]
        else:
            a, b = positive_line(bend(layer), np.log(q))
        curve = np.exp(design @ (a, b)) if exponential else design @ (a, b)
        found[name] = len(q) * np.log(np.mean(np.log(curve / q) ** 2)), a, b
    best = min(found, key=found.__getitem__)
    least, a, b = found[best]
    return {"law": best, "a": a, "b": b, "delta_aic": {name: one[0] - least for name, one in found.items()}}


def positive_line(bend: np.ndarray, logs: np.ndarray) -> tuple[float, float]:
    """a and b of least squares of logs − ln(a + b·bend), by the logarithms of the line's ends from several starts."""
    share = (bend - bend[0]) / (bend[-1] - bend[0])

    def off(ends: np.ndarray) -> float:
        return float(np.mean((logs - np.log(np.exp(ends[0]) * (1 - share) + np.exp(ends[1]) * share)) ** 2))

    starts = [(low, high) for low in (logs.min(), logs[0], logs.max()) for high in (logs.min(), logs[-1], logs.max())]
    tight = {"xatol": 1e-10, "fatol": 1e-15, "maxiter": 4000}
    tried = [optimize.minimize(off, start, method="Nelder-Mead", options=tight) for start in starts]
    first, last = np.exp(min(tried, key=lambda one: one.fun).x)
    b = (last - first) / (bend[-1] - bend[0])
    return float(first - b * bend[0]), float(b)


def massive(plain: Any) -> dict[tuple[int, int, int], dict[str, Any]]:
    """Each entry beyond 100 times its site's median token, from site to site."""
    sites = list(plain.streams)
    streams = np.stack([x.detach().numpy() for x in plain.streams.values()])
    unit = np.array([median_rms(x) for x in plain.streams.values()])
    beyond = np.abs(streams) > 100 * unit[:, None, None, None]
    assert beyond.reshape(len(sites), -1).sum(1).max() < 64, "more than are followed"
    places = [(int(one), int(two), int(three)) for one, two, three in np.argwhere(beyond.any(0))]
    return {place: _life(sites, streams[:, *place], unit) for place in places}


def _life(sites: Sequence[Site], track: np.ndarray, unit: np.ndarray) -> dict[str, Any]:
    size = np.abs(track)
    peak, most = int(size.argmax()), int((size / unit).argmax())
    runs = [[k for k, _ in run] for is_massive, run in groupby(enumerate(size > 100 * unit), lambda one: one[1])
            if is_massive]  # fmt: skip
    born, cancelled = [], []
    for place, run in enumerate(runs):
        # Each stretch has its own peak, and reaches to the least values between it and its neighbours.
        before, after = runs[place - 1][-1] if place else 0, (runs[place + 1 :] or [[len(size) - 1]])[0][0]
        start = before + int(size[before : run[0] + 1].argmin()) if place else 0
        end = run[-1] + int(size[run[-1] : after + 1].argmin()) if place + 1 < len(runs) else after
        top = run[0] + int(size[run[0] : run[-1] + 1].argmax())
        jump = np.diff(size) / size[top]
        born += [(sites[k + 1], track[k], track[k + 1]) for k in range(start, top) if jump[k] > 0.2]
        cancelled += [(sites[k + 1], track[k], track[k + 1]) for k in range(top, end) if jump[k] < -0.2]
    return {
        "peak": track[peak],
        "peak_at": sites[peak],
        "ratio": (size / unit)[most],
        "ratio_at": sites[most],
        "born": born,
        "cancelled": cancelled,
        "massive": [(sites[run[0]], sites[run[-1]]) for run in runs],
        "still_massive": bool(size[-1] > 100 * unit[-1]),
        "values": [(site, value) for site, value in zip(sites, track, strict=True)],
    }


def heads(logits: Tensor) -> list[dict[str, Any]]:
    """What is said of each head's logits ``[batch, head, query, key]`` where they are not masked."""
    found = []
    for one in logits.unbind(1):
        open_ = np.asarray(one[one > -np.inf])
        largest = np.abs(open_).max()
        found.append({"max_abs": largest, "rms": np.mean(open_**2) ** 0.5, "doublings": np.log2(65504 / largest)})
    return found


def head_room(plain: Any) -> dict[str, Any]:
    """The largest entry that a module takes or gives, the first of equals."""
    module, side = max(plain.passed, key=plain.passed.__getitem__)
    largest = plain.passed[module, side]
    return {"max_abs": largest, "module": module, "side": side, "doublings": np.log2(65504 / largest), "nonfinite": 0}


def rounding(plain: Any) -> dict[Site, dict[str, float]]:
    found = {}
    for key, update in plain.updates.items():
        s, u = plain.skips[key].detach().bfloat16(), update.detach().bfloat16()
        lost, whole = (s + u).double() - (s.double() + u.double()), u.double()
        each = lost.norm(dim=-1) / whole.norm(dim=-1)
        found[key] = {"all_tokens": float(lost.norm() / whole.norm()), "median_token": float(np.median(each))}
    return found


def gradients(plain: Any, roles: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], dict[str, Any]]:
    """What is said of each role.

    Args:
        plain: what a loop computed, after its backward pass.
        roles: for each sub-layer and role the beginnings of the names of its parameters, apart by spaces.
    """
    layers = sorted(plain.logits)
    found = {}
    for key, starts in roles.items():
        norms = []
        for layer in layers:
            begins = tuple(starts.format(layer - 1).split())
            squares = [w.grad.square().sum() for name, w in plain.weights.items() if name.startswith(begins)]
            norms.append(float(sum(squares)) ** 0.5)
        pairs = combinations(range(len(norms)), 2)
        slope = np.median([np.log(norms[j] / norms[i]) / (j - i) for i, j in pairs])
        found[key] = {
            "layers": layers,
            "grad_norm": norms,
            "factor": np.exp(-slope * (len(norms) - 1)),
            "spread": max(norms) / min(norms),
            "zero": [],
            "nonfinite": [],
        }
    return found
