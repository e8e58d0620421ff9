"""Every site and quantity of zoo models against a plain loop and the slow reference."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import normlab as nl

SIGNED = ("token_cosine", "token_overlap", "alignment", "grad_coherence")
MODELS: dict[str, dict[str, Any]] = {
    "pre": {"placement": "pre", "bias": True},
    "post": {"placement": "post", "norm": "rmsnorm"},
    "peri": {"placement": "peri", "activation": "relu", "attention": "uniform"},
    "none": {"placement": "none", "attention": "none", "position": "learned", "tie_embeddings": True},
    "hybrid": {"placement": "hybridnorm", "activation": "swiglu"},
    "layerscale": {"placement": "layerscale", "final_norm": False},
}
SITES = ("stream", "sum", "skip", "update", "input", "branch", "final")
ALL = tuple(name for name in nl.SITES if not nl.SITES[name].gradient_of and nl.SITES[name].default) + tuple(
    f"{name}_grad" for name in ("stream", "update", "sum", "input", "branch", "final")
)


def at(table: pd.DataFrame, stack: str, layer: int, sublayer: str, site: str) -> pd.DataFrame:
    chosen = (table["stack"] == stack) & (table["layer"] == layer) & (table["sublayer"] == sublayer)
    return table[chosen & (table["site"] == site)].set_index("quantity")


def compare(rows: pd.DataFrame, expected: dict[str, float], sizes: dict[str, float], where: object) -> None:
    for name, wanted in expected.items():
        size = sizes.get(name, 1.0 if name in SIGNED else abs(wanted))
        np.testing.assert_allclose(rows.loc[name, "value"], wanted, rtol=0, atol=1e-6 * size, err_msg=f"{where} {name}")


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_sites_of_a_plain_loop(
    name: str, masked: bool, make: Callable[..., nn.Module], batch: Any, reference: ModuleType, walk: ModuleType
) -> None:
    model = make(**MODELS[name])
    kept, loss = walk.walk(model, *batch)
    mask = torch.rand(batch[0].shape, generator=torch.Generator().manual_seed(3)) < 0.7 if masked else None
    model.zero_grad()
    with nl.record(model, mask=mask, sites=ALL, strict=True) as recorder:
        model.loss(*batch).backward()
    table = recorder.table()
    for where, tensor in kept.tensors.items():
        expected = reference.activation(tensor, mask)
        compare(at(table, *where), expected, {"mean": expected["rms"]}, where)
        gradient = at(table, *where[:3], f"{where[3]}_grad")
        if where[3] != "skip":
            compare(gradient, reference.gradient(tensor.grad, mask), {}, (*where, "grad"))
    _compare_pairs(table, kept, walk, reference, mask)
    _compare_gains(table, kept, reference, mask)
    assert table[table["quantity"] == "loss"]["value"].item() == pytest.approx(float(loss), rel=1e-12)
    assert set(table["site"]) - {""} == {*(w[3] for w in kept.tensors), *(f"{w[3]}_grad" for w in kept.tensors)} - {
        "skip_grad"
    }


def _compare_pairs(
    table: pd.DataFrame, kept: Any, walk: ModuleType, reference: ModuleType, mask: Tensor | None
) -> None:
    for where, update, skip, total in walk.pairs(kept):
        spreads = float(update.detach().std(-1).mean() * skip.detach().std(-1).mean())
        expected = reference.update(update, skip, total, mask)
        compare(at(table, *where), expected, {"covariance": spreads}, where)


def _compare_gains(table: pd.DataFrame, kept: Any, reference: ModuleType, mask: Tensor | None) -> None:
    for where, branch in kept.tensors.items():
        if where[3] == "branch":
            given = reference.activation(kept.tensors[(*where[:3], "input")], mask)["mean_square"]
            gain = reference.activation(branch, mask)["mean_square"] / given
            compare(at(table, *where), {"branch_gain": gain}, {}, where)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_storage(
    dtype: torch.dtype, make: Callable[..., nn.Module], batch: Any, reference: ModuleType, walk: ModuleType
) -> None:
    model = make(dtype=dtype)
    kept, _ = walk.walk(model, *batch)
    model.zero_grad()
    with nl.record(model) as recorder:
        model.loss(*batch).backward()
    table = recorder.table()
    for where, tensor in kept.tensors.items():
        expected = reference.activation(tensor)
        compare(at(table, *where), expected, {"mean": expected["rms"]}, where)
        assert set(at(table, *where)["dtype"]) == {str(dtype).removeprefix("torch.")}
    for where, update, skip, total in walk.pairs(kept):
        compare(at(table, *where), reference.update(update, skip, total), {"covariance": 1.0}, where)


def test_the_add_keeps_its_identity(make: Callable[..., nn.Module], batch: Any, value: Callable[..., float]) -> None:
    with nl.record(model := make(placement="post")) as recorder:
        model.loss(*batch).backward()
    table, here = recorder.table(), {"layer": 2, "sublayer": "attn"}
    parts = [value(table, site=site, quantity="variance", **here) for site in ("sum", "skip", "update")]
    covariance = value(table, site="update", quantity="covariance", **here)
    assert parts[0] == pytest.approx(parts[1] + parts[2] + 2 * covariance, rel=1e-6)


def test_mean_square_is_variance_and_squared_mean(make: Callable[..., nn.Module], batch: Any) -> None:
    with nl.record(model := make(), quantities=("mean_square", "variance", "rms")) as recorder, torch.no_grad():
        model(batch[0])
    wide = (
        recorder.table()
        .dropna(subset="value")
        .pivot_table(index=["layer", "sublayer", "site"], columns="quantity", values="value", observed=True)
    )
    assert ((wide["rms"] ** 2 - wide["mean_square"]).abs() <= 1e-12 * wide["mean_square"]).all()
    assert (wide["variance"] <= wide["mean_square"]).all()
