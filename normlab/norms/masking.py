"""Which tokens are real: what norms that pool a batch must know, and other norms need not.

A padding mask reaches these norms through a context, because nothing between the caller and them (blocks,
placements, recorders, a foreign model's code) has any use for it::

    with padding(tokens != PAD):
        model.loss(tokens, targets)

It acts on statistics only: a padded token is normalized like any other, with statistics it took no part in.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from normlab.errors import DataError

_REAL: ContextVar[Tensor | None] = ContextVar("_REAL", default=None)


@contextmanager
def padding(real: Shaped[Tensor, "batch token"]) -> Iterator[None]:
    """Within the context, statistics over a batch take only the tokens where ``real`` is true.

    Args:
        real: truth values, true where a token is not padding; of the shape of the tokens that the norms see.

    Raises:
        DataError: ``real`` does not hold truth values.
    """
    if real.dtype != torch.bool:
        raise DataError(f"a padding mask holds {real.dtype}: give a torch.bool mask that is true where a token is real")
    token = _REAL.set(real)
    try:
        yield
    finally:
        _REAL.reset(token)


def real_tokens(x: Float[Tensor, "*batch width"], norm: str) -> Float[Tensor, "count width"]:
    """Return the tokens of ``x`` that a batch's statistics are made of.

    Args:
        x: what the norm ``norm`` was given, in train mode.
        norm: its name, for messages.

    Raises:
        DataError: the padding mask has another shape, fewer than two tokens are real, or every sequence
            has a single token, as in generation.
    """
    if x.dim() > 2 and x.shape[-2] == 1:
        raise DataError(
            f"norm {norm!r} in train mode was given sequences of one token, as in generation: its statistics "
            f"run over whole sequences; give those, or call model.eval() to use the running statistics"
        )
    real = _REAL.get()
    if real is not None and real.shape != x.shape[:-1]:
        raise DataError(
            f"norm {norm!r} was given tokens of the shape {tuple(x.shape[:-1])} and a padding mask of the shape "
            f"{tuple(real.shape)}: give a mask of the shape of the tokens"
        )
    tokens = x.flatten(0, -2) if real is None else x[real]
    if len(tokens) < 2:
        raise DataError(
            f"norm {norm!r} in train mode was given {len(tokens)} tokens that are not padding: its statistics need "
            f"at least two; give more, or call model.eval() to use the running statistics"
        )
    return tokens
