"""Jacobian measurements as rows of the table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd
from torch import nn

from normlab.errors import unknown_name
from normlab.jacobian.chaining import Chain, chain
from normlab.jacobian.estimate import Estimate
from normlab.jacobian.evaluating import JacobianError, NonFiniteJacobian
from normlab.jacobian.extremal import spectrum_of
from normlab.jacobian.hutchinson import frobenius_of
from normlab.jacobian.linear_map import LinearMap, linearised
from normlab.jacobian.lyapunov import local_exponents, lyapunov_spectrum
from normlab.jacobian.model_parts import Parts
from normlab.jacobian.part import Part, TokenPart
from normlab.jacobian.propagation import apjns
from normlab.jacobian.singular_values import Spectrum
from normlab.table import from_rows

Row: TypeAlias = dict[str, Any]

#: What can be measured between layers: the table's quantities, in its order.
MEASURED: Final = ("apjn", "singular_value", "lyapunov")


def measure(
    model: nn.Module | Parts,
    batch: Any = None,
    *,
    stack: str = "",
    quantities: Sequence[str] = MEASURED,
    probes: int = 8,
    law: str = "rademacher",
    k: int = 4,
    directions: int = 0,
    seed: int = 0,
    cell: Mapping[str, object] | None = None,
) -> pd.DataFrame:
    """Measure the Jacobians between the layers of a model on one batch.

    ==================  ============================  ===============================================================
    quantity            ``layer`` → ``to_layer``      value
    ==================  ============================  ===============================================================
    ``apjn``            every ℓ → L                   ‖∂x_L/∂x_ℓ‖²_F/(n d), Hutchinson's estimate with its ``se``
    ``lyapunov``        ℓ−1 → ℓ                       ½ ln(‖J_ℓ‖²_F/(n d)); with ``name`` ``mean log`` the mean of
                                                      ln(‖J_ℓ v‖/‖v‖), which lies lower
    ``lyapunov``        0 → L, ``name`` ``qr 001`` .. the Lyapunov spectrum by QR, where ``directions`` are asked for
    ``singular_value``  ℓ−1 → ℓ, ``name`` ``001`` ... the ``k`` largest of block ℓ
    ==================  ============================  ===============================================================

    Args:
        model: any module with a residual stream; it is copied to float64 and not changed. Or its :func:`parts`, which
            know batch and stack.
        batch: a tensor, a tuple of positional arguments or a dictionary of keyword arguments.
        stack: ``decoder`` or ``encoder``; the last one unless given.
        quantities: which of them.
        probes: random probes of each estimate.
        law: the law of the probes, as in :func:`~normlab.jacobian.frobenius`.
        k: singular values of a block, or as many as there are.
        directions: directions of the Lyapunov spectrum; 0 for none.
        seed: of the probes.
        cell: columns that say what was measured, such as ``spec.columns()``.

    What is not finite has rows with the status ``nonfinite``.

    Raises:
        JacobianError: the model has no chain of blocks, draws random numbers or updates running statistics; more
            directions than the stream has entries.
        UnknownNameError: an unknown quantity.
    """
    for name in quantities:
        if name not in MEASURED:
            raise unknown_name("Jacobian quantity", name, MEASURED)
    found = model if isinstance(model, Parts) else Parts(model, batch, stack=stack)
    with chain(found) as blocks:
        if not 0 <= directions <= blocks.size:
            raise JacobianError(
                f"directions is {directions}: the stream has {blocks.size} entries, so give 0 to {blocks.size}"
            )
        rows = list(_rows(blocks, quantities, probes=probes, law=law, k=k, directions=directions, seed=seed))
    named = {"stack": blocks.stack, "dtype": blocks.maps[0].dtype_name}
    return from_rows([named | row for row in rows], {"depth": blocks.depth} | dict(cell or {}))


def _rows(
    blocks: Chain, quantities: Sequence[str], *, probes: int, law: str, k: int, directions: int, seed: int
) -> Iterator[Row]:
    if "apjn" in quantities:
        for layer, found in enumerate(apjns(blocks, probes=probes, law=law, seed=seed)):
            yield {"layer": layer, "to_layer": blocks.depth, "quantity": "apjn", **_estimated(found)}
    if "singular_value" in quantities:
        for layer, block in enumerate(blocks.maps):
            at: Row = {"layer": layer, "to_layer": layer + 1}
            yield from _values(at, _largest(block, min(k, block.rows), seed))
    if "lyapunov" in quantities:
        for local in local_exponents(blocks, probes=probes, law=law, seed=seed):
            at = {"layer": local.layer - 1, "to_layer": local.layer, "quantity": "lyapunov"}
            yield at | _estimated(local.root_mean_square)
            yield at | _estimated(local.mean_log) | {"name": "mean log"}
    if "lyapunov" in quantities and directions:
        carried = lyapunov_spectrum(blocks, k=directions, frames=2, seed=seed)
        for number, (value, se) in enumerate(zip(carried.exponents, carried.se, strict=True), 1):
            name = f"qr {number:03d}"
            at = {"layer": 0, "to_layer": blocks.depth, "quantity": "lyapunov", "name": name}
            yield at | _valued(float(value)) | {"se": float(se)}


@dataclass(frozen=True, eq=False)
class Examination:
    """What was found about one part of a model.

    Attributes:
        name: of the part.
        norm: ‖J‖_F, estimated.
        spectrum: its largest singular values, or all.
        dtype: the one with the fewest digits that was computed with.
        agreement: of J v and Jᵀu, as in :class:`~normlab.jacobian.LinearMap`.
    """

    name: str
    norm: Estimate
    spectrum: Spectrum
    dtype: str = "float64"
    agreement: float = float("nan")

    def rows(self) -> Iterator[Row]:
        """Yield rows of the table, with the part's name: ``apjn`` is ‖J‖²_F over the entries of the output."""
        entries = self.spectrum.shape[0]
        apjn = {"value": self.norm.value**2 / entries, "se": 2 * self.norm.value * self.norm.se / entries}
        yield {"quantity": "apjn", "name": self.name, "dtype": self.dtype} | apjn
        yield from _values({"dtype": self.dtype}, self.spectrum.values, f"{self.name} ")


