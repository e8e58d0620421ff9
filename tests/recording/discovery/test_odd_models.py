"""Discovery on torch's own layers and on models written in odd ways."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import normlab as nl
from normlab.errors import RecordingError


class Mix(nn.Module):
    """One head of attention from one packed matrix."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.packed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.packed(x).chunk(3, -1)
        return self.out((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v)


def _mlp(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))


class Loop(nn.Module):
    """No blocks, norms that are functions, and sums in place."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 16)
        self.mixers, self.mlps = (nn.ModuleList(kind(16) for _ in range(3)) for kind in (Mix, _mlp))
        self.last = nn.LayerNorm(16)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        for mixer, mlp in zip(self.mixers, self.mlps, strict=True):
            for part in (mixer, mlp):
                y = part(F.layer_norm(x, x.shape[-1:]))
                y += x
                x = y
        return self.last(x)


class ScaledBlock(nn.Module):
    """Keyword arguments in, a dictionary out; a learned scale on one branch, a number on the other's skip."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.RMSNorm(16, eps=1e-6), nn.RMSNorm(16, eps=1e-6)
        self.mixer, self.up, self.down = Mix(16), nn.Linear(16, 32), nn.Linear(32, 16)
        self.scale = nn.Parameter(torch.full((16,), 0.1))

    def forward(self, *, state: dict[str, Tensor]) -> dict[str, Tensor]:
        x = state["stream"]
        x = x + self.scale * self.mixer(self.one(x))
        return {"stream": 2.0 * x + self.down(self.up(self.two(x)).relu())}


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.blocks = nn.Embedding(20, 16), nn.ModuleList(ScaledBlock() for _ in range(2))

    def forward(self, tokens: Tensor) -> Tensor:
        state = {"stream": self.table(tokens)}
        for block in self.blocks:
            state = block(state=state)
        return state["stream"]


def _tokens() -> Tensor:
    return torch.arange(10).view(2, 5)


def _torch_layers(kind: str, *, norm_first: bool, batch_first: bool) -> tuple[nn.Module, tuple[Tensor, ...]]:
    shapes = [(2, 5, 16), (2, 7, 16)] if batch_first else [(5, 2, 16), (7, 2, 16)]
    generator = torch.Generator().manual_seed(0)
    x, memory = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    options: dict[str, Any] = dict(norm_first=norm_first, batch_first=batch_first, dropout=0.0, dtype=torch.float64)
    if kind == "encoder":
        return nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, **options), 2, enable_nested_tensor=False), (
            x,
        )
    return nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 4, 32, **options), 2), (x, memory)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_torchs_own_layers(kind: str, norm_first: bool, batch_first: bool, rebuilds: Callable[..., int]) -> None:
    model, batch = _torch_layers(kind, norm_first=norm_first, batch_first=batch_first)
    found = nl.discover(model, batch)
    assert found.placement == ("pre" if norm_first else "post")
    assert found.stacks[0].name == kind and found.stacks[0].copies == ((1, 2),)
    assert rebuilds(model.train(), found, lambda: model(*batch)) == (4 if kind == "encoder" else 6)


def test_tokens_along_the_first_axis_are_still_tokens(rows_equal: Callable[..., None]) -> None:
    tables = []
    for batch_first in (True, False):
        model, batch = _torch_layers("encoder", norm_first=True, batch_first=batch_first)
        with torch.no_grad():
            for number, parameter in enumerate(model.parameters()):
                nn.init.normal_(parameter, generator=torch.Generator().manual_seed(number))
        batch = (
            batch[0]
            if batch_first
            else _torch_layers("encoder", norm_first=True, batch_first=True)[1][0].transpose(0, 1),
        )
        with nl.record(model, sites=nl.discover(model, batch).plan) as recorder:
            model(*batch).square().mean().backward()
        tables.append(recorder.table())
    one, two = (table[table["quantity"] != "lost_share"] for table in tables)
    assert "token_cosine" in set(one["quantity"].astype(str))
    key = ["stack", "layer", "sublayer", "site", "quantity", "role", "name"]
    both = one.merge(two, on=key, suffixes=("_1", "_2"))
    assert len(both) == len(one) == len(two)
    same = (both["value_1"] - both["value_2"]).abs() <= 1e-9 * both["value_1"].abs() + 1e-12
    assert (same | both["value_1"].isna()).all()


