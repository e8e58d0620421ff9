"""From sums to quantities: for many sites at once, the value of each quantity and why it may have none."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np
import torch

from normlab.recording.radii import medians
from normlab.recording.sums import COLUMNS, Kind, Sums

#: A status of a value that stands, with a word of caution.
HISTOGRAM: Final = "histogram"
COARSE: Final = "coarse"
#: Why a residual sum has no values although it was seen.
OTHER_SUM: Final = "the stored sum is not skip plus update"
#: Roundings of the sum's terms that a stored sum may differ by: in parallel blocks it is taken in several steps.
_ROUNDINGS: Final = 16


class Column(NamedTuple):
    """One quantity at many sites.

    Attributes:
        values: NaN where there is none.
        reason: why a value is NaN, where tokens entered.
        caution: a status for values that stand, by site; empty for none.
    """

    values: np.ndarray
    reason: np.ndarray | str = "undefined"
    caution: np.ndarray | str = ""


def columns_of(kind: Kind, sums: list[Sums], dtypes: list[str]) -> dict[str, Column]:
    """Return every quantity of sites of one kind.

    Args:
        kind: the kind.
        sums: one a site.
        dtypes: the dtype of each observed tensor.
    """
    stacked = np.stack([one.values for one in sums])
    with np.errstate(all="ignore"):
        return _FORMULAS[kind](dict(zip(COLUMNS[kind], stacked.T, strict=True)), sums, dtypes)


def branch_gain(branch: list[Sums], inputs: list[Sums | None]) -> Column:
    """Return mean_square(branch)/mean_square(input)."""
    with np.errstate(all="ignore"):
        values = np.array([_mean_square(one) for one in branch]) / np.array([_mean_square(one) for one in inputs])
    reason = np.array(["no input" if z is None else "zero input" for z in inputs], dtype=object)
    return Column(np.where(np.isfinite(values), values, np.nan), reason)


def _mean_square(sums: Sums | None) -> float:
    if sums is None:
        return float("nan")
    tokens, square = sums.values[[0, 2]]
    return float(square / tokens) if tokens else float("nan")


def _activation(s: Mapping[str, np.ndarray], sums: list[Sums], dtypes: list[str]) -> dict[str, Column]:
    tokens = s["tokens"]
    mean_square, variance = s["square"] / tokens, s["variance"] / tokens
    coarse = np.where(_coarse(mean_square, variance, dtypes), COARSE, "")
    radii = [one.radii for one in sums if one.radii is not None]
    binned = np.array([HISTOGRAM if not one.exact else "" for one in radii], dtype=object)
    alone = np.where(s["alone"] == tokens, "one token a sequence", "zero tokens")
    return {
        "mean_square": Column(mean_square),
        "rms": Column(np.sqrt(mean_square)),
        "mean": Column(s["mean"] / tokens),
        "variance": Column(variance, caution=coarse),
        "median_rms": Column(medians(radii), caution=binned),
        "kurtosis": Column(s["kurtosis"] / s["varying"], "constant tokens", caution=coarse),
        "token_cosine": Column(_ratio(s["cosine"], s["cosine_pairs"]), alone),
        "token_overlap": Column(_ratio(s["overlap"] / s["overlap_pairs"], mean_square), alone),
        **_common(s, sums),
    }


def _gradient(s: Mapping[str, np.ndarray], sums: list[Sums], dtypes: list[str]) -> dict[str, Column]:
    return {
        "l2": Column(np.where(s["tokens"] > 0, np.sqrt(s["squares"]), np.nan)),
        "grad_coherence": Column(_ratio(s["coherent"], s["spread"]), "zero gradient"),
        **_common(s, sums),
    }


def _pair(s: Mapping[str, np.ndarray], sums: list[Sums], dtypes: list[str]) -> dict[str, Column]:
    zero = np.where(s["skip"] == 0, "zero skip", "zero update")
    cosine = _ratio(s["product"], np.sqrt(s["update"]) * np.sqrt(s["skip"]))
    lost = _ratio(s["lost"] / s["lost_tokens"], s["lost_update"] / s["lost_tokens"])
    overflow = np.where(s["lost_tokens"] < s["summed"], "nonfinite", "").astype(object)
    reason = np.where(s["summed"] == 0, "no residual sum here", np.where(overflow != "", overflow, "zero update"))
    lost = np.where(s["summed"] > 0, lost, np.nan)
    columns = {
        "update_ratio": Column(np.sqrt(_ratio(s["update"], s["skip"])), "zero skip"),
        "alignment": Column(cosine, zero),
        "covariance": Column(s["covariance"] / s["tokens"]),
        "lost_share": Column(np.sqrt(lost), reason, overflow),
    }
    return _only_of_sums(columns, _other_sum(s, dtypes))


def _other_sum(s: Mapping[str, np.ndarray], dtypes: list[str]) -> np.ndarray:
    """Say where the stored sum differs from skip plus update by more than rounding: the plan does not fit."""
    eps = np.array([torch.finfo(getattr(torch, name)).eps for name in dtypes])
    rounding = _ROUNDINGS * eps * (np.sqrt(s["skip"] / s["tokens"]) + np.sqrt(s["update"] / s["tokens"]))
    return np.asarray((s["summed"] > 0) & (np.sqrt(s["lost"] / s["lost_tokens"]) > rounding))


def _only_of_sums(columns: dict[str, Column], other: np.ndarray) -> dict[str, Column]:
    if not other.any():
        return columns
    return {
        name: Column(
            np.where(other, np.nan, column.values),
            np.where(other, OTHER_SUM, column.reason),
            np.where(other, "", column.caution),
        )
        for name, column in columns.items()
    }


def _scores(s: Mapping[str, np.ndarray], sums: list[Sums], dtypes: list[str]) -> dict[str, Column]:
    mean_square = s["square"] / s["pairs"]
    return {
        "mean_square": Column(mean_square),
        "rms": Column(np.sqrt(mean_square)),
        "mean": Column(s["value"] / s["pairs"]),
        **_common(s, sums),
    }


def _loss(s: Mapping[str, np.ndarray], sums: list[Sums], dtypes: list[str]) -> dict[str, Column]:
    return {"loss": Column(s["value"] / s["passes"], "nonfinite")}


def _common(s: Mapping[str, np.ndarray], sums: list[Sums]) -> dict[str, Column]:
    largest = np.array([one.largest for one in sums])
    return {
        "max_abs": Column(np.where(s["tokens"] > 0, largest, np.nan)),
        "nonfinite": Column(s["nonfinite"]),
        "count": Column(s["tokens"]),
    }


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.where(below > 0, above / below, np.nan)


def _coarse(mean_square: np.ndarray, variance: np.ndarray, dtypes: list[str]) -> np.ndarray:
    """Say where the standard deviation is below the spacing of stored numbers at the mean."""
    eps = np.array([torch.finfo(getattr(torch, name)).eps for name in dtypes])
    centre = np.sqrt(np.maximum(mean_square - variance, 0))
    spacing = eps * np.exp2(np.floor(np.log2(centre)))
    return np.asarray((variance > 0) & (np.sqrt(variance) < spacing))


_FORMULAS: Final[dict[Kind, Callable[..., dict[str, Column]]]] = {
    "activation": _activation,
    "gradient": _gradient,
    "pair": _pair,
    "scores": _scores,
    "loss": _loss,
}
