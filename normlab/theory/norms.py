"""What a norm does to covariances (equations N1 to N3 of ``docs/theory.md``).

Nothing here knows a norm by name: its properties say which closure holds, and its module is asked for the numbers.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from normlab.norms import NORMS, Norm
from normlab.options import Options
from normlab.spec import ModelSpec
from normlab.spec.inner_norms import InnerNorm
from normlab.theory.elementwise import Elementwise, scaled
from normlab.theory.geometry import Geometry
from normlab.theory.kernels import Array, kernel
from normlab.theory.reasons import NoTheory

#: Features of the vector with which a module is probed.
_PROBE = 512

T = TypeVar("T")

Reads: TypeAlias = Literal["entry", "stream", "fresh"]


@dataclass(frozen=True)
class NormMap:
    """A norm of the theory.

    Attributes:
        scale: rms of what a scale-invariant norm returns; 0 for a pointwise one.
        eps: ε, which adds to the mean square.
        directions: directions per token that a gradient loses: its own, and the mean where that is subtracted.
        centred: whether the mean over features is subtracted.
        function: φ of a pointwise norm.
        gain: γ at initialisation.
        width: number of features.
        gains: learnable entries of γ for each feature.
        shifts: learnable entries of β for each feature.
    """

    scale: float
    eps: float
    directions: int
    centred: bool
    function: Callable[[Tensor], Tensor] | None
    gain: float
    width: int
    gains: float
    shifts: float

    def __call__(
        self, covariance: Array, geometry: Geometry, *, mean: Array | float = 0.0, on: Reads = "entry"
    ) -> Elementwise:
        """Return the map.

        Args:
            covariance: of the norm's inputs.
            geometry: its pairs.
            mean: E[x_i] E[x_j] of the input's features, where it is not 0: a centred norm subtracts it.
            on: what the norm reads, which decides what a gradient loses (N3): the stream at the ``entry`` of a branch,
                the ``stream`` itself, or what a ``fresh`` matrix has just given.
        """
        if self.function is not None:
            return self._pointwise(covariance, geometry)
        if self.centred and not (isinstance(mean, float) and mean == 0):
            covariance = covariance - mean
        rows, columns = geometry.sides(covariance)
        first = self.scale / np.sqrt(rows + self.eps)
        second = first if rows is columns else self.scale / np.sqrt(columns + self.eps)
        # A gradient that comes through a scale-invariant stream is orthogonal to the token by itself.
        lost = max(self.directions - 1, 0) / self.width if on == "stream" else 0.0
        now = {
            "entry": 1 - self.directions / self.width,
            "stream": 1.0,
            "fresh": 1 + bool(self.directions) / self.width,
        }[on]
        unit = first * second * covariance
        return Elementwise(
            value=scaled(self.gain**2, unit),
            unit=unit,
            first=scaled(self.gain, first),
            second=scaled(self.gain, second),
            kept=now,
            lost=lost,
            gains=self.gains,
            shifts=self.shifts,
        )

    def _pointwise(self, covariance: Array, geometry: Geometry) -> Elementwise:
        assert self.function is not None
        rows, columns = geometry.sides(covariance)
        variance = np.sqrt(rows * columns)
        moments = kernel(self.function)(covariance, variance)
        # Uncorrelated features: E[φ′(a) φ′(b)] is the square of E[φ′].
        mean_slope = np.sqrt(kernel(self.function)(np.zeros_like(covariance), variance).slope)
        unit = moments.value / self.gain**2 if self.gain else moments.value
        return Elementwise(
            moments.value, unit, mean_slope, mean_slope, moments.slope, gains=self.gains, shifts=self.shifts
        )


@dataclass(frozen=True)
class Norms:
    """The norms of a model.

    Attributes:
        spec: the model.
        finite: whether a norm's lost directions count, a share of order 1/d.
    """

    spec: ModelSpec
    finite: bool = True
    _known: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)

    def around(self, width: int | None = None, *, initial_gain: float = 1.0) -> NormMap:
        """Return the norm that the placement places, over ``width`` features, the stream's unless given.

        Raises:
            NoTheory: the norm has no mean-field closure.
        """
        return self.once((width, initial_gain), lambda: self._around(width or self.spec.width, initial_gain))

    def _around(self, width: int, initial_gain: float) -> NormMap:
        spec = self.spec
        gain = () if initial_gain == 1 else (("initial_gain", initial_gain),)
        options = tuple(sorted(dict(spec.norm_options + gain).items()))
        return self._of(_norm_map(NORMS[spec.norm], spec.norm_eps, options, width))

    def inside(self, norm: InnerNorm, heads: int) -> NormMap:
        """Return a norm on what a matrix of attention gives for ``heads`` heads.

        Raises:
            NoTheory: the norm has no mean-field closure.
        """
        width = self.spec.features_per_head * (heads if norm.all_heads else 1)
        return self._of(_norm_map(norm.norm, norm.eps, norm.options, width))

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what ``make`` returned for this key, of what is the same in every layer of the model."""
        if key not in self._known:
            self._known[key] = make()
        found: T = self._known[key]
        return found

    def _of(self, norm: NormMap) -> NormMap:
        return norm if self.finite else replace(norm, directions=0)


