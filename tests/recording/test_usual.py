"""Compiled code that reads modules in place of the interpreter gives the same table, whatever is left to that."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import normlab as nl
from normlab.recording import Recorder
from normlab.recording.observer import Observer
from normlab.recording.sums import Sums

pytestmark = pytest.mark.needs("native")

TOKENS, TARGETS = nl.data.random_batch(batch=3, tokens=10)
MASK = torch.arange(10) < torch.tensor([[10], [7], [1]])


def zoo(**options: Any) -> Any:
    return nl.build(nl.ModelSpec(depth=3, width=16, heads=2, **options))


class Blocks(nn.Module):
    """Blocks written by hand, one of them called three times, with whatever happens between them."""

    def __init__(self, between: Callable[[Tensor], Tensor] = lambda x: x, *, checkpointed: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8)
        self.between, self.checkpointed = between, checkpointed

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for _ in range(3):
            update = checkpoint(self.norm, x, use_reentrant=False) if self.checkpointed else self.norm(x)
            x = x + self.between(update)
        return self.last(x)


def x(*, seed: int = 0) -> Tensor:
    return torch.randn((2, 5, 8), generator=torch.Generator().manual_seed(seed))


def backward(model: Any, seed: int = 0, scale: float = 1.0) -> None:
    (scale * model(x(seed=seed)).square().mean()).backward()


def micro_batches(model: Any, recorder: Recorder) -> None:
    for seed in range(3):
        backward(model, seed)
    recorder.step()
    model.zero_grad()
    backward(model)


def autocast(model: Any, recorder: Recorder) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        backward(model)


def failing(model: Any, recorder: Recorder) -> None:
    backward(model)
    with pytest.raises(RuntimeError):
        model(x()[..., :3])
    backward(model, 1)


def mixed(model: Any, recorder: Recorder) -> None:
    backward(model)
    model.double()
    (model(x().double()).square().mean()).backward()


def twice(model: Any, recorder: Recorder) -> None:
    loss = model(x()).square().mean()
    loss.backward(retain_graph=True)
    loss.backward()


def with_loss(model: Any, recorder: Recorder) -> None:
    model.loss(TOKENS, TARGETS).backward()


def without_gradients(model: Any, recorder: Recorder) -> None:
    with torch.no_grad():
        model.loss(TOKENS, TARGETS)


def without_versions(model: Any, recorder: Recorder) -> None:
    with torch.inference_mode():
        model.loss(TOKENS, TARGETS)


def without_end(model: Any, recorder: Recorder) -> None:
    with torch.no_grad():
        model.first.weight[0, 0] = torch.inf
    backward(model)


Make = Callable[[], Any]
Run = Callable[[Any, Recorder], None]
CASES: dict[str, tuple[Make, Run, dict[str, Any]]] = {
    "pre": (zoo, with_loss, {}),
    "post, a mask": (lambda: zoo(placement="post"), with_loss, {"mask": MASK}),
    "two stacks": (lambda: zoo(kind="encoder-decoder"), with_loss, {"mask": MASK}),
    "a mask that is a view": (zoo, with_loss, {"mask": MASK.T.contiguous().T}),
    "a loss scale": (zoo, with_loss, {"loss_scale": 8.0}),
    "no gradients": (zoo, without_gradients, {}),
    "inference mode": (zoo, without_versions, {}),
    "inference mode, post": (lambda: zoo(placement="post"), without_versions, {}),
    "a few sites": (zoo, with_loss, {"sites": ["stream", "branch_grad"]}),
    "a few quantities": (zoo, with_loss, {"quantities": ["rms", "grad_norm"]}),
    "by hand": (Blocks, lambda model, recorder: backward(model), {}),
    "micro-batches and steps": (Blocks, micro_batches, {}),
    "in place": (lambda: Blocks(lambda x: x.mul_(2)), lambda model, recorder: backward(model), {}),
    "in place on a view": (lambda: Blocks(lambda x: x.view(2, 5, 8).add_(1)), micro_batches, {}),
    "checkpointing": (lambda: Blocks(checkpointed=True), micro_batches, {}),
    "autocast": (Blocks, autocast, {}),
    "a pass that fails": (Blocks, failing, {}),
    "two dtypes": (Blocks, mixed, {}),
    "backward twice": (Blocks, twice, {}),
    "not finite": (Blocks, without_end, {}),
    "bfloat16": (lambda: Blocks().bfloat16(), lambda model, recorder: model(x().bfloat16()).sum().backward(), {}),
    "float64": (lambda: Blocks().double(), lambda model, recorder: model(x().double()).sum().backward(), {}),
}


def table(make: Make, run: Run, options: dict[str, Any], *, compiled: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    model = make()
    recorder = nl.record(model, **options)
    if not compiled:
        recorder._observer.reader = None
    with recorder:
        run(model, recorder)
    return recorder.table(), recorder.coverage()


@pytest.mark.parametrize("case", CASES)
def test_the_same_table_with_and_without_it(case: str) -> None:
    compiled, plain = (table(*CASES[case], compiled=way) for way in (True, False))
    for one, two in zip(compiled, plain, strict=True):
        assert len(one) and one["status"].ne("").sum() == two["status"].ne("").sum()
        pd.testing.assert_frame_equal(one, two)


@pytest.mark.parametrize("hooked", [False, True], ids=["no hooks", "a hook of the user's"])
def test_it_takes_all_that_is_usual(monkeypatch: pytest.MonkeyPatch, hooked: bool) -> None:
    model, left, module_ran = zoo(), [], Observer.module_ran
    if hooked:
        model.stacks["decoder"].embedding.register_forward_hook(lambda *_: None)

    def noted(self: Observer, module: nn.Module, *rest: Any) -> None:
        left.append(type(module).__name__)
        module_ran(self, module, *rest)

    monkeypatch.setattr(Observer, "module_ran", noted)
    with nl.record(model):
        model.loss(TOKENS, TARGETS).backward()
    # The first, since gradients of the step before are looked for then, and the loss.
    assert left == ["Embedding", "CrossEntropy"] or len(left) == 2, left


def test_hooks_are_off_a_graph_that_lives_on() -> None:
    model, kept = Blocks(), []
    model.norm.register_forward_hook(lambda module, args, out: kept.append((args[0], out)))
    with nl.record(model) as recorder:
        output = model(x())
        for one, two in kept:
            assert one._backward_hooks or two._backward_hooks
    assert not any(tensor._backward_hooks for pair in kept for tensor in (*pair, output))
    output.sum().backward()
    assert recorder.table().query("site == 'output_grad'")["value"].isna().all()


def test_a_hook_of_the_users_stays_and_sees_the_same_gradient() -> None:
    seen: dict[str, list[Tensor]] = {"before": [], "after": []}

    def run(key: str, record: bool) -> None:
        model = Blocks(lambda x: x)
        handles = [model.first.register_forward_hook(lambda module, args, out: seen[key].append(out) or None)]
        with nl.record(model) if record else torch.enable_grad():
            output = model(x())
            seen[key][0].register_hook(lambda gradient: seen[key].append(gradient.clone()))
            output.sum().backward()
        assert len(seen[key][0]._backward_hooks or {}) == 1
        handles[0].remove()

    run("before", False)
    run("after", True)
    assert torch.equal(seen["before"][1], seen["after"][1])


def count_of_sums() -> int:
    gc.collect()
    return sum(type(one) is Sums for one in gc.get_objects())


def test_no_sums_stay_when_nobody_has_them() -> None:
    before, model = count_of_sums(), zoo()
    with nl.record(model) as recorder:
        model.loss(TOKENS, TARGETS).backward()
    state = recorder.state()
    assert count_of_sums() > before
    del recorder, state
    assert count_of_sums() == before


def test_nothing_is_lost_where_another_thread_adds_up_what_is_booked(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = table(Blocks, without_end, {}, compiled=True)
    activation = Observer._activation

    def meanwhile(self: Observer, x: Tensor) -> Any:
        # Stands for a thread that runs while a long tensor is read.
        assert self.ledger is not None
        self.ledger.settle()
        return activation(self, x)

    monkeypatch.setattr(Observer, "_activation", meanwhile)
    pd.testing.assert_frame_equal(table(Blocks, without_end, {}, compiled=True)[0], expected)


def test_nothing_is_kept_alive_by_a_recorder_that_was_given_up() -> None:
    def begun() -> tuple[Any, Any]:
        model = Blocks()
        recorder = nl.record(model)
        recorder.__enter__()
        model(x())
        recorder._attachment.detach()
        return weakref.ref(model), weakref.ref(recorder)

    gone = begun()
    gc.collect()
    assert [one() for one in gone] == [None, None]
