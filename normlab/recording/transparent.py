"""Proof that recording a model changes no bit of what it computes, and what it costs in time and memory."""

import inspect
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from normlab.errors import RecordingError
from normlab.recording.buffers import buffers_as_before
from normlab.recording.compiled import is_compiled
from normlab.recording.memory import Bytes, meter_of
from normlab.recording.recorder import record
from normlab.recording.tensors import shown, tensors_in

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

    The loss is ``model.loss(*batch)`` where that is a method that takes the batch and gives a number, otherwise a
    fixed random projection of all that it, or the model, returns. Gradients of inputs that are no whole numbers are
    compared too. The model's gradients, buffers and the random state are as before afterwards. A compiled model is
    recorded uncompiled, so that its numbers differ in the rounding: they are compared to 16 spacings of their dtype.

    Args:
        model: the model.
        batch: its arguments: a tensor, a tuple, or a mapping of keywords.
        repeats: pairs of passes that are timed.

    Returns:
        What was compared, the ratio of times and the share of memory.

    Raises:
        RecordingError: a bit differs, or already differs between two bare passes, or there is nothing to compare.
    """
    if name := next((name for name, parameter in model.named_parameters() if parameter.is_meta), ""):
        raise RecordingError(f"the parameter {name!r} has no numbers, on the device meta: give a model with weights")
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
        continuous = tensor.is_floating_point() or tensor.is_complex()
        if not away <= _SPACINGS * (torch.finfo(tensor.dtype).eps if continuous else 0.0):
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
    wide = torch.complex128 if one.is_complex() else torch.float64
    first, second = (each.to_dense().to(wide) if _is_sparse(each) else each.to(wide) for each in (one, two))
    size, away = float(first.norm()), float((first - second).norm())
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
    own = getattr(model, "loss", None)
    result = own(*args, **kwargs) if own is not None and _takes(own, args, kwargs) else model(*args, **kwargs)
    if isinstance(result, Tensor) and result.is_floating_point() and not result.dim():
        return {"loss": result}, result
    outputs = dict(_tensors(result))
    generator = torch.Generator().manual_seed(0)
    loss = torch.zeros((), dtype=torch.float64)
    for tensor in outputs.values():
        for part in _parts(tensor.to_dense() if tensor.requires_grad and _is_sparse(tensor) else tensor):
            if part.requires_grad:
                real = torch.view_as_real(part.resolve_conj()) if part.is_complex() else part
                weights = torch.randn(real.shape, generator=generator).to(real)
                loss = loss + (real * weights).sum().to("cpu", torch.float64)
    return outputs, loss


def _takes(loss: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Say whether a model's attribute is a loss of a batch: a method, and not the function of a result and a target."""
    if not inspect.ismethod(loss):
        return False
    try:
        inspect.signature(loss).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _arguments(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def fresh(value: Any) -> Any:
        if isinstance(value, Tensor):
            copy = value.detach().clone()
            return copy.requires_grad_() if copy.is_floating_point() or copy.is_complex() else copy
        return value

    if isinstance(batch, Mapping):
        return (), {str(name): tree_map(fresh, value) for name, value in batch.items()}
    return tuple(tree_map(fresh, value) for value in (batch if isinstance(batch, tuple | list) else (batch,))), {}


def _tensors(value: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor in nested containers, by its place."""
    for path, tensor in tensors_in(value):
        yield ".".join(map(shown, path)) or "0", tensor


def _difference(one: dict[str, Tensor], two: dict[str, Tensor]) -> str:
    """Return the name of the first tensor that differs in a bit, or nothing."""
    for name in one.keys() | two.keys():
        if name not in one or name not in two or not _same_bits(one[name], two[name]):
            return name
    return ""


def _same_bits(one: Tensor, two: Tensor) -> bool:
    if one.shape != two.shape or one.dtype != two.dtype or one.layout != two.layout:
        return False
    pairs = zip_longest(_parts(one), _parts(two), fillvalue=one.new_empty(0))
    return all(first.shape == second.shape and torch.equal(*map(_bits, (first, second))) for first, second in pairs)


def _bits(tensor: Tensor) -> Tensor:
    """Return a tensor as bytes, so that NaN equals itself and 0 does not equal -0."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous().flatten().view(torch.uint8)


def _is_sparse(tensor: Tensor) -> bool:
    return tensor.layout is not torch.strided and not tensor.is_nested


def _parts(tensor: Tensor) -> list[Tensor]:
    """Return the dense tensors that a tensor is made of."""
    if tensor.is_nested:
        return list(tensor.unbind())
    if tensor.is_quantized:
        return [tensor.int_repr()]
    if tensor.layout is torch.sparse_coo:
        tensor = tensor.coalesce()
        return [tensor.indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [tensor]


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
