"""Which implementation serves a norm: torch's own operations, or the CUDA kernels of ``normlab.cupy_kernels``."""

from typing import Any, Final, Literal, TypeAlias

import torch
from torch import Tensor

from normlab.cupy_kernels import every_kernel
from normlab.cupy_kernels import torch_ops as torch_ops  # defines torch.ops.normlab
from normlab.cupy_kernels.calls import SHORT
from normlab.cupy_kernels.launch import missing
from normlab.cupy_kernels.spec import PAIRS
from normlab.errors import NormlabError, unknown_name

#: ``auto``: the kernels where they serve the tensor, otherwise torch. ``cupy``: the kernels, or an error.
Backend: TypeAlias = Literal["auto", "torch", "cupy"]
BACKENDS: Final = ("auto", "torch", "cupy")

#: The operators, the device whose tensors they are for, and why they cannot run on this machine, if so.
OPERATORS: Any = torch.ops.normlab
DEVICE: str = "cuda"
MISSING: str = missing()
#: The kernels compute in float32 and flush what is smaller than its normal numbers.
LEAST_EPS: Final = 1e-30


def check_backend(backend: str) -> str:
    """Return ``backend``.

    Raises:
        UnknownNameError: there is no such backend.
    """
    if backend not in BACKENDS:
        raise unknown_name("backend", backend, BACKENDS)
    return backend


def uses_kernels(backend: str, x: Tensor, *weights: Tensor | None, eps: float = 1.0) -> bool:
    """Say whether the kernels serve a norm of ``x``.

    Args:
        backend: what was asked for.
        x: the input.
        weights: gain, bias and the like.
        eps: the norm's ε.

    Raises:
        NormlabError: the backend is ``cupy``, and the kernels do not serve this norm.
    """
    if backend == "torch" or (backend == "auto" and x.device.type != DEVICE):
        return False
    reason = _refusal(x, weights, eps)
    if reason and backend == "cupy":
        raise NormlabError(f"backend 'cupy' cannot serve this norm: {reason}; give backend 'auto' or 'torch'")
    return not reason


def _refusal(x: Tensor, weights: tuple[Tensor | None, ...], eps: float) -> str:
    """Say why the kernels do not serve a norm; nothing if they do."""
    if MISSING:
        return MISSING
    if x.device.type != DEVICE:
        return f"the tensor is on the device {x.device.type!r}"
    kinds = {SHORT.get(each.dtype, str(each.dtype)) for each in weights if each is not None}
    own = SHORT.get(x.dtype, str(x.dtype))
    if len(kinds) > 1 or (own, kinds.pop() if kinds else own) not in PAIRS:
        return f"there is no kernel for activations of {own} and these weights"
    if eps < LEAST_EPS:
        return f"its eps is {eps:g}, and the kernels need {LEAST_EPS:g} at least"
    if torch.is_autocast_enabled(x.device.type):
        return "autocast is on, and decides precisions itself"
    return "" if torch.compiler.is_compiling() else _transformed(x)


def _transformed(x: Tensor) -> str:
    """Say which derivative or batching rule would be asked of the kernels that they do not have."""
    if torch._C._functorch.is_functorch_wrapped_tensor(x):
        return "a transform of torch.func is being applied"
    return "forward-mode derivatives are being taken" if torch.autograd.forward_ad._current_level >= 0 else ""


def kernels_info() -> dict[str, object]:
    """Say which implementation of the norms is used on this machine by default, and why.

    Returns:
        ``backend`` (``cupy`` or ``torch``: what ``auto`` takes for CUDA tensors), ``why``, ``devices`` (names),
        ``cupy`` (its version, empty without it), ``kernels`` (how many there are) and ``library`` (of the operators).
    """
    why = MISSING or "CuPy and a CUDA device are here; tensors elsewhere, and what kernels do not serve, go to torch"
    return {
        "backend": "torch" if MISSING else "cupy",
        "why": why,
        "devices": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        "cupy": _cupy_version(),
        "kernels": len(every_kernel()),
        "library": "normlab",
    }


def _cupy_version() -> str:
    from importlib.metadata import distributions

    # CuPy's distribution bears the name of the CUDA release that it was built for.
    found = (each for each in distributions() if (each.metadata["Name"] or "").lower().startswith("cupy"))
    return next((each.version for each in found), "")
