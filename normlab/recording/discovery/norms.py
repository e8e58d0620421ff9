"""What a module that normalises computes, found by running a float64 copy of it on numbers that are known."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor, nn

from normlab.recording.discovery.squash import squashed

#: Norm modules may compute in float32 whatever they are given.
_TOLERANCE: Final = 1e-5
_TOKENS: Final = 12
#: Names of what squashes each entry by itself, in place of a norm.
SQUASHES: Final = ("dyt", "derf", "squash")


@dataclass(frozen=True)
class NormKind:
    """What a norm computes: ``gain · (x − μ)/√(v + ε) + bias`` or one of its variants.

    Attributes:
        name: ``layernorm`` (subtracts the mean), ``rmsnorm``, or ``l2norm`` (tokens of length 1 before the gain);
            ``dyt``, ``derf`` or ``squash`` for what squashes each entry by itself.
        features: the number of features that are normalised together.
        gain: ``w``, ``1+w``, ``none``, or ``other`` for a gain that is none of them.
        bias: whether it adds a bias.
        eps: ε; ``None`` where what it does near zero is neither of the two forms.
        eps_outside: whether ε stands outside the root.
        unbiased: whether the variance divides by one less than the number of features.
        parameters: names of the norm's parameters, each with its role.
    """

    name: str
    features: int
    gain: str
    bias: bool
    eps: float | None
    eps_outside: bool = False
    unbiased: bool = False
    parameters: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        parts = [self.name, f"over {self.features}"]
        parts += {"1+w": ["gain 1 + w"], "none": ["no gain"], "other": ["a gain of another form"]}.get(self.gain, [])
        parts += ["bias"] if self.bias else []
        if self.name not in SQUASHES:
            parts += ["eps unknown"] if self.eps is None else [f"eps {self.eps:.1g}"]
        parts += ["eps outside the root"] if self.eps_outside else []
        return ", ".join(parts + (["unbiased variance"] if self.unbiased else []))


def may_be_norm(module: nn.Module, features: int) -> bool:
    """Whether a module has so few parameters that it can be a norm, and no state that would be normalised with."""
    parameters = list(module.parameters())
    small = all(parameter.dim() <= 1 and parameter.numel() in (1, features) for parameter in parameters)
    return small and not any(buffer.is_floating_point() for buffer in module.buffers())


def probed(module: nn.Module, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> NormKind | None:
    """Return what a module computes if it normalises each token by itself, else ``None``.

    Args:
        module: the module, on any device, also ``meta``.
        shape: the shape of what it takes.
        dtype: that whose ε it uses where it uses that of whatever it computes in; its parameters' unless given.
    """
    if len(shape) < 2 or shape[-1] < 3 or not may_be_norm(module, shape[-1]):
        return None
    function = _float64_copy(module)
    axes = (1,) * (len(shape) - 2)
    x = torch.randn((*axes, _TOKENS, shape[-1]), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = x + 0.3
    try:
        with torch.no_grad():
            return _of_own_dtype(_kind(function, x.shape, x), module, dtype) or _squash(function, x.shape)
    except Exception:  # what a stranger's module raises on other numbers says only that it is no norm
        return None


def _of_own_dtype(kind: NormKind | None, module: nn.Module, dtype: torch.dtype | None) -> NormKind | None:
    """Put the ε of the module's dtype where it uses that of whatever it computes in."""
    if kind is None or kind.eps is None or abs(kind.eps / torch.finfo(torch.float64).eps - 1) > 0.05:
        return kind
    dtype = dtype or next((parameter.dtype for parameter in module.parameters()), torch.get_default_dtype())
    return replace(kind, eps=torch.finfo(dtype).eps)


def _float64_copy(module: nn.Module) -> nn.Module:
    own = copy.deepcopy(module)
    for each in own.modules():
        each._forward_hooks.clear()
        each._forward_pre_hooks.clear()
    if any(tensor.is_meta for tensor in (*own.parameters(), *own.buffers())):
        own = own.to_empty(device="cpu")
    own = own.cpu().double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.copy_(0.5 + torch.rand(parameter.shape, generator=generator, dtype=torch.float64))
    return own


def _kind(module: nn.Module, shape: torch.Size, x: Tensor) -> NormKind | None:
    def run(scale: float) -> Tensor:
        result = module((x * scale).reshape(shape))
        if not isinstance(result, Tensor) or result.shape != shape:
            raise TypeError
        return result.double().reshape(x.shape).flatten(0, -2)

    tokens, large, larger = x.flatten(0, -2), run(1e3), run(2e3)
    if not _close(large, larger) or _close(large[0], large[1]):
        return None
    for name in ("layernorm", "rmsnorm"):
        fitted = _fitted(_normed(name, tokens), large)
        if fitted is not None:
            return _described(module, name, tokens, *fitted, run)
    return None


