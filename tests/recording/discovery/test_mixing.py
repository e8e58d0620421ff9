"""What mixes tokens is told by where each entry of its result comes from."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import normlab as nl
from normlab.recording.discovery.mixing import mixes
from normlab.recording.discovery.trace import trace

LENGTH, WIDTH = 5, 8


class Of(nn.Module):
    """A module with two square matrices of features and one of tokens."""

    def __init__(self, formula: Callable[["Of", Tensor], Tensor]) -> None:
        super().__init__()
        self.formula = formula
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.tokens = nn.Linear(LENGTH, LENGTH)
        self.near = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
        self.here = nn.Conv1d(WIDTH, WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.formula(self, x)


def _recurrent(of: Of, x: Tensor) -> Tensor:
    state, states = torch.zeros_like(x[:, 0]), []
    for token in range(x.shape[1]):
        state = 0.5 * state + of.a(x[:, token])
        states.append(state)
    return torch.stack(states, 1)


MIXERS: dict[str, Callable[[Of, Tensor], Tensor]] = {
    "over tokens": lambda of, x: of.tokens(x.mT).mT,
    "convolution": lambda of, x: of.near(x.mT).mT,
    "fourier": lambda of, x: torch.fft.fft(torch.fft.fft(x), dim=1).real,
    "linear attention": lambda of, x: F.elu(of.a(x)) @ (of.b(x).mT @ x),
    "pool": lambda of, x: F.avg_pool1d(of.a(x).mT, 3, 1, 1).mT,
    "mean": lambda of, x: of.a(x) * of.b(x).mean(1, keepdim=True),
    "shift": lambda of, x: of.a(x + x.roll(1, 1)),
    "move": lambda of, x: of.a(x.roll(1, 1)),
    "padded": lambda of, x: of.a(F.pad(x, (0, 0, 1, -1))),
    "largest": lambda of, x: F.max_pool2d(of.a(x)[:, None], (3, 1), 1, (1, 0))[:, 0],
    "sum so far": lambda of, x: of.a(x).cumsum(1),
    "recurrence": _recurrent,
    "softmax over tokens": lambda of, x: of.a(x).softmax(1),
    "index": lambda of, x: of.a(x)[:, [1, 2, 3, 4, 0]],
    "index of one axis": lambda of, x: of.a(x).index_select(1, torch.tensor([1, 2, 3, 4, 0])),
    "gather": lambda of, x: of.a(x).gather(1, torch.tensor([1, 2, 3, 4, 0]).view(1, -1, 1).expand_as(x)),
}
OTHERS: dict[str, Callable[[Of, Tensor], Tensor]] = {
    "mlp": lambda of, x: of.b(F.gelu(of.a(x))),
    "gated": lambda of, x: of.b(F.silu(of.a(x)) * x),
    "convolution of extent 1": lambda of, x: of.here(x.mT).mT,
    "index of the same places": lambda of, x: of.a(x)[:, [0, 1, 2, 3, 4]],
    "padded and cut": lambda of, x: of.a(F.pad(x, (0, 0, 2, 0))[:, 2:]),
    "fourier over features": lambda of, x: torch.fft.fft(x).real,
    "heads": lambda of, x: of.a(x).view(2, LENGTH, 2, 4).transpose(1, 2).softmax(-1).transpose(1, 2).flatten(2),
    "norm and dropout": lambda of, x: F.dropout(F.layer_norm(of.a(x), (WIDTH,)), 0.5),
    "experts, all of them": lambda of, x: (
        of.a(x)[..., :2].softmax(-1)[..., None, :] @ torch.stack([of.a(x), of.b(x)], -2)
    )[..., 0, :],
    "features that were split": lambda of, x: torch.cat([one * 2 for one in of.a(x).chunk(2, -1)], -1),
}


@pytest.mark.parametrize("name", [*MIXERS, *OTHERS])
def test_a_branch_mixes_if_a_token_changes_another(name: str) -> None:
    model = Of({**MIXERS, **OTHERS}[name]).double()
    x = torch.randn((2, LENGTH, WIDTH), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    flow = trace(model, (x,), {})
    (start,) = [value.index for value in flow.values if value.kind == "input"]
    result = next(one.value for one in reversed(flow.showings) if not one.module and one.side == "output")
    torch.manual_seed(0)
    jacobian = torch.autograd.functional.jacobian(model, x).sum((2, 5)).abs().sum((0, 2))  # [token out, token in]
    others = jacobian.fill_diagonal_(0) if jacobian.dim() == 2 else jacobian.diagonal_scatter(torch.zeros(LENGTH))
    assert mixes(flow, start, result) is (name in MIXERS) is bool(others.max() > 1e-12)


def test_what_picks_tokens_by_their_entries_stays_open() -> None:
    def chosen(of: Of, x: Tensor) -> Tensor:
        best = of.a(x)[..., 0].topk(2, 1).indices[..., None].expand(-1, -1, WIDTH)
        return x.scatter(1, best, of.b(x.gather(1, best)))

    flow = trace(Of(chosen), (torch.randn(2, LENGTH, WIDTH),), {})
    (start,) = [value.index for value in flow.values if value.kind == "input"]
    assert mixes(flow, start, len(flow.values) - 1) is None


def test_a_router_that_sends_tokens_to_experts_is_no_mixer() -> None:
    def routed(of: Of, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        gates, best = of.tokens(tokens[:, :LENGTH]).softmax(-1).max(-1)
        result = torch.zeros_like(tokens)
        for expert, matrix in enumerate((of.a, of.b)):
            own = (best % 2 == expert).nonzero()[:, 0]
            result = result.index_add(0, own, matrix(tokens.index_select(0, own)) * gates.index_select(0, own)[:, None])
        return result.view_as(x)

    found = nl.discover(nn.Sequential(*(Block(routed) for _ in range(2))), torch.randn(2, LENGTH, WIDTH))
    assert {part.sublayer for part in found.stacks[0].sublayers} == {"mlp"}


class Block(nn.Module):
    def __init__(self, mixer: Callable[[Of, Tensor], Tensor]) -> None:
        super().__init__()
        self.one, self.two = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixer = Of(mixer)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mixer(self.one(x))
        return x + self.mlp(self.two(x))


@pytest.mark.parametrize("name", ["over tokens", "convolution", "fourier", "linear attention"])
def test_a_token_mixer_is_not_called_attention(name: str) -> None:
    model = nn.Sequential(*(Block(MIXERS[name]) for _ in range(3))).double()
    x = torch.randn((2, LENGTH, WIDTH), dtype=torch.float64)
    found = nl.discover(model, x)
    assert (found.placement, found.stacks[0].depth) == ("pre", 3)
    assert "x ← x + Mix(LN(x))    blocks 1-3" in str(found) and "Attn" not in str(found)
    with nl.record(model, sites=found.plan) as recorder:
        model(x).square().mean().backward()
    table = recorder.table()
    rows = table[(table["site"] == "update") & (table["quantity"] == "mean_square") & (table["sublayer"] == "attn")]
    assert rows["layer"].tolist() == [1, 2, 3]
    for block, recorded in zip(model, rows["value"], strict=True):
        update = block.mixer(block.one(x)).detach()
        assert recorded == pytest.approx(float(update.square().mean()), rel=1e-12)
        x = block(x)


def test_places_that_a_router_counts_mix_no_tokens() -> None:
    class Routed(nn.Module):
        """Experts of limited room, as in Switch Transformers."""

        def __init__(self) -> None:
            super().__init__()
            self.router, self.experts = nn.Linear(WIDTH, 2), nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
            self.norm = nn.LayerNorm(WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            h = self.norm(x)
            chosen = F.one_hot(self.router(h).argmax(-1), 2)
            chosen = chosen * (chosen.cumsum(1) <= 3)
            update = torch.zeros_like(h)
            for number, expert in enumerate(self.experts):
                places = chosen[..., number].bool()
                update[places] = expert(h[places])
            return x + update

    (stack,) = nl.discover(nn.Sequential(Routed(), Routed()), torch.randn(2, LENGTH, WIDTH)).stacks
    assert [one.sublayer for one in stack.sublayers] == ["mlp", "mlp"]


@pytest.mark.parametrize(
    ("formula", "name"),
    [
        (lambda of, x: of.a(x.roll(-1, 1)), "encoder"),
        (lambda of, x: of.a(x.mean(1, keepdim=True).expand_as(x)), "encoder"),
        (lambda of, x: of.a(of.tokens(x.mT).mT), "encoder"),
        (lambda of, x: of.a(x[:, [1, 2, 3, 4, 0]]), "encoder"),
        (lambda of, x: of.a(F.linear(x.mT, of.tokens.weight.tril()).mT), "decoder"),
        (lambda of, x: of.a(x.cumsum(1)), "decoder"),
        (lambda of, x: of.a(x.cummax(1).values), "decoder"),
    ],
)
def test_a_mixer_before_a_matrix_is_named_by_where_it_looks(formula: Callable[[Of, Tensor], Tensor], name: str) -> None:
    class Block(Of):
        def forward(self, x: Tensor) -> Tensor:
            return x + super().forward(x)

    model = nn.Sequential(Block(formula), Block(formula))
    (stack,) = nl.discover(model, torch.randn(2, LENGTH, WIDTH)).stacks
    assert stack.name == name


@pytest.mark.parametrize(
    ("factor", "placement"),
    [
        (lambda of, x, n: x, "unknown"),
        (lambda of, x, n: x.sigmoid(), "unknown"),
        (lambda of, x, n: x.norm(dim=-1, keepdim=True), "unknown"),
        (lambda of, x, n: of.b(x).sigmoid(), "unknown"),
        (lambda of, x, n: n, "pre"),
        (lambda of, x, n: of.b(n).sigmoid(), "pre"),
    ],
)
def test_what_a_branch_is_multiplied_by_must_read_the_same_norm(
    factor: Callable[[Of, Tensor, Tensor], Tensor], placement: str
) -> None:
    class Block(Of):
        def __init__(self) -> None:
            super().__init__(lambda of, x: x)
            self.norm = nn.LayerNorm(WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            normed = self.norm(x)
            return x + factor(self, x, normed) * self.a(normed)

    assert nl.discover(nn.Sequential(Block(), Block()), torch.randn(2, LENGTH, WIDTH)).placement == placement


def test_a_stream_whose_features_are_channels_has_no_rows_by_token() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.near, self.out = nn.Conv1d(WIDTH, WIDTH, 3, padding=1), nn.Conv1d(WIDTH, WIDTH, 1)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.out(self.near(x).relu())

    class Turned(Block):
        def forward(self, x: Tensor) -> Tensor:
            return x + self.out(self.near(x.mT).relu()).mT

    model, x = nn.Sequential(Block(), Block()), torch.randn(2, WIDTH, LENGTH)
    (stack,) = (found := nl.discover(model, x)).stacks
    assert (stack.width, stack.placement) == (WIDTH, "unknown") and "along the second axis" in stack.reason
    with nl.record(model, sites=found.plan) as recorder, torch.no_grad():
        model(x)
    table = recorder.table().query("site == 'stream'")
    assert len(table) and table["value"].isna().all() and set(table["status"]) == {stack.reason}
    (stack,) = nl.discover(nn.Sequential(Turned(), Turned()), x.mT).stacks
    assert stack.width == WIDTH and stack.placement == "none"


@pytest.mark.parametrize("factor", [lambda x: x, lambda x: x.norm(dim=-1, keepdim=True), lambda x: x.sigmoid()])
def test_the_site_branch_is_what_the_last_matrix_gives(factor: Callable[[Tensor], Tensor]) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 16), nn.Linear(16, WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.down(self.up(self.norm(x)).tanh()) * factor(x)

    torch.manual_seed(0)
    model, x, given = nn.Sequential(Block(), Block()), torch.randn(2, LENGTH, WIDTH), []
    for block in model:
        block.down.register_forward_hook(lambda _, args, result: given.append(float(result.square().mean().sqrt())))
    plan = nl.discover(model, x).plan
    given.clear()
    with nl.record(model, sites=plan) as recorder, torch.no_grad():
        model(x)
    rows = recorder.table().query("site == 'branch' and quantity == 'rms'")
    assert rows["value"].tolist() == pytest.approx(given, rel=1e-5)
