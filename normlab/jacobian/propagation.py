"""Averaged partial Jacobian norms between layers, by products with one block after the other."""

import numpy as np

from normlab.jacobian.chaining import Chain
from normlab.jacobian.estimate import Estimate, mean_of
from normlab.jacobian.evaluating import JacobianError
from normlab.jacobian.hutchinson import check_probes, draw, square


def apjn(
    blocks: Chain,
    layer: int = 0,
    to_layer: int | None = None,
    *,
    probes: int = 8,
    law: str = "rademacher",
    seed: int = 0,
    level: float = 0.95,
) -> Estimate:
    """Estimate APJN(s → t) = ‖∂x_t/∂x_s‖²_F/(n d) of one model on one batch.

    ::

        with nl.jacobian.chain(nl.jacobian.parts(model, batch)) as blocks:
            nl.jacobian.apjn(blocks, 2, 7)

    The average over models is yours to take. n·d is the number of entries of the stream.

    Source: Doshi, He and Gromov 2023, arXiv 2206.13568.

    Args:
        blocks: the chain of blocks.
        layer: s, 0 for what the first block receives.
        to_layer: t, the last layer unless given.
        probes: number of independent probes, at least 2.
        law: the law of the probes, as in :func:`~normlab.jacobian.frobenius`.
        seed: of the probes.
        level: confidence level of the interval.

    Raises:
        JacobianError: not 0 ≤ s < t ≤ L, or fewer than two probes.
        UnknownNameError: another law.
    """
    end = blocks.depth if to_layer is None else to_layer
    blocks.between(layer, end)
    return apjns(blocks, end, probes=probes, law=law, seed=seed, level=level)[layer]


def apjns(
    blocks: Chain,
    to_layer: int | None = None,
    *,
    probes: int = 8,
    law: str = "rademacher",
    seed: int = 0,
    level: float = 0.95,
) -> tuple[Estimate, ...]:
    """Estimate APJN(s → t) for every s < t at once: a probe at t is pulled back through all blocks below it.

    The arguments are those of :func:`apjn`; estimates of different s share their probes.

    Raises:
        JacobianError: there is no such layer, or fewer than two probes.
        UnknownNameError: another law.
    """
    end = blocks.depth if to_layer is None else to_layer
    check_probes(probes, law, level)
    if not 1 <= end <= blocks.depth:
        raise JacobianError(f"to_layer is {end}: give 1 to {blocks.depth}")
    squares = np.empty((probes, end))
    for number, probe in enumerate(draw(blocks.maps[end - 1].output, probes, law, seed)):
        for layer in reversed(range(end)):
            probe = blocks.maps[layer].vjp(probe)
            squares[number, layer] = square(probe) / blocks.size
    return tuple(mean_of(column, level=level) for column in squares.T)
