"""Frobenius norm of a Jacobian from random probes."""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from normlab.errors import unknown_name
from normlab.jacobian.estimate import Estimate, root_of_mean
from normlab.jacobian.linear_map import Function, JacobianError, LinearMap, linearised


def frobenius(
    function: Function,
    x: Float[Tensor, "*input"],
    *,
    probes: int = 8,
    law: str = "rademacher",
    seed: int = 0,
    level: float = 0.95,
) -> Estimate:
    """Estimate ‖J‖_F of ``function`` at ``x`` by Hutchinson's method.

    For random v with E[v vᵀ] = I, E‖Jᵀ v‖² = tr(J Jᵀ) = ‖J‖²_F. With M = J Jᵀ of size m, one probe of
    ‖J‖²_F has the variance 2‖M‖²_F for Gaussian v, 2(‖M‖²_F − Σ M_ii²) for Rademacher signs, and
    2m/(m+2) · (‖M‖²_F − tr²(M)/m) for v uniform on the sphere of radius √m; the last two vanish where J is
    a multiple of an orthogonal matrix.

    Source: Hutchinson 1990, Communications in Statistics 19(2).

    Args:
        function: a module (copied to float64) or a callable that returns one tensor.
        x: the point.
        probes: number of independent probes, at least 2.
        law: the law of the probes: ``rademacher``, ``gaussian`` or ``sphere``.
        seed: of the probes.
        level: confidence level of the interval (Student t over probes).

    Returns:
        ``value`` estimates ‖J‖_F.

    Raises:
        JacobianError: fewer than two probes.
        UnknownNameError: another law.
    """
    check_probes(probes, law, level)
    with linearised(function, x) as jacobian:
        return frobenius_of(jacobian, probes=probes, law=law, seed=seed, level=level)


def frobenius_of(
    jacobian: LinearMap, *, probes: int = 8, law: str = "rademacher", seed: int = 0, level: float = 0.95
) -> Estimate:
    """Estimate ‖J‖_F of a linear map; the arguments are those of :func:`frobenius`.

    Raises:
        JacobianError: fewer than two probes.
        UnknownNameError: another law.
    """
    check_probes(probes, law, level)
    drawn = draw(jacobian.output, probes, law, seed)
    return root_of_mean(np.asarray([square(jacobian.vjp(probe)) for probe in drawn]), level=level)


def check_probes(probes: int, law: str, level: float) -> None:
    """Refuse too few probes, unknown laws and levels that are none.

    Raises:
        JacobianError: fewer than two probes, or a level that is not between 0 and 1.
        UnknownNameError: another law.
    """
    if not isinstance(probes, int) or probes < 2:
        raise JacobianError(f"probes is {probes}: give at least 2, since the interval needs a spread")
    if not 0 < level < 1:
        raise JacobianError(f"level is {level}: give the confidence level of the interval, between 0 and 1")
    if law not in LAWS:
        raise unknown_name("probe law", law, LAWS)


def draw(like: Tensor, probes: int, law: str, seed: int) -> Iterator[Tensor]:
    """Yield random v with E[v vᵀ] = I, of the shape, dtype and device of ``like``."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(probes):
        yield LAWS[law](like.shape, generator).to(like)


def square(v: Tensor) -> float:
    """Return ‖v‖², summed in float64."""
    return float(v.double().square().sum())


def _rademacher(shape: torch.Size, generator: torch.Generator) -> Tensor:
    return torch.randint(2, shape, generator=generator).double() * 2 - 1


def _gaussian(shape: torch.Size, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _sphere(shape: torch.Size, generator: torch.Generator) -> Tensor:
    v = _gaussian(shape, generator)
    return v.mul_(v.numel() ** 0.5 / float(torch.linalg.vector_norm(v)))


LAWS: Final[dict[str, Callable[[torch.Size, torch.Generator], Tensor]]] = {
    "rademacher": _rademacher,
    "gaussian": _gaussian,
    "sphere": _sphere,
}
