"""Numbers that nobody asked for are left out, and those that somebody asked for stay what they are."""

import pytest
import torch
from torch import nn

import normlab as nl
from normlab.recording import native

SITES = ["output", "output_grad"]


def recorded(dtype: torch.dtype, **options: object) -> dict[tuple[str, str], float]:
    # Long tokens, read in several runs of which the last is shorter.
    x = torch.randn((2, 100, 4096), generator=torch.Generator().manual_seed(5)).to(dtype).requires_grad_()
    with nl.record(model := nn.Identity(), sites=SITES, **options) as recorder:
        model(x).square().sum().backward()
    return recorder.table().set_index(["site", "quantity"])["value"].to_dict()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("way", [pytest.param("compiled", marks=pytest.mark.needs("native")), "torch"])
def test_each_quantity_alone_is_what_it_is_among_all(
    way: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "torch":
        monkeypatch.setattr(native, "library", lambda: None)
    every = recorded(dtype)
    quantities = {quantity for _, quantity in every}
    assert len(quantities) > 12
    for quantity in quantities:
        alone = recorded(dtype, quantities=[quantity])
        assert alone == {(site, name): value for (site, name), value in every.items() if name == quantity}


def test_gradients_that_overflow_do_not_end_a_recording_of_a_few_quantities() -> None:
    model = nl.build(nl.ModelSpec(depth=64, width=64, placement="none"), seed=0).double()
    with nl.record(model, sites=("stream", "stream_grad"), quantities=("mean_square", "l2")) as recorder:
        model.loss(*nl.data.random_batch(batch=2, tokens=32, seed=10_000)).backward()
    table = recorder.table()
    assert {"mean_square", "l2"} == set(table["quantity"]) and (table["layer"].max() == 64)
