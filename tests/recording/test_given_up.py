"""A recorder that nobody ends leaves nothing behind."""

import gc
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module

import normlab as nl

_TABLES = ["_global_forward_hooks", "_global_forward_pre_hooks", "_global_forward_hooks_always_called"]


def _traces(model: nn.Module) -> int:
    """The number of hooks of the process, and of modules that call something else in their place."""
    hooks = sum(len(getattr(torch_module, name)) for name in _TABLES)
    return hooks + sum("_compiled_call_impl" in vars(module) for module in model.modules())


def _by_hand(model: nn.Module) -> object:
    return nl.record(model).__enter__()


def _generator(model: nn.Module) -> object:
    def steps() -> Iterator[None]:
        with nl.record(model):
            yield

    running = steps()
    next(running)
    return running


@pytest.mark.parametrize("ran", [False, True])
@pytest.mark.parametrize("start", [_by_hand, _generator])
@pytest.mark.filterwarnings("ignore:nothing of the model ran")
def test_a_recorder_that_is_given_up_leaves_nothing(
    start: Callable[[nn.Module], object], ran: bool, make: Callable[..., nn.Module]
) -> None:
    model, tokens = make(), torch.arange(12).view(2, 6)
    recorder = start(model)
    assert _traces(model)
    if ran:
        model.loss(tokens, tokens).backward()  # type: ignore[operator]
    del recorder
    gc.collect()
    assert not _traces(model)
    model.loss(tokens, tokens).backward()  # type: ignore[operator]


def test_a_recorder_in_use_is_not_given_up(make: Callable[..., nn.Module]) -> None:
    model, tokens = make(), torch.arange(12).view(2, 6)
    with nl.record(model) as recorder:
        gc.collect()
        model.loss(tokens, tokens).backward()  # type: ignore[operator]
    assert recorder.coverage().query("expected")["observed"].all()
