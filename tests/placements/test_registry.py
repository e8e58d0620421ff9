"""Every placement of the registry, in every kind of model."""

from collections.abc import Callable

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import normlab as nl
from normlab.placements import PLACEMENTS

KINDS = ("decoder", "encoder", "encoder-decoder")


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_gradients_of_the_stream_and_all_parameters(placement: str, make: Callable[..., nn.Module]) -> None:
    stack = make(placement=placement, depth=2, width=4, mlp_width=5, norm_eps=1e-3).stacks["decoder"]
    moved = {
        name: (p.detach() + 0.2 * torch.randn(p.shape, generator=torch.Generator().manual_seed(i), dtype=p.dtype))
        for i, (name, p) in enumerate(stack.named_parameters())
        if not name.startswith("embedding.token")
    }
    x = torch.randn(1, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)

    class Run(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stack = stack

        def forward(self, x: Tensor) -> Tensor:
            return self.stack.run(x, None)

    def run(x: Tensor, *values: Tensor) -> Tensor:
        given = {f"stack.{name}": value for name, value in zip(moved, values, strict=True)}
        return torch.func.functional_call(Run(), given, (x,))

    values = [value.requires_grad_() for value in moved.values()]
    assert torch.autograd.gradcheck(run, (x, *values), fast_mode=True)


def rows(table: pd.DataFrame, site: str, quantity: str) -> pd.Series:
    chosen = table[(table["site"] == site) & (table["quantity"] == quantity)]
    return chosen.set_index(["stack", "layer", "sublayer"])["value"].astype(float)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_sums_add_up_and_every_default_site_is_covered(placement: str, kind: str) -> None:
    # Four blocks, so that a quarter of Mix-LN's is a block.
    depth = 4 if placement == "mix-ln" else 2
    spec = nl.ModelSpec(depth=depth, width=16, vocab=32, context=12, placement=placement, kind=kind)
    model = nl.build(spec, seed=1)
    generator = torch.Generator().manual_seed(0)
    tokens, targets = (torch.randint(0, 32, (2, 12), generator=generator) for _ in range(2))
    with nl.record(model, quantities=("variance", "covariance", "l2"), strict=True) as recorder:
        model.loss(tokens, targets).backward()
    table = recorder.table()
    _check_sums(table)
    _check_coverage(recorder.coverage(), spec)


def _check_sums(table: pd.DataFrame) -> None:
    skip, update = (rows(table, site, "variance") for site in ("skip", "update"))
    # Where no norm stands on the sum, the stream is the sum.
    total = rows(table, "sum", "variance").combine_first(rows(table, "stream", "variance")).loc[skip.index]
    expected = skip + update + 2 * rows(table, "update", "covariance")
    assert len(skip) >= 4 and ((total - expected).abs() <= 1e-6 * total).all()


def _check_coverage(coverage: pd.DataFrame, spec: nl.ModelSpec) -> None:
    assert coverage.loc[~coverage["observed"], "status"].ne("").all()
    for stack, depth in spec.stacks.items():
        for layer in range(1, depth + 1):
            for sublayer in spec.sublayers(stack):
                wiring = spec.wiring(spec.where(stack, layer, sublayer))
                needed = {"stream", "skip", "update", "input", "branch"}
                needed |= {"sum"} if wiring.norms_stream else set()
                needed |= {"memory"} if sublayer == "cross" else set()
                needed |= {"stream2"} if wiring.second_stream is not None else set()
                here = coverage[
                    (coverage["stack"] == stack) & (coverage["layer"] == layer) & (coverage["sublayer"] == sublayer)
                ]
                assert needed <= set(here["site"])
                assert ("sum" in set(here["site"])) == wiring.norms_stream


def test_a_parallel_block_has_one_stream_and_says_why() -> None:
    model = nl.build(nl.ModelSpec(depth=2, width=16, parallel=True))
    tokens = torch.arange(12).reshape(2, 6)
    seen: list[Tensor] = []
    block = model.stacks["decoder"].blocks[0]
    for sublayer in block.sublayers.values():
        sublayer.add.register_forward_hook(lambda *ran: seen.extend(ran[1]))
    with nl.record(model) as recorder:
        model.loss(tokens, tokens).backward()
    coverage = recorder.coverage()
    missing = coverage[~coverage["observed"]]
    assert set(zip(missing["sublayer"], missing["site"], missing["status"], strict=True)) == {
        ("attn", "stream", "parallel")
    }
    block_input, attention_update, mlp_skip, both_updates = seen
    assert torch.equal(block_input, mlp_skip)
    mlp = block.sublayers["mlp"]
    assert torch.equal(both_updates, attention_update + mlp.mixer(mlp.inner_norm(block_input)))


def test_a_norm_every_k_blocks_gives_a_sum_there_only() -> None:
    spec = nl.ModelSpec(depth=6, width=16, placement="periodic", placement_options={"every": 3})
    with nl.record(model := nl.build(spec)) as recorder:
        model.loss(*[torch.arange(6)[None]] * 2).backward()
    sums = rows(recorder.table(), "sum", "mean_square")
    assert [index[1:] for index in sums.index] == [(3, "mlp"), (6, "mlp")]
