"""Tensors of classes that raise where others answer, and memory that was freed where logits and losses are read."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normlab as nl
from normlab.recording import Address, Port, Scores, SitePlan

X = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))


class NoDtype(Tensor):
    @property
    def dtype(self) -> Any:
        raise RuntimeError("no dtype")


class NoKind(Tensor):
    def is_floating_point(self) -> bool:
        raise RuntimeError("no kind")


class Nothing(Tensor):
    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("__"):
            raise AttributeError(name)
        return super().__getattribute__(name)


class Gives(nn.Module):
    def __init__(self, kind: type[Tensor], contained: bool) -> None:
        super().__init__()
        self.kind, self.contained = kind, contained

    def forward(self, x: Tensor) -> Any:
        odd = x.as_subclass(self.kind)
        return {"odd": odd, "usual": 2 * x} if self.contained else odd


class Model(nn.Module):
    def __init__(self, kind: type[Tensor], contained: bool) -> None:
        super().__init__()
        self.first, self.odd, self.last = nn.Linear(8, 8), Gives(kind, contained), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        self.odd(x)
        return self.last(x)


@pytest.mark.parametrize("contained", [False, True])
@pytest.mark.parametrize("kind", [NoDtype, NoKind, Nothing])
def test_a_tensor_that_raises_has_a_reason_and_all_others_have_values(kind: type[Tensor], contained: bool) -> None:
    model = Model(kind, contained)
    with nl.record(model) as recorder:
        model(X).square().sum().backward()
    table = recorder.table()
    rms = table[(table["quantity"] == "rms") & (table["site"] == "output")].set_index("name")
    odd = "odd[odd]" if contained else "odd"
    assert rms.loc[odd, "status"] == f"its numbers cannot be read: {kind.__name__}"
    usual = {"first", "last", *(["odd[usual]"] if contained else [])}
    assert set(rms.index) == {odd, *usual} and set(rms.loc[list(usual), "status"]) == {"ok"}


class Attends(nn.Module):
    """Gives queries, keys and a loss, and lets go of the memory of some."""

    def __init__(self, freed: int) -> None:
        super().__init__()
        self.freed = freed

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        given = x[:, None].clone(), x[:, None].clone(), x.mean().clone()
        given[self.freed].untyped_storage().resize_(0)
        return given


@pytest.mark.parametrize("freed", [0, 1, 2])
def test_freed_memory_of_queries_keys_and_a_loss(freed: int) -> None:
    scores = Scores(Address(site="logits"), Port("0", path=(0,)), Port("0", path=(1,)), causal=True)
    plan = SitePlan(scores=(scores,), loss=Port("0", path=(2,)))
    model = nn.Sequential(Attends(freed))
    with nl.record(model, sites=plan) as recorder:
        model(X)
    table = recorder.table()
    logits = table[(table["site"] == "logits") & (table["quantity"] == "rms")]
    losses = table[table["quantity"] == "loss"]
    assert list(logits["status"]) == (["its memory was freed"] if freed < 2 else ["ok"])
    assert list(losses["status"]) == ([] if freed == 2 else ["ok"])
