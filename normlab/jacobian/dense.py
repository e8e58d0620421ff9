"""The whole Jacobian matrix, for sizes at which it can be formed."""

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.jacobian.linear_map import Function, JacobianError, LinearMap, linearised

LARGEST = 4096
_CHUNK = 64


def dense(function: Function, x: Float[Tensor, "*input"]) -> Float[Tensor, "rows columns"]:
    """Return the Jacobian of ``function`` at ``x``, entry (i, j) = ∂f_i/∂x_j, both flattened.

    Args:
        function: a module (copied to float64) or a callable that returns one tensor.
        x: the point.

    Raises:
        JacobianError: more than 4096 inputs or outputs; use ``frobenius`` or ``spectrum`` there.
    """
    with linearised(function, x) as jacobian:
        return formed(jacobian)


def formed(jacobian: LinearMap) -> Float[Tensor, "rows columns"]:
    """Return the matrix of a linear map, from the side that has fewer dimensions.

    Raises:
        JacobianError: more than 4096 inputs or outputs.
    """
    if max(jacobian.rows, jacobian.columns) > LARGEST:
        raise JacobianError(
            f"the Jacobian is {jacobian.rows} × {jacobian.columns}: a dense one may have at most {LARGEST} rows "
            f"and columns; use frobenius, spectral_norm or spectrum"
        )
    if jacobian.rows > jacobian.columns:
        return formed(jacobian.transposed).T
    shape, like = tuple(jacobian.output.shape), jacobian.output
    units = torch.eye(jacobian.rows, dtype=like.dtype, device=like.device)
    parts = [jacobian.vjp_batch(chunk.reshape(-1, *shape)).reshape(len(chunk), -1) for chunk in units.split(_CHUNK)]
    return torch.cat(parts)
