"""More than 2³¹ elements, in no memory to speak of: rows that are repeated, and memory that nothing writes to."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normlab as nl
from normlab.recording import Address, Observed, Port, Residual, SitePlan, native

Value = Callable[..., float]

TOKENS = 2 * 1025


#: By torch they take a minute.
quick = pytest.mark.needs("native")


@pytest.fixture(params=[pytest.param("compiled", marks=quick), "torch"])
def _each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums by the compiled library, and by torch."""
    if request.param == "torch":
        monkeypatch.setattr(native, "library", lambda: None)


def draw(*shape: int, seed: int = 5) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def rms(x: Tensor) -> float:
    return float(x.detach().double().square().mean().sqrt())


def repeated(row: Tensor) -> Tensor:
    x = row.expand(2, TOKENS // 2, 2**20)
    assert x.numel() > 2**31
    return x


def apart(axis: int, seed: int) -> Tensor:
    strides = ((2**31, 6), (6, 2**31))[axis] + (1,)
    far = torch.empty(2**31 + 1024, dtype=torch.bfloat16).as_strided((2, 2, 6), strides)
    return far.copy_(draw(2, 2, 6, seed=seed))


def table_of(x: Tensor, gradient: Tensor | None = None, **options: Any) -> Any:
    with nl.record(model := nn.Identity(), **options) as recorder:
        y = model(x)
        if gradient is not None:
            y.backward(gradient)
    return recorder.table()


@quick
def test_a_huge_activation(value: Value) -> None:
    row = draw(1, 1, 2**20)
    table = table_of(repeated(row), quantities=["rms", "max_abs", "count"])
    assert value(table, site="output", quantity="count") == TOKENS
    assert value(table, site="output", quantity="rms") == pytest.approx(rms(row), rel=1e-6)
    assert value(table, site="output", quantity="max_abs") == float(row.abs().max())


@quick
def test_a_huge_gradient(value: Value) -> None:
    row, gradient = draw(1, 1, 2**20).requires_grad_(), draw(1, 1, 2**20, seed=6)
    table = table_of(repeated(row), repeated(gradient), sites=["output_grad"])
    l2 = TOKENS**0.5 * float(gradient.double().norm())
    assert value(table, site="output_grad", quantity="l2") == pytest.approx(l2, rel=1e-6)
    # Every token has the same gradient.
    assert value(table, site="output_grad", quantity="grad_coherence") == pytest.approx(1.0, rel=1e-6)


class Pair(nn.Module):
    """Shows a skip, an update and their sum, and makes none of them."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.branch, self.after = nn.Identity(), nn.Identity(), nn.Identity()

    def forward(self, skip: Tensor, update: Tensor, total: Tensor) -> None:
        self.before(skip), self.branch(update), self.after(total)

    @property
    def plan(self) -> SitePlan:
        at = Address("decoder", 1, "mlp", "update")
        skip, update, total = Port("before"), Port("branch"), Port("after")
        return SitePlan(observed=(Observed(at, update),), residuals=(Residual(at, skip, update, total),))


def assert_pair(rows: Any, skip: Tensor, update: Tensor, total: Tensor) -> None:
    """Compare what is said of a pair with what its terms say, which may stand for many that are alike."""
    s, u, stored = skip.double().flatten(0, -2), update.double().flatten(0, -2), total.double().flatten(0, -2)
    centred = [one - one.mean(-1, keepdim=True) for one in (s, u)]
    expected = {
        "update_ratio": rms(u) / rms(s),
        "alignment": float((s * u).sum() / (s.norm() * u.norm())),
        "covariance": float((centred[0] * centred[1]).mean()),
        "lost_share": rms(stored - (s + u)) / rms(u),
    }
    assert min(map(abs, expected.values())) > 1e-9
    assert {name: rows.loc[name, "value"] for name in expected} == pytest.approx(expected, rel=1e-5)


def pair_of(*terms: Tensor) -> Any:
    with nl.record(model := Pair(), sites=model.plan) as recorder:
        model(*terms)
    return recorder.table().query("site == 'update'").set_index("quantity")


@quick
def test_a_huge_pair_of_update_and_stream() -> None:
    skip, noise = draw(1, 1, 2**20), draw(1, 1, 2**20, seed=6)
    update = 0.3 * skip + 0.1 * noise
    assert_pair(pair_of(*map(repeated, (skip, update, skip + update))), skip, update, skip + update)


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("axis", [0, 1])
def test_tokens_more_than_two_to_the_31_elements_apart(axis: int, value: Value) -> None:
    x, gradient = apart(axis, 5).requires_grad_(), apart(axis, 6)
    table = table_of(x, gradient)
    assert value(table, site="output", quantity="rms") == pytest.approx(rms(x), rel=1e-6)
    assert value(table, site="output", quantity="max_abs") == float(x.detach().abs().max())
    l2 = float(gradient.double().norm())
    assert value(table, site="output_grad", quantity="l2") == pytest.approx(l2, rel=1e-6)


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("axis", [0, 1])
def test_a_pair_of_tokens_far_apart(axis: int) -> None:
    skip, update = apart(axis, 5), apart(axis, 6)
    total = apart(axis, 7).copy_(skip + update)
    assert_pair(pair_of(skip, update, total), skip, update, total)


LONG = """
import torch, normlab as nl
from pathlib import Path
from normlab.recording import native
native.library = lambda: None
def peak():
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1])
def run(width):
    x = torch.randn(width).requires_grad_()
    with nl.record(model := torch.nn.Identity()) as recorder:
        model(x.expand(1, 512, width)).backward(x.detach().expand(1, 512, width))
    recorder.table()
run(8)
before = peak()
run(128_256)
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc")
def test_tokens_as_long_as_a_vocabulary_need_no_second_tensor() -> None:
    ran = subprocess.run([sys.executable, "-c", LONG], capture_output=True, text=True)
    # The tensor, of which each token is the same memory, would have 263 MB.
    assert int(ran.stdout) < 60_000, ran.stderr
