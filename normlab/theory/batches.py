"""The pairs of tokens that a model reads of a batch, given or random."""

from dataclasses import replace
from typing import TypeAlias

from jaxtyping import Int
from torch import Tensor

from normlab.errors import SpecError
from normlab.models.transformer import shifted
from normlab.spec import ModelSpec
from normlab.theory.geometry import Geometry, of_batch, of_random

Batch: TypeAlias = int | tuple[Int[Tensor, "batch token"], Int[Tensor, "batch token"]]


def geometry_of(spec: ModelSpec, batch: Batch, tokens: int) -> Geometry:
    """Return the pairs of tokens of a batch; those of an encoder-decoder are its decoder's, with their source (C1).

    Args:
        spec: the model.
        batch: a number of random sequences, or tokens and targets.
        tokens: positions of a random sequence.

    Raises:
        SpecError: the batch has no tokens.
    """
    decodes = spec.kind == "encoder-decoder"
    if isinstance(batch, tuple):
        source = of_batch(*batch)
        return replace(of_batch(shifted(batch[1]), batch[1]), source=source) if decodes else source
    if batch < 1 or tokens < 1:
        raise SpecError(f"a batch of {batch} sequences of {tokens} tokens: give whole numbers of at least 1")
    source = of_random(batch, tokens, spec.vocab)
    return _decoded(source) if decodes else source


def _decoded(source: Geometry) -> Geometry:
    """A decoder reads the same token first in every sequence."""
    equal = source.equal_inputs.copy()
    equal[:, 0, 0] = 1.0
    return replace(source, equal_inputs=equal, source=source)