def _squash(module: nn.Module, shape: torch.Size) -> NormKind | None:
    def run(tokens: Tensor) -> Tensor:
        return torch.as_tensor(module(tokens.reshape(*shape[:-2], *tokens.shape))).reshape(tokens.shape).double()

    found = squashed(module, run, shape[-1])
    if found is None:
        return None
    form, factor, gain_name = _gain_form(module, found.gain)
    roles = {gain_name: "norm_gain"} if gain_name else {}
    roles |= {name: "norm_bias" for name, parameter in module.named_parameters() if _equal(parameter, found.bias)}
    biased = bool(found.bias.abs().max() > 1e-4)
    form = form if _near(factor, 1.0) else "other"
    return NormKind(found.name, shape[-1], form, biased, None, parameters=tuple(roles.items()))


def _normed(name: str, tokens: Tensor) -> Tensor:
    centred = tokens - tokens.mean(-1, keepdim=True) if name == "layernorm" else tokens
    return centred / centred.square().mean(-1, keepdim=True).sqrt()


def _fitted(normed: Tensor, result: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return gain and bias of each feature if ``result`` is gain · normed + bias."""
    centred = normed - normed.mean(0)
    gain = (centred * (result - result.mean(0))).sum(0) / centred.square().sum(0)
    bias = result.mean(0) - gain * normed.mean(0)
    return (gain, bias) if _close(result, gain * normed + bias) else None


def _described(
    module: nn.Module, name: str, tokens: Tensor, gain: Tensor, bias: Tensor, run: Callable[[float], Tensor]
) -> NormKind:
    features = tokens.shape[-1]
    form, factor, gain_name = _gain_form(module, gain)
    unbiased = name == "layernorm" and _near(factor, math.sqrt((features - 1) / features))
    if name == "rmsnorm" and _near(factor, features**-0.5):
        name = "l2norm"
    elif not unbiased and not _near(factor, 1.0):
        form = "other"
    eps, outside = _eps(name, tokens, gain, bias, run, unbiased=unbiased)
    biased = bool(bias.abs().max() > 1e-4)
    roles = {gain_name: "norm_gain"} if gain_name else {}
    roles |= {other: "norm_bias" for other, parameter in module.named_parameters() if _equal(parameter, bias)}
    return NormKind(name, features, form, biased, eps, outside, unbiased, tuple(roles.items()))


def _gain_form(module: nn.Module, gain: Tensor) -> tuple[str, float, str]:
    """Return how the gain follows from a parameter, the factor that is left, and the parameter's name."""
    for name, parameter in module.named_parameters():
        for form, expected in (("w", parameter), ("1+w", 1 + parameter)):
            ratio = gain / expected.detach().flatten()
            if float(ratio.max() - ratio.min()) < _TOLERANCE:
                return form, float(ratio.mean()), name
    constant = float(gain.max() - gain.min()) < _TOLERANCE
    return ("none", float(gain.mean()), "") if constant else ("other", 1.0, "")


def _eps(
    name: str, tokens: Tensor, gain: Tensor, bias: Tensor, run: Callable[[float], Tensor], *, unbiased: bool
) -> tuple[float | None, bool]:
    """Return ε and whether it stands outside the root, from how much small tokens are shrunk."""
    normed = _normed("layernorm" if name == "layernorm" else "rmsnorm", tokens)
    features = tokens.shape[-1]
    centred = tokens - tokens.mean(-1, keepdim=True) if name == "layernorm" else tokens
    square = centred.square().mean(-1)
    square = square * features / (features - 1) if unbiased else square * features if name == "l2norm" else square
    found: list[tuple[float, float]] = []
    for power in range(0, 12):
        scale = 10.0**-power
        shrunk = ((run(scale) - bias) * gain * normed).sum(-1) / (gain * normed).square().sum(-1)
        ratio, v = float(shrunk[0]), float(square[0]) * scale**2
        if 0.02 < ratio < 0.98:
            found.append((v * (1 / ratio**2 - 1), math.sqrt(v) * (1 / ratio - 1)))
        elif ratio <= 0.02:
            break
    if not found:
        return 0.0, False
    for place in (0, 1):
        values = [pair[place] for pair in found]
        if max(values) - min(values) < 1e-2 * max(values) and len(found) > 1:
            return _rounded(values[0]), bool(place)
    return (None, False) if len(found) > 1 else (_rounded(found[0][0]), False)


def _rounded(eps: float) -> float:
    return float(f"{eps:.2g}")


def _equal(parameter: Tensor, values: Tensor) -> bool:
    return parameter.shape == values.shape and _close(parameter.detach(), values)


def _near(one: float, two: float) -> bool:
    return abs(one - two) < _TOLERANCE * abs(two)


def _close(one: Tensor, two: Tensor) -> bool:
    return bool((one - two).abs().max() < _TOLERANCE * (one.abs().max() + 1e-9))
