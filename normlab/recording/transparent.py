"""Proof that recording a model changes no bit of what it computes, and what it costs in time."""

import random
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from normlab.errors import RecordingError
from normlab.recording.recorder import record


@dataclass(frozen=True)
class Transparency:
    """What :func:`check_transparent` found.

    Attributes:
        outputs: number of output tensors that are the same to the bit.
        gradients: number of gradients of parameters and inputs that are.
        time_ratio: time of a recorded forward and backward pass over that of a bare one, ratio of medians.
        bare_seconds: median time of a bare pass.
    """

    outputs: int
    gradients: int
    time_ratio: float
    bare_seconds: float

    def __str__(self) -> str:
        return (
            f"recording changes no bit of {self.outputs} outputs and {self.gradients} gradients; "
            f"a recorded step takes {self.time_ratio:.2f} times a bare one ({self.bare_seconds:.3g} s)"
        )


def check_transparent(model: nn.Module, batch: Any, *, repeats: int = 5) -> Transparency:
    """Run a model bare and recorded, and compare every bit of its outputs and gradients.

    The loss is ``model.loss(*batch)`` where the model has one, otherwise a fixed random projection of
    its floating-point outputs. Gradients of floating-point inputs are compared too. The model's
    gradients, buffers and the random state are as before afterwards.

    Args:
        model: the model.
        batch: its arguments: a tensor, a tuple, or a mapping of keywords.
        repeats: pairs of passes that are timed.

    Returns:
        What was compared and the ratio of times.

    Raises:
        RecordingError: a bit differs, or already differs between two bare passes, or there is nothing to compare.
    """
    with _as_before(model):
        first, again = _run(model, batch, nullcontext()), _run(model, batch, nullcontext())
        if not first:
            raise RecordingError(
                f"{type(model).__name__} returned no tensor that could be compared: "
                "let it return tensors, in tuples, lists or mappings if there are several"
            )
        if name := _difference(first, again):
            raise RecordingError(
                f"{name} differs between two runs without recording: call torch.use_deterministic_algorithms(True)"
            )
        recorded = _run(model, batch, record(model))
        if name := _difference(first, recorded):
            raise RecordingError(f"recording changes {name}: record other sites, and please report this model")
        bare, with_recorder = _times(model, batch, repeats)
    gradients = sum(name.startswith("the gradient") for name in first)
    return Transparency(len(first) - gradients, gradients, with_recorder / bare, bare)


def _run(model: nn.Module, batch: Any, context: AbstractContextManager[Any]) -> dict[str, Tensor]:
    """Return every output and gradient of one pass by a name that a message can use."""
    model.zero_grad(set_to_none=True)
    args, kwargs = _arguments(batch)
    with torch.random.fork_rng(), context:
        torch.manual_seed(0)
        outputs, loss = _forward(model, args, kwargs)
        if loss.requires_grad:
            loss.backward()
    found = {f"the output {name}": tensor.detach().clone() for name, tensor in outputs.items()}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            found[f"the gradient of {name}"] = parameter.grad.detach().clone()
    for name, tensor in _tensors((args, kwargs)):
        if tensor.grad is not None:
            found[f"the gradient of the input {name}"] = tensor.grad
    return found


def _forward(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, Tensor], Tensor]:
    if callable(loss_of := getattr(model, "loss", None)):
        loss = loss_of(*args, **kwargs)
        return {"loss": loss}, loss
    outputs = dict(_tensors(model(*args, **kwargs)))
    generator = torch.Generator().manual_seed(0)
    loss = torch.zeros((), dtype=torch.float64)
    for tensor in outputs.values():
        if tensor.is_floating_point() and tensor.requires_grad:
            weights = torch.randn(tensor.shape, generator=generator).to(tensor)
            loss = loss + (tensor * weights).sum().to("cpu", torch.float64)
    return outputs, loss


def _arguments(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def fresh(value: Any) -> Any:
        if isinstance(value, Tensor):
            copy = value.detach().clone()
            return copy.requires_grad_() if copy.is_floating_point() else copy
        return value

    if isinstance(batch, Mapping):
        return (), {str(name): fresh(value) for name, value in batch.items()}
    return tuple(fresh(value) for value in (batch if isinstance(batch, tuple | list) else (batch,))), {}


def _tensors(value: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor in nested containers, by its place."""
    if isinstance(value, Tensor):
        yield name or "0", value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from _tensors(item, f"{name}.{index}" if name else str(index))


def _difference(one: dict[str, Tensor], two: dict[str, Tensor]) -> str:
    """Return the name of the first tensor that differs in a bit, or nothing."""
    for name in one.keys() | two.keys():
        if name not in one or name not in two or not _same_bits(one[name], two[name]):
            return name
    return ""


def _same_bits(one: Tensor, two: Tensor) -> bool:
    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    # As bytes, so that NaN equals itself and 0 does not equal -0.
    return bool(torch.equal(*(tensor.detach().contiguous().flatten().view(torch.uint8) for tensor in (one, two))))


def _times(model: nn.Module, batch: Any, repeats: int) -> tuple[float, float]:
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for kind, kept in enumerate(seconds):
            start = time.perf_counter()
            _run(model, batch, record(model) if kind else nullcontext())
            kept.append(time.perf_counter() - start)
    return statistics.median(seconds[0]), statistics.median(seconds[1])


@contextmanager
def _as_before(model: nn.Module) -> Iterator[None]:
    """Put gradients, buffers and Python's random state back afterwards."""
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)
        for buffer, kept in buffers:
            buffer.copy_(kept)
        for parameter, gradient in gradients:
            parameter.grad = gradient
