"""Gains of the matrices of a sub-layer: g² = fan_in · σ² (equation W1 of ``docs/theory.md``)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from normlab.inits import Matrix
from normlab.spec import ModelSpec
from normlab.where import Where


@dataclass(frozen=True)
class Gains:
    """The matrices of a sub-layer.

    A matrix of independent entries of variance σ² multiplies a token's mean square by fan_in · σ² on its way
    forward, and the square of a gradient's length by the same number on its way back.

    Attributes:
        width: d.
        squared: g² by role.
        inputs: fan_in by role.
    """

    width: int
    squared: Mapping[str, float]
    inputs: Mapping[str, int]

    def __getitem__(self, role: str) -> Any:
        return self.squared[role]

    def fan_in(self, role: str) -> int:
        """Return the number of inputs of a matrix."""
        return self.inputs[role]


def gains(spec: ModelSpec, where: Where, shapes: Mapping[str, tuple[int, int]]) -> Gains:
    """Return the gains of the matrices of the sub-layer at ``where``, whose inputs and outputs are ``shapes``."""
    options, std = dict(spec.init_options), spec.recipe.std
    squared = {
        role: fan_in * std(Matrix(role=role, fan_in=fan_in, fan_out=fan_out, where=where), **options) ** 2
        for role, (fan_in, fan_out) in shapes.items()
    }
    return Gains(spec.width, squared, {role: fan_in for role, (fan_in, _) in shapes.items()})


def head_variance(spec: ModelSpec) -> float:
    """Return the variance of the head's entries."""
    if spec.tie_embeddings:
        return spec.embedding_scale(list(spec.stacks)[-1]).std ** 2
    matrix = Matrix(role="head", fan_in=spec.width, fan_out=spec.vocab, where=None)
    return float(spec.recipe.std(matrix, **dict(spec.init_options)) ** 2)
