"""Proof that recording a model changes no bit of what it computes, and what it costs in time and memory."""

import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from normlab.errors import RecordingError
from normlab.recording.buffers import buffers_as_before
from normlab.recording.compiled import is_compiled
from normlab.recording.memory import Bytes, meter_of
from normlab.recording.recorder import record
from normlab.recording.tensors import tensors_in

#: How many spacings of its dtype a compiled model's result may be away from that of its code as it is written.
_SPACINGS: Final = 16


@dataclass(frozen=True)
class Transparency:
    """What :func:`check_transparent` found.

    Attributes:
        outputs: number of output tensors that are the same to the bit.
        gradients: number of gradients of parameters and inputs that are.
        time_ratio: time of a recorded forward and backward pass over that of a bare one, ratio of medians.
        bare_seconds: median time of a bare pass.
        memory_share: how far the highest number of bytes that a recorded pass holds exceeds that of a bare one, as
            a share of ``activation_bytes``: tensors, also those inside of operations, numpy arrays and objects.
        activation_bytes: what a bare forward pass leaves for the backward pass.
        difference: 0; for a compiled model the largest difference of a recorded pass, which runs uncompiled, as a
            share of the tensor's size.
    """

    outputs: int
    gradients: int
    time_ratio: float
    bare_seconds: float
    memory_share: float
    activation_bytes: float
    difference: float = 0.0

    def __str__(self) -> str:
        what = f"{self.outputs} outputs and {self.gradients} gradients"
        changes = f"changes no bit of {what}"
        if self.difference:
            changes = f"runs compiled code as it is written, which changes {what} by at most {self.difference:.1e}"
        return (
            f"recording {changes}; a recorded step takes {self.time_ratio:.2f} times a bare one "
            f"({self.bare_seconds:.3g} s) and {100 * self.memory_share:.2f} % of the activations "
            f"({self.activation_bytes / 2**20:.3g} MiB) in memory beyond it"
        )


def check_transparent(model: nn.Module, batch: Any, *, repeats: int = 5) -> Transparency:
    """Run a model bare and recorded, and compare every bit of its outputs and gradients.

    The loss is ``model.loss(*batch)`` where the model has one, otherwise a fixed random projection of
    its floating-point outputs. Gradients of floating-point inputs are compared too. The model's
    gradients, buffers and the random state are as before afterwards. A compiled model is recorded
    uncompiled, so that its numbers differ in the rounding: they are compared to 16 spacings of their dtype.

    Args:
        model: the model.
        batch: its arguments: a tensor, a tuple, or a mapping of keywords.
        repeats: pairs of passes that are timed.

    Returns:
        What was compared, the ratio of times and the share of memory.

    Raises:
        RecordingError: a bit differs, or already differs between two bare passes, or there is nothing to compare.
    """
    with _as_before(model):
        first, again = _run(model, batch, nullcontext()), _run(model, batch, nullcontext())
        if not first:
            raise RecordingError(
                f"{type(model).__name__} returned no tensor that could be compared: "
                "let it return tensors, in tuples, lists, mappings or dataclasses if there are several"
            )
        if name := _difference(first, again):
            raise RecordingError(
                f"{name} differs between two runs without recording: call torch.use_deterministic_algorithms(True)"
            )
        difference = _compared(first, _run(model, batch, record(model)), compiled=is_compiled(model))
        bare, with_recorder = _times(model, batch, repeats)
        # What is imported and kept by the first pass that is metered is nobody's.
        _bytes(model, batch, record(model))
        sizes = _bytes(model, batch, nullcontext()), _bytes(model, batch, record(model))
    gradients = sum(name.startswith("the gradient") for name in first)
    return Transparency(
        outputs=len(first) - gradients,
        gradients=gradients,
        time_ratio=with_recorder / bare,
        bare_seconds=bare,
        memory_share=(sizes[1].peak - sizes[0].peak) / max(sizes[0].after_forward, 1),
        activation_bytes=sizes[0].after_forward,
        difference=difference,
    )


def _compared(bare: dict[str, Tensor], recorded: dict[str, Tensor], *, compiled: bool) -> float:
    """Return by how much a recorded pass differs, and refuse what is more than rounding."""
    name = _difference(bare, recorded)
    if not name:
        return 0.0
    if not compiled or bare.keys() != recorded.keys():
        raise RecordingError(f"recording changes {name}: record other sites, and please report this model")
    worst = 0.0
    for name, tensor in bare.items():
        away = _distance(tensor, recorded[name])
        if not away <= _SPACINGS * (torch.finfo(tensor.dtype).eps if tensor.is_floating_point() else 0.0):
            raise RecordingError(
                f"compiled code changes {name} by {away:.1e} of its size, and a compiled model is recorded as its "
                "code is written: record it before it is compiled"
            )
        worst = max(worst, away)
    return worst


def _distance(one: Tensor, two: Tensor) -> float:
    """Return how far two tensors are apart, as a share of the first one's size."""
    if one.shape != two.shape:
        return float("inf")
    size, away = float(one.double().norm()), float((one.double() - two.double()).norm())
    return away / size if size else away


def _run(model: nn.Module, batch: Any, context: AbstractContextManager[Any]) -> dict[str, Tensor]:
    """Return every output and gradient of one pass by a name that a message can use."""
    args, kwargs = _ready(model, batch)
    outputs = _step(model, args, kwargs, context)
    found = {f"the output {name}": tensor.detach().clone() for name, tensor in outputs.items()}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            found[f"the gradient of {name}"] = parameter.grad.detach().clone()
    for name, tensor in _tensors((args, kwargs)):
        if tensor.grad is not None:
            found[f"the gradient of the input {name}"] = tensor.grad.detach().clone()
    return found


def _ready(model: nn.Module, batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Clear the gradients, and return fresh arguments."""
    model.zero_grad(set_to_none=True)
    return _arguments(batch)


def _step(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    context: AbstractContextManager[Any],
    phase_is_over: Callable[[], None] = lambda: None,
) -> dict[str, Tensor]:
    """Run forward and backward, and return the outputs by name."""
    with torch.random.fork_rng(), context:
        torch.manual_seed(0)
        outputs, loss = _forward(model, args, kwargs)
        phase_is_over()
        if loss.requires_grad:
            loss.backward()
        phase_is_over()
    return outputs


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
        return (), {str(name): tree_map(fresh, value) for name, value in batch.items()}
    return tuple(tree_map(fresh, value) for value in (batch if isinstance(batch, tuple | list) else (batch,))), {}


def _tensors(value: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor in nested containers, by its place."""
    for path, tensor in tensors_in(value):
        yield ".".join(map(str, path)) or "0", tensor


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
            args, kwargs = _ready(model, batch)
            context = record(model) if kind else nullcontext()
            start = time.perf_counter()
            _step(model, args, kwargs, context)
            kept.append(time.perf_counter() - start)
    return statistics.median(seconds[0]), statistics.median(seconds[1])


def _bytes(model: nn.Module, batch: Any, context: AbstractContextManager[Any]) -> Bytes:
    args, kwargs = _ready(model, batch)
    with meter_of(model) as meter:
        _step(model, args, kwargs, context, meter.mark)
    return meter.found


@contextmanager
def _as_before(model: nn.Module) -> Iterator[None]:
    """Put gradients, buffers and Python's random state back afterwards."""
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    state = random.getstate()
    try:
        with buffers_as_before(model):
            yield
    finally:
        random.setstate(state)
        for parameter, gradient in gradients:
            parameter.grad = gradient
