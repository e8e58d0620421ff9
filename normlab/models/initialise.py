"""Filling a model's weights by its recipe."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from normlab.inits import Init, Matrix
from normlab.models.linear import Linear
from normlab.models.transformer import Transformer
from normlab.where import Where


def initialise(model: Transformer, seed: int) -> None:
    """Fill every matrix of ``model`` from its own generator, in the order of the modules.

    Global random state is neither read nor changed. The numbers are drawn in float32 whatever the
    model's dtype, so that models of different dtypes start from the same weights.
    """
    spec = model.spec
    generator = torch.Generator().manual_seed(seed)
    for name in spec.stacks:
        embedding = model.stack(name).embedding
        for table in (embedding.token, embedding.position):
            if table is not None:
                _fill(table, embedding.std, generator)
    for linear, matrix in _matrices(model):
        std = spec.recipe.std(matrix, **dict(spec.init_options))
        fill_matrix(linear.weight, std, spec.recipe, generator)
        if linear.bias is not None:
            nn.init.zeros_(linear.bias)


def _matrices(model: Transformer) -> Iterator[tuple[Linear, Matrix]]:
    for name in model.spec.stacks:
        for _, sublayer in model.sublayers(name):
            for role, linear in sublayer.mixer.named_children():
                if isinstance(linear, Linear):
                    yield linear, _matrix(linear, role=role, where=sublayer.where)
    if not model.spec.tie_embeddings:
        yield model.head, _matrix(model.head, role="head", where=None)


def _matrix(linear: Linear, *, role: str, where: Where | None) -> Matrix:
    return Matrix(role=role, fan_in=linear.in_features, fan_out=linear.out_features, where=where)


def fill_matrix(weight: Tensor, std: float, recipe: Init, generator: torch.Generator) -> None:
    """Fill ``weight`` by the recipe's law; an orthogonal one is scaled to the root mean square ``std``."""
    if recipe.law == "orthogonal":
        _fill_orthogonal(weight, std, generator)
    else:
        _fill(weight, std, generator)


@torch.no_grad()
def _fill(weight: Tensor, std: float, generator: torch.Generator) -> None:
    drawn = weight if weight.dtype == torch.float32 else torch.empty(weight.shape, dtype=torch.float32)
    drawn.normal_(0.0, std, generator=generator)
    if drawn is not weight:
        weight.copy_(drawn)


@torch.no_grad()
def _fill_orthogonal(weight: Tensor, std: float, generator: torch.Generator) -> None:
    tall = torch.empty(max(weight.shape), min(weight.shape)).normal_(generator=generator)
    columns, triangle = torch.linalg.qr(tall)
    # The signs make it uniform over the orthogonal group (Mezzadri 2007).
    columns = columns * triangle.diagonal().sign()
    weight.copy_((columns if weight.shape == columns.shape else columns.T) * (std * len(columns) ** 0.5))