@lru_cache(maxsize=64)
def _norm_map(norm: Norm, eps: float, options: Options, width: int) -> NormMap:
    if "per-token" not in norm.properties:
        raise NoTheory(f"norm {norm.name!r} takes statistics over a batch")
    known = {name: value for name, value in options if name in norm.options}
    module = norm.make(_PROBE, eps=eps, **known)
    gains, shifts = (_entries(module, name, width) for name in ("gain", "bias"))
    gain = _float(known.get("initial_gain", norm.options.get("initial_gain", 1.0)))
    if "scale-invariant" in norm.properties:
        centred = "shift-invariant" in norm.properties
        unit = {name: value for name, value in known.items() if name != "initial_gain"}
        scale = _scale(norm, unit, width)
        # A norm that only bounds the length from below does nothing with ε to a stream of ordinary size.
        adds = eps if _adds_eps(norm) else 0.0
        return NormMap(scale, adds, 1 + centred, centred, None, gain, width, gains, shifts)
    if "pointwise" in norm.properties:
        function = _Pointwise(norm, eps, tuple(sorted(known.items())))
        return NormMap(0.0, 0.0, 0, False, function, gain, width, gains, shifts)
    raise NoTheory(f"norm {norm.name!r} is neither scale-invariant nor pointwise")


def _entries(module: nn.Module, name: str, width: int) -> float:
    parameter = getattr(module, name, None)
    if not isinstance(parameter, nn.Parameter):
        return 0.0
    return 1.0 if parameter.numel() == _PROBE else parameter.numel() / width


def _float(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 1.0


def _scale(norm: Norm, options: Mapping[str, object], width: int) -> float:
    """Return the rms of what the norm returns; of unit vectors it falls with the width."""
    whole, half = (_rms(norm, options, features) for features in (_PROBE, _PROBE // 2))
    power = round(2 * float(np.log2(half / whole))) / 2
    return whole * float((_PROBE / width) ** power)


def _rms(norm: Norm, options: Mapping[str, object], width: int) -> float:
    x = torch.randn(8, width, generator=torch.Generator().manual_seed(0)) * 1e3
    with torch.no_grad():
        y = norm.make(width, eps=1e-12, **options)(x - x.mean(dim=-1, keepdim=True))
    return float(y.double().square().mean().sqrt())


@lru_cache(maxsize=64)
def _adds_eps(norm: Norm) -> bool:
    """Whether the norm divides by √(mean square + ε): asked with an input whose mean square is ε."""
    x = torch.randn(1, _PROBE, generator=torch.Generator().manual_seed(0))
    x = x - x.mean()
    x = x / x.square().mean().sqrt()
    with torch.no_grad():
        small, large = (float(norm.make(_PROBE, eps=eps)(x).square().mean()) for eps in (1.0, 1e-12))
    return abs(small / large - 0.5) < 0.01


@dataclass(frozen=True)
class _Pointwise:
    """A pointwise norm as a function of one number; equal ones share their tables."""

    norm: Norm
    eps: float
    options: tuple[tuple[str, object], ...]

    def __call__(self, x: Tensor) -> Tensor:
        module = self.norm.make(x.numel(), eps=self.eps, **dict(self.options)).double()
        y: Tensor = module(x.reshape(1, -1)).reshape(x.shape)
        return y
