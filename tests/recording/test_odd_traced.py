"""A model that is written down as a graph in the block: none of that is recorded, and the graph is the model's."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

import normlab as nl

X = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))

Written = Callable[[nn.Module], Callable[[Tensor], Any]]
WAYS: dict[str, Written] = {
    "trace": lambda model: torch.jit.trace(model, X, check_trace=False),
    "export": lambda model: torch.export.export(model, (X,)).module(),
    "strict export": lambda model: torch.export.export(model, (X,), strict=True).module(),
    "make_fx": lambda model: make_fx(model)(X),
}

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning")


def _model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 4))


def _passes(model: nn.Module) -> None:
    model(X).square().mean().backward()


@pytest.mark.parametrize("way", WAYS)
def test_what_is_written_down_after_a_pass_leaves_its_rows_as_they_are(way: str) -> None:
    model = _model()
    with nl.record(model) as recorder:
        _passes(model)
        graph = WAYS[way](model)
    model.zero_grad()
    with nl.record(model) as alone:
        _passes(model)
    nl.table.pd.testing.assert_frame_equal(recorder.table(), alone.table())
    assert torch.allclose(graph(X), model(X))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore:.*:normlab.RecordingWarning")
def test_what_is_written_down_alone_has_no_values(way: str) -> None:
    model = _model()
    with nl.record(model) as recorder:
        WAYS[way](model)
    table = recorder.table()
    sites = table[table["site"] != ""]
    assert len(sites) and sites["value"].isna().all() and not sites["status"].eq("ok").any()
