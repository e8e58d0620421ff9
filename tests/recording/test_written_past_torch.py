"""Tensors that are written past torch, which counts no change of them: each reading is of what is there then."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normlab as nl
from normlab.recording import Address, Observed, Port, SitePlan

pytestmark = pytest.mark.usefixtures("each_way")


class Kernel(nn.Module):
    """Writes its result into a buffer of its own, as a kernel that torch does not know of does."""

    def __init__(self, buffer: Tensor) -> None:
        super().__init__()
        self.buffer = buffer

    def forward(self, x: Tensor) -> Tensor:
        self.buffer.numpy()[...] = 2 * x.detach().numpy()
        return self.buffer


class Twice(nn.Module):
    """Calls one kernel two times, or two that share their buffer."""

    def __init__(self, kernels: int) -> None:
        super().__init__()
        buffer = torch.zeros(2, 3, 16)
        self.kernels, self.last = nn.ModuleList([Kernel(buffer) for _ in range(kernels)]), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        first = self.kernels[0](x).clone()
        result: Tensor = self.last(first + self.kernels[-1](10 * x))
        return result


def rms(model: nn.Module, *batch: Any) -> list[float]:
    with nl.record(model) as recorder:
        model(*batch).sum().backward()
    table = recorder.table().query("quantity == 'rms' and site == 'output' and name != 'last'")
    values: list[float] = table.sort_values(["name", "call"])["value"].tolist()
    return values


@pytest.mark.parametrize("kernels", [1, 2])
def test_a_result_in_a_buffer_is_what_it_was_when_it_was_given(kernels: int) -> None:
    x = torch.randn(2, 3, 16)
    size = float(x.double().square().mean().sqrt())
    assert rms(Twice(kernels), x) == pytest.approx([2 * size, 20 * size], rel=1e-6)


class Fed(nn.Module):
    """Hands its parts one buffer that it fills anew past torch."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer, self.part, self.last = torch.zeros(2, 3, 16), nn.Dropout(0.0), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        total = x
        for factor in (1, 10):
            self.buffer.numpy()[...] = factor * x.detach().numpy()
            total = total + self.part(self.buffer)
        result: Tensor = self.last(total)
        return result


def test_a_buffer_that_a_module_gets_again_is_read_again() -> None:
    x = torch.randn(2, 3, 16)
    size = float(x.double().square().mean().sqrt())
    assert rms(Fed().eval(), x) == pytest.approx([size, 10 * size], rel=1e-6)


class Inside(nn.Module):
    """Gives what its part gave; a parameter of its own lets it be recorded too."""

    def __init__(self) -> None:
        super().__init__()
        self.part, self.gain = nn.Linear(16, 16), nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.part(x * self.gain)
        return result


def test_a_module_that_passes_on_what_its_part_gave_has_the_same_numbers() -> None:
    model = nn.Sequential(Inside(), nn.Linear(16, 16))
    with nl.record(model) as recorder:
        model(torch.randn(2, 3, 16)).sum().backward()
    found = recorder.table().query("site in ['output', 'output.grad']").set_index(["name", "quantity"])["value"]
    for quantity in ("rms", "grad_rms", "cosine_mean", "count"):
        if ("0", quantity) in found.index:
            assert found["0", quantity] == found["0.part", quantity]
    assert found["0", "rms"] > 0


class Scaling(nn.Module):
    """Changes what it is given, or its second argument, as a fused kernel does, and hands it on."""

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Any:
        if residual is None:
            x.detach().numpy()[...] *= 3
            return x
        residual.detach().numpy()[...] += x.detach().numpy()
        return 2 * x, residual


class Fused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.scaling, self.one = nn.Linear(16, 16), Scaling(), nn.Identity()
        self.second, self.adding, self.two = nn.Linear(16, 16), Scaling(), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        stream = self.one(self.scaling(self.first(x)))
        update, stream = self.adding(self.second(stream), stream)
        result: Tensor = update + self.two(stream)
        return result


def test_an_argument_that_is_changed_and_handed_on_is_what_it_is_then() -> None:
    model, x = Fused(), torch.randn(2, 3, 16)
    right: dict[str, float] = {}

    def keep(name: str, result: Any) -> None:
        for number, tensor in enumerate(result if isinstance(result, tuple) else (result,)):
            key = f"{name}[{number}]" if isinstance(result, tuple) else name
            right[key] = float(tensor.detach().double().square().mean().sqrt())

    handles = [
        module.register_forward_hook(lambda _, args, result, name=name: keep(name, result))
        for name, module in model.named_children()
    ]
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    with torch.no_grad(), nl.record(model) as recorder:
        model(x)
    table = recorder.table().query("quantity == 'rms' and site == 'output'").set_index("name")["value"]
    assert table.to_dict() == pytest.approx(right, rel=1e-6)


def test_one_buffer_that_is_filled_anew_for_another_module() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.buffer, self.parts = torch.zeros(2, 3, 16), nn.ModuleList(nn.Linear(16, 16) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            total = x
            for factor, part in enumerate(self.parts, 1):
                self.buffer.numpy()[...] = factor * x.numpy()
                total = total + part(self.buffer)
            return total

    x = torch.randn(2, 3, 16)
    names = [f"parts.{number}" for number in range(2)]
    inputs = SitePlan(
        observed=tuple(Observed(Address(site="input", name=one), Port(one, "input", (0,))) for one in names)
    )
    with torch.no_grad(), nl.record(model := Model(), sites=inputs) as recorder:
        model(x)
    size = float(x.double().square().mean().sqrt())
    table = recorder.table().query("quantity == 'rms'").sort_values("name")["value"]
    assert table.tolist() == pytest.approx([size, 2 * size], rel=1e-6)