def examine(
    part: Part | TokenPart, *, probes: int = 8, law: str = "rademacher", k: int | None = 4, seed: int = 0
) -> Examination:
    """Measure Frobenius norm and singular values of one part.

    Args:
        part: of :func:`~normlab.jacobian.parts`.
        probes: random probes of the norm.
        law: the law of the probes.
        k: how many singular values, or as many as there are; ``None`` for all, of at most 4096 rows and columns.
        seed: of the probes.

    Raises:
        JacobianError: the part has no Jacobian or one that is not finite, or is too large for all singular values.
    """
    with linearised(part, part.point) as jacobian:
        most = None if k is None else min(k, jacobian.rows, jacobian.columns)
        norm = frobenius_of(jacobian, probes=probes, law=law, seed=seed)
        values = spectrum_of(jacobian, k=most, seed=seed)
        return Examination(part.name, norm, values, jacobian.dtype_name, jacobian.agreement)


def _largest(block: LinearMap, k: int, seed: int) -> np.ndarray:
    try:
        return spectrum_of(block, k=k, seed=seed).values
    except NonFiniteJacobian:
        return np.full(k, np.nan)


def _values(at: Row, values: np.ndarray, prefix: str = "") -> Iterator[Row]:
    for number, value in enumerate(values, 1):
        # Zeros before the number, so that text sorts as numbers do.
        yield at | {"quantity": "singular_value", "name": f"{prefix}{number:03d}"} | _valued(float(value))


def _estimated(found: Estimate) -> Row:
    return _valued(found.value) | {"se": found.se}


def _valued(value: float) -> Row:
    if not np.isfinite(value):
        return {"value": float("nan"), "status": "nonfinite"}
    return {"value": value}
