"""How fast tangent vectors grow per block: local exponents, and the Lyapunov spectrum."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from normlab.jacobian.chaining import Chain
from normlab.jacobian.estimate import Estimate, half_log_of_mean, mean_of
from normlab.jacobian.evaluating import JacobianError
from normlab.jacobian.hutchinson import check_probes, draw, square


@dataclass(frozen=True)
class LocalExponent:
    """Growth through one block of tangent vectors that point nowhere in particular.

    The two differ: by Jensen's inequality a mean of logarithms lies below the logarithm of a mean, to second order by
    Var(ln ‖J v‖²)/4, which is :attr:`gap`. A mean-field theory predicts :attr:`root_mean_square`.

    Attributes:
        layer: ℓ, the block.
        root_mean_square: λ_ℓ = ½ ln(‖J_ℓ‖²_F/(n d)) = ½ ln APJN(ℓ−1 → ℓ), in nats.
        mean_log: the mean of ln(‖J_ℓ v‖/‖v‖) over random v.
        gap: Var(ln ‖J_ℓ v‖²)/4, by how much ``mean_log`` is expected to lie below.
    """

    layer: int
    root_mean_square: Estimate
    mean_log: Estimate
    gap: float


def local_exponents(
    blocks: Chain, *, probes: int = 8, law: str = "rademacher", seed: int = 0, level: float = 0.95
) -> tuple[LocalExponent, ...]:
    """Estimate λ_ℓ of every block, each with probes of its own, by products J_ℓ v.

    Args:
        blocks: the chain of blocks.
        probes: number of independent probes of a block, at least 2.
        law: the law of the probes, as in :func:`~normlab.jacobian.frobenius`.
        seed: of the probes.
        level: confidence level of the intervals (Student t over probes).

    Raises:
        JacobianError: fewer than two probes.
        UnknownNameError: another law.
    """
    check_probes(probes, law, level)
    found = []
    for place, block in enumerate(blocks.maps):
        drawn = draw(block.output.new_empty(block.input_shape), probes, law, seed * blocks.depth + place)
        gains = np.asarray([square(block.jvp(v)) / square(v) for v in drawn])
        logs = np.log(np.maximum(gains, np.finfo(float).tiny))
        rms, mean = half_log_of_mean(gains, level=level), mean_of(logs / 2, level=level)
        found.append(LocalExponent(place + 1, rms, mean, float(logs.var(ddof=1)) / 4))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class LyapunovSpectrum:
    """Growth rates of k tangent vectors that are carried through all blocks and kept orthogonal.

    Attributes:
        growth: ln |R_ii| in nats, of shape [frames, blocks, k]: by how much direction i grew in each block.
        exponents: (1/L) Σ_ℓ ln |R_ii|, mean over frames, in the order of the directions.
        se: standard errors over frames; NaN for one frame.
    """

    growth: np.ndarray
    exponents: np.ndarray
    se: np.ndarray

    @property
    def layers(self) -> np.ndarray:
        """Growth in each block, mean over frames, of shape [blocks, k]."""
        mean: np.ndarray = self.growth.mean(axis=0)
        return mean

    @property
    def layers_se(self) -> np.ndarray:
        """Standard errors of :attr:`layers` over frames; NaN for one frame."""
        return _standard_errors(self.growth)


def lyapunov_spectrum(blocks: Chain, *, k: int = 4, frames: int = 2, seed: int = 0) -> LyapunovSpectrum:
    """Carry k random orthonormal tangent vectors through the blocks, with a QR decomposition after each.

    J_ℓ Q_{ℓ−1} = Q_ℓ R_ℓ, and exponent i is the mean over blocks of ln |R_ii|. The sum of the first i exponents is the
    growth rate of an i-dimensional volume; with k = n d it is ln |det ∂x_L/∂x_0|/L exactly. The first blocks still turn
    the random vectors towards the directions that grow, so at finite depth the exponents lie closer together than
    (1/L) ln σ_i of the product: the first too low. Frames show how much the starting point matters.

    Source: Benettin, Galgani, Giorgilli and Strelcyn 1980, Meccanica 15.

    Args:
        blocks: the chain of blocks.
        k: number of directions.
        frames: number of independent random starts.
        seed: of the starts.

    Raises:
        JacobianError: k is not between 1 and the stream's number of entries, or there is no frame.
    """
    if not 1 <= k <= blocks.size or frames < 1:
        raise JacobianError(f"k is {k} and frames {frames}: give k from 1 to {blocks.size} and at least one frame")
    generator = torch.Generator().manual_seed(seed)
    growth = np.stack([_carried(blocks, _frame(blocks, k, generator)) for _ in range(frames)])
    totals = growth.mean(axis=1)
    return LyapunovSpectrum(growth, totals.mean(axis=0), _standard_errors(totals))


def _frame(blocks: Chain, k: int, generator: torch.Generator) -> Tensor:
    random = torch.randn(blocks.size, k, generator=generator, dtype=torch.float64).to(blocks.maps[0].output)
    frame: Tensor = torch.linalg.qr(random)[0]
    return frame


def _carried(blocks: Chain, frame: Tensor) -> np.ndarray:
    rows = []
    for block in blocks.maps:
        pushed = block.jvp_batch(frame.T.reshape(-1, *block.input_shape)).flatten(1).T
        frame, r = torch.linalg.qr(pushed)
        rows.append(r.diagonal().abs().double().cpu().numpy())
    with np.errstate(divide="ignore"):
        growth: np.ndarray = np.log(np.stack(rows))
    return growth


def _standard_errors(samples: np.ndarray) -> np.ndarray:
    if len(samples) < 2:
        return np.full(samples.shape[1:], np.nan)
    errors: np.ndarray = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    return errors
