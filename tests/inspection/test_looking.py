"""What is looked at in one pass: entries of modules, changes of blocks, and tokens that are left out."""

import math

import pytest
import torch
from torch import Tensor, nn

from normlab import table as tables
from normlab.inspection.inspection import by_layer
from normlab.inspection.looking import look
from normlab.inspection.tokens import lost_in_bfloat16, median_share, tokens_of
from normlab.recording import Address, Observed, Port, SitePlan


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Outer(nn.Module):
    """Has a parameter of its own and a module, and takes a large number that it does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.inner = nn.Parameter(torch.ones(8)), nn.Linear(8, 8)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.inner(x * self.w)


class Model(nn.Module):
    def __init__(self, broken: bool = False) -> None:
        super().__init__()
        self.outer, self.broken = Outer(), broken

    def forward(self, x: Tensor) -> Tensor:
        if self.broken:
            x = x.clone()
            x[0, 0, 0] = math.inf
        return self.outer(x, torch.full((2, 2), 1e6))


def seen(model: nn.Module, plan: SitePlan | None = None, x: Tensor | None = None) -> object:
    given = draw(2, 3, 8) if x is None else x
    return look(model, plan or SitePlan(observed=()), lambda: model(given), (2, 3))


def test_what_a_module_that_holds_others_takes_is_none_of_the_models_entries() -> None:
    model = Model()
    with torch.no_grad():
        given, made = draw(2, 3, 8), model(draw(2, 3, 8))
    peak = seen(model).peak  # type: ignore[attr-defined]
    assert peak.max_abs == max(float(given.abs().max()), float(made.abs().max()))
    assert peak.module.startswith("outer.inner")


def test_entries_that_are_not_finite_are_counted_where_they_are_given() -> None:
    peak = seen(Model(broken=True)).peak  # type: ignore[attr-defined]
    # One sequence's token, all of whose eight entries the matrix spoils; its container gives them once more.
    assert (peak.nonfinite, peak.first, peak.first_side) == (16, "outer.inner", "takes")


class Chain(nn.Sequential):
    """Modules whose outputs are the stream after blocks."""


def stream_plan(*layers: int) -> SitePlan:
    ports = [Port(str(place)) for place in range(len(layers))]
    addresses = [Address("decoder", layer, "mlp" if layer else "embed", "stream") for layer in layers]
    return SitePlan(tuple(Observed(one, port) for one, port in zip(addresses, ports, strict=True)))


@pytest.mark.parametrize(("layers", "changed"), [((0, 1, 2), [1, 2]), ((0, 2, 3), [3]), ((1, 2, 4), [2])])
def test_a_change_is_that_of_one_block(layers: tuple[int, ...], changed: list[int]) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Chain(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8))
    changes = seen(model, stream_plan(*layers)).changes  # type: ignore[attr-defined]
    assert [one.layer for one in changes] == changed


def test_a_token_that_is_infinite_before_has_no_share() -> None:
    x, of = torch.ones(1, 3, 4), torch.ones(1, 3, 4)
    of[0, 0, 0] = math.inf
    of[0, 1], of[0, 2] = 2.0, 4.0
    assert median_share(x, of) == pytest.approx((1 / 2 + 1 / 4) / 2)


def test_an_update_that_is_infinite_is_left_out_of_what_bfloat16_loses() -> None:
    s, u = draw(1, 4, 8), 1e-3 * draw(1, 4, 8, seed=1)
    expected = lost_in_bfloat16(s[:, 1:], u[:, 1:])
    u[0, 0, 0] = math.nan
    assert lost_in_bfloat16(s, u) == pytest.approx(expected)


def test_a_sequence_without_a_sound_token_has_no_most_massive_one() -> None:
    x = draw(3, 5, 4)
    alone = tokens_of(x[:2])
    x[2] = math.inf
    whole = tokens_of(x)
    assert whole.bulk_mean_square == pytest.approx(alone.bulk_mean_square, rel=1e-12)
    assert (whole.finite, whole.nonfinite) == (10, 5)


def test_an_encoder_comes_before_the_decoder_that_reads_it() -> None:
    row = {"layer": 1, "sublayer": "mlp", "site": "stream", "quantity": "rms", "value": 1.0, "status": "ok"}
    table = tables.from_rows([row | {"stack": name} for name in ("decoder", "encoder")])
    assert by_layer(table)["stack"].tolist() == ["encoder", "decoder"]
