"""Largest singular values of a Jacobian, with residuals that prove them."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse import linalg
from torch import Tensor

from normlab.jacobian.dense import formed
from normlab.jacobian.linear_map import Function, JacobianError, LinearMap, linearised

# Below this size Lanczos iterations cost more than the whole matrix.
_DENSE = 256


@dataclass(frozen=True)
class Spectrum:
    """Singular values of a Jacobian.

    Attributes:
        values: the k largest, descending.
        residuals: ‖Jᵀu − σv‖/σ₁ of each, with u = Jv/‖Jv‖: an eigenvalue of JᵀJ lies within
            residual · σ₁ · σ of σ².
        shape: rows and columns of the Jacobian.
    """

    values: np.ndarray
    residuals: np.ndarray
    shape: tuple[int, int]


def spectrum(
    function: Function, x: Float[Tensor, "*input"], *, k: int = 20, tolerance: float = 1e-5, seed: int = 0
) -> Spectrum:
    """Return the ``k`` largest singular values of the Jacobian of ``function`` at ``x``.

    Lanczos iterations on J Jᵀ or JᵀJ, whichever is smaller, through products with J and Jᵀ; the matrix is
    formed only where it is small.

    Args:
        function: a module (copied to float64) or a callable that returns one tensor.
        x: the point.
        k: how many.
        tolerance: relative accuracy of the squared singular values at which iterations stop.
        seed: of the starting vector.

    Raises:
        JacobianError: ``k`` exceeds the number of singular values, or the iterations did not converge.
    """
    with linearised(function, x) as jacobian:
        size = min(jacobian.rows, jacobian.columns)
        if not 1 <= k <= size:
            raise JacobianError(f"k is {k}: this Jacobian has {size} singular values; give 1 to {size}")
        small = max(jacobian.rows, jacobian.columns) <= _DENSE or k >= size - 1
        right = _right_vectors_dense(jacobian, k) if small else _right_vectors(jacobian, k, tolerance, seed)
        return _checked(jacobian, right)


def spectral_norm(function: Function, x: Float[Tensor, "*input"], *, tolerance: float = 1e-8, seed: int = 0) -> float:
    """Return ‖J‖₂, the largest singular value of the Jacobian of ``function`` at ``x``.

    Raises:
        JacobianError: the iterations did not converge.
    """
    return float(spectrum(function, x, k=1, tolerance=tolerance, seed=seed).values[0])


def _right_vectors_dense(jacobian: LinearMap, k: int) -> np.ndarray:
    _, _, vh = torch.linalg.svd(formed(jacobian).double(), full_matrices=False)
    return np.asarray(vh[:k].T.numpy())


def _right_vectors(jacobian: LinearMap, k: int, tolerance: float, seed: int) -> np.ndarray:
    dtype = jacobian.output.dtype

    def forward(v: np.ndarray) -> Tensor:
        return jacobian.jvp(torch.from_numpy(np.ascontiguousarray(v)).to(dtype).reshape(jacobian.input_shape))

    def gram(v: np.ndarray) -> np.ndarray:
        return jacobian.vjp(forward(v)).detach().double().flatten().numpy()

    operator = linalg.LinearOperator((jacobian.columns, jacobian.columns), matvec=gram, dtype=np.float64)
    start = np.random.default_rng(seed).standard_normal(jacobian.columns)
    try:
        _, vectors = linalg.eigsh(operator, k=k, tol=tolerance, v0=start, ncv=min(jacobian.columns, 2 * k + 10))
    except linalg.ArpackNoConvergence as error:
        raise JacobianError(
            f"the {k} largest singular values did not converge to {tolerance:g}: "
            f"allow a larger tolerance or ask for fewer"
        ) from error
    return np.asarray(vectors)


def _checked(jacobian: LinearMap, right: np.ndarray) -> Spectrum:
    """Singular values from right vectors, each with its residual."""
    dtype = jacobian.output.dtype
    values, residuals = [], []
    for column in right.T:
        v = torch.from_numpy(np.ascontiguousarray(column)).to(dtype).reshape(jacobian.input_shape)
        image = jacobian.jvp(v)
        sigma = float(torch.linalg.vector_norm(image.double()))
        back = jacobian.vjp(image).double() - sigma**2 * v.double()
        values.append(sigma)
        residuals.append(float(torch.linalg.vector_norm(back)) / sigma if sigma else 0.0)
    order = np.argsort(values)[::-1]
    largest = max(values) or 1.0
    return Spectrum(
        values=np.asarray(values)[order],
        residuals=np.asarray(residuals)[order] / largest,
        shape=(jacobian.rows, jacobian.columns),
    )