def test_sums_in_place_between_modules_of_no_block(squares: Callable[..., Any]) -> None:
    model = Loop().double()
    found = nl.discover(model, _tokens())
    assert (found.placement, found.stacks[0].depth, len(found.norms)) == ("pre", 3, 7)
    with nl.record(model, sites=found.plan) as recorder:
        model(_tokens()).square().mean().backward()
    table = recorder.table()
    recorded, own = squares(model, table)
    assert recorded == pytest.approx(own, rel=1e-9)
    assert "no module takes or gives this tensor" in set(table["status"].astype(str))


def test_scales_on_branch_and_skip(rebuilds: Callable[..., int]) -> None:
    model = Scaled().double()
    found = nl.discover(model, (_tokens(),))
    text = str(found)
    assert "x ← x + scale·Attn(RMS(x))    blocks 1-2" in text and "x ← 2·x + MLP(RMS(x))    blocks 1-2" in text
    roles = {parameter.name: parameter.role for parameter in found.plan.parameters}
    assert roles["blocks.0.scale"] == "branch_scale"
    assert rebuilds(model, found, lambda: model(_tokens())) == 0  # what is scaled shows at no module


class Reversible(nn.Module):
    """Two streams side by side; what is added to one is computed of the other."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(20, 16), nn.LayerNorm(16)
        self.blocks = nn.ModuleList(
            nn.ModuleList(nn.Sequential(nn.LayerNorm(16), _mlp(16)) for _ in range(2)) for _ in range(3)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        one = two = self.table(tokens)
        for first, second in self.blocks:
            one = one + first(two)
            two = two + second(one)
        return self.last(one + two)


def test_streams_side_by_side_are_not_taken_for_one() -> None:
    found = nl.discover(Reversible(), torch.arange(10).view(2, 5))
    (stack,) = found.stacks
    assert stack.placement == "unknown" and "streams go side by side" in stack.reason


def test_a_model_without_a_residual_stream_says_so() -> None:
    found = nl.discover(_mlp(4), torch.ones(2, 4))
    assert found.placement == "unknown" and "no residual stream found" in str(found)


class Summed(nn.Module):
    """A sum of its own kind around each branch."""

    def __init__(self, add: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.table, self.add = nn.Embedding(20, 16), add
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(16), _mlp(16)) for _ in range(3))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        for block in self.blocks:
            x = self.add(x, block(x))
        return x


@pytest.mark.parametrize(
    "add",
    [
        lambda x, y: torch.add(x, y, alpha=0.5),
        lambda x, y: x.clone().add_(y, alpha=0.5),
        lambda x, y: x.add(y.double(), alpha=0.5),
    ],
)
def test_a_sum_that_scales_is_one_with_a_scaled_update(add: Callable[[Tensor, Tensor], Tensor]) -> None:
    found, written = (nl.discover(Summed(one).double(), _tokens()) for one in (add, lambda x, y: x + 0.5 * y))
    assert str(found) == str(written) and "x ← x + 0.5·MLP(LN(x))    blocks 1-3" in str(found)


def test_a_batch_must_be_given_where_none_can_be_made() -> None:
    with pytest.raises(RecordingError, match="give one"):
        nl.discover(Loop())


def test_what_is_found_is_plain_data() -> None:
    import json

    values = json.loads(json.dumps(nl.discover(Scaled(), _tokens()).to_dict()))
    assert values["norm_count"] == 4 and values["stacks"][0]["sublayers"][0]["norms"][0]["kind"]["name"] == "rmsnorm"
