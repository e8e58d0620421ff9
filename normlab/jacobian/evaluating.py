"""Running a function once, as a function: the same again gives the same, and nobody else notices."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.module import register_module_forward_pre_hook

from normlab.errors import NormlabError, UnknownNameError
from normlab.jacobian.arithmetic import wide
from normlab.recording.attachment import unseen
from normlab.recording.compiled import uncompiled

Function: TypeAlias = Callable[[Tensor], Tensor] | nn.Module


class JacobianError(NormlabError, ValueError):
    """A function whose Jacobian is not defined, or would be wrong."""


class UnknownPart(JacobianError, UnknownNameError):
    """A part that the model does not have."""


class NonFiniteJacobian(JacobianError):
    """A Jacobian with entries that are not finite."""


@contextmanager
def plain_attention() -> Iterator[None]:
    """Give attention its elementary form, which can be differentiated twice, and what it had before afterwards."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


def prepared(function: Function) -> Callable[[Tensor], Tensor]:
    """Return a float64 copy of a module, whose parameters take no gradient; anything else as it is.

    Raises:
        JacobianError: the module cannot be copied.
    """
    if not isinstance(function, nn.Module):
        return function
    try:
        copied = copy.deepcopy(uncompiled(function))
    except (RuntimeError, TypeError) as error:
        raise JacobianError(
            f"{type(function).__name__} cannot be copied to float64 ({error}): give a function that calls it"
        ) from error
    return copied.double().requires_grad_(False)


def evaluate(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call ``function`` and return its result, unseen by recorders and without casts from float64 to fewer digits.

    Random states and buffers are as before if the call is refused.

    Raises:
        JacobianError: it drew random numbers, or a module in train mode changed its buffers.
    """
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    before = _states(devices)
    root = function if isinstance(function, nn.Module) else None
    with unseen(), _buffers_kept(root), torch.random.fork_rng(devices), wide((args, kwargs)):
        result = function(*args, **kwargs)
        drew = any(not torch.equal(one, two) for one, two in zip(before, _states(devices), strict=True))
    if drew:
        raise JacobianError(f"{_random(function)} draws random numbers in train mode: call eval() on the model first")
    return result


def _states(devices: list[int]) -> list[Tensor]:
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in devices)]


def _random(function: Callable[..., Any]) -> str:
    """Name what draws: the first module in train mode with a probability, where one can be told."""
    modules = function.named_modules() if isinstance(function, nn.Module) else ()
    for name, module in modules:
        if module.training and isinstance(getattr(module, "p", None), float) and module.p > 0:
            return f"module {name or type(module).__name__!r}"
    return "the function"


@contextmanager
def _buffers_kept(root: nn.Module | None) -> Iterator[None]:
    """Refuse modules that change their buffers in train mode, whoever calls them, and put the buffers back."""
    # By value: torch's own batch norm does not count its updates as changes.
    seen: dict[int, tuple[nn.Module, list[tuple[Tensor, Tensor]]]] = {}

    def starts(module: nn.Module, args: Any) -> None:
        if module.training and id(module) not in seen:
            own = [buffer for buffer in module.buffers(recurse=False) if not buffer.is_meta]
            seen[id(module)] = module, [(buffer, buffer.detach().clone()) for buffer in own]

    handle = register_module_forward_pre_hook(starts)
    try:
        yield
    finally:
        handle.remove()
    changed = [
        (module, buffer, value)
        for module, kept in seen.values()
        for buffer, value in kept
        if not torch.equal(buffer, value)
    ]
    if not changed:
        return
    with torch.no_grad():
        for _, buffer, value in changed:
            buffer.copy_(value)
    names = {id(module): name for name, module in root.named_modules()} if root is not None else {}
    first = changed[0][0]
    raise JacobianError(
        f"module {names.get(id(first)) or type(first).__name__!r} updates running statistics in train mode: "
        f"call eval() on the model first"
    )
