"""Gradients of views that are changed in place after they were seen: the whole of each, against a plain loop."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

import normlab as nl
from normlab.recording import Address, Observed, Port, SitePlan

pytestmark = pytest.mark.usefixtures("each_way")

WIDTH = 8
NAMES = ("first", "blocks.0", "blocks.1", "blocks.2")


def outputs(names: Sequence[str]) -> SitePlan:
    """A plan of what some modules give."""
    return SitePlan(
        observed=tuple(Observed(Address(site="output", name=one), Port(one, "output", ())) for one in names)
    )


class Patches(nn.Module):
    """Gives a view of a convolution's result, whose axes are in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Conv1d(WIDTH, WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.inner(x.transpose(1, 2)).transpose(1, 2)
        return result


class Part(nn.Module):
    """Gives a part of what it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, 2 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.inner(x)[..., WIDTH:]
        return result


class Block(nn.Module):
    """Reads the stream by an operation that keeps nothing of it, so that it may be changed in place."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.map, self.in_place = nn.Linear(WIDTH, WIDTH), in_place

    def forward(self, h: Tensor) -> Tensor:
        update = self.map(h * 0.5)
        if not self.in_place:
            return h + update
        h += update
        return h


class Model(nn.Module):
    def __init__(self, first: nn.Module, in_place: bool) -> None:
        super().__init__()
        self.first, self.last = first, nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(Block(in_place) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        for block in self.blocks:
            h = block(h)
        result: Tensor = self.last(h * 1)
        return result


def gradients(make: Callable[[], nn.Module], dtype: torch.dtype, *, in_place: bool) -> dict[str, float]:
    torch.manual_seed(0)
    model = Model(make(), in_place).to(dtype)
    x = torch.randn(3, 5, WIDTH, generator=torch.Generator().manual_seed(1)).to(dtype)
    if not in_place:
        seen: dict[str, Tensor] = {}
        for name in NAMES:
            model.get_submodule(name).register_forward_hook(
                lambda _, args, result, name=name: (result.retain_grad(), seen.__setitem__(name, result))[1]
            )
        model(x).float().pow(3).mean().backward()
        return {name: float(one.grad.double().norm()) for name, one in seen.items()}
    with nl.record(model, sites=outputs(NAMES)) as recorder:
        model(x).float().pow(3).mean().backward()
    table = recorder.table().query("quantity == 'l2' and site == 'output_grad'").set_index("name")
    assert (table["status"] == "ok").all()
    return {name: table["value"][name] for name in NAMES}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("make", [lambda: nn.Linear(WIDTH, WIDTH), Patches, Part])
def test_a_stream_that_is_added_to_in_place(make: Callable[[], nn.Module], dtype: torch.dtype) -> None:
    right = gradients(make, dtype, in_place=False)
    assert gradients(make, dtype, in_place=True) == pytest.approx(right, rel=1e-5 if dtype is torch.float32 else 0.02)


def test_a_view_that_nothing_changes_has_its_own_gradient() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.view = nn.Linear(WIDTH, WIDTH), nn.Flatten(0, 1)

        def forward(self, x: Tensor) -> Tensor:
            h = self.first(x)
            return 3 * h.sum() + 2 * self.view(h).sum()

    model, x = Both(), torch.randn(3, 5, WIDTH)
    with nl.record(model, sites=outputs(("first", "view"))) as recorder:
        model(x).backward()
    table = recorder.table().query("quantity == 'l2' and site == 'output_grad'").set_index("name")["value"]
    entries = 3 * 5 * WIDTH
    assert table["view"] == pytest.approx(2 * entries**0.5) and table["first"] == pytest.approx(5 * entries**0.5)
