"""Singular values of a Jacobian: the largest ones without forming it, with residuals that prove them; or all."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse import linalg
from torch import Tensor

from normlab.jacobian.dense import formed
from normlab.jacobian.evaluating import NonFiniteJacobian
from normlab.jacobian.linear_map import Function, JacobianError, LinearMap, linearised
from normlab.jacobian.singular_values import Spectrum

# Below this size Lanczos iterations cost more than the whole matrix.
_DENSE = 256
# How closely it is looked whether a large singular value was missed.
_GLANCE = 1e-4
# What is left of a Jacobian whose rank is smaller than the number of singular values asked for.
_ROUNDING = 1e-13


def spectrum(
    function: Function, x: Float[Tensor, "*input"], *, k: int | None = 20, tolerance: float = 1e-5, seed: int = 0
) -> Spectrum:
    """Return the ``k`` largest singular values of the Jacobian of ``function`` at ``x``, or all of them.

    Lanczos iterations on J Jᵀ or JᵀJ, whichever is smaller, through products with J and Jᵀ, and again on what is left
    of it until nothing larger is; the matrix is formed only where it is small, or where all singular values are asked
    for.

    Args:
        function: a module (copied to float64) or a callable that returns one tensor.
        x: the point.
        k: how many; ``None`` for all, of a Jacobian of at most 4096 rows and columns.
        tolerance: relative accuracy of the squared singular values at which iterations stop.
        seed: of the starting vector.

    Raises:
        JacobianError: ``k`` exceeds the number of singular values, the iterations did not converge, the Jacobian is
            not finite, or the matrix would have to be formed and is too large.
    """
    with linearised(function, x) as jacobian:
        return spectrum_of(jacobian, k=k, tolerance=tolerance, seed=seed)


def spectral_norm(function: Function, x: Float[Tensor, "*input"], *, tolerance: float = 1e-8, seed: int = 0) -> float:
    """Return ‖J‖₂, the largest singular value of the Jacobian of ``function`` at ``x``.

    Raises:
        JacobianError: the iterations did not converge.
    """
    return float(spectrum(function, x, k=1, tolerance=tolerance, seed=seed).values[0])


def spectrum_of(jacobian: LinearMap, *, k: int | None = 20, tolerance: float = 1e-5, seed: int = 0) -> Spectrum:
    """Return singular values of a linear map; the arguments are those of :func:`spectrum`.

    Raises:
        JacobianError: as :func:`spectrum`.
    """
    size = min(jacobian.rows, jacobian.columns)
    if k is not None and not 1 <= k <= size:
        raise JacobianError(f"k is {k}: this Jacobian has {size} singular values; give 1 to {size}, or None for all")
    if k is None or k >= size - 1 or max(jacobian.rows, jacobian.columns) <= _DENSE:
        return _from_matrix(formed(jacobian).double(), size if k is None else k)
    if jacobian.rows < jacobian.columns:
        jacobian = jacobian.transposed
        found = _checked(jacobian, _right_vectors(jacobian, k, tolerance, seed))
        return Spectrum(found.values, found.residuals, found.shape[::-1])
    return _checked(jacobian, _right_vectors(jacobian, k, tolerance, seed))


def _from_matrix(matrix: Float[Tensor, "rows columns"], k: int) -> Spectrum:
    _check_finite(matrix)
    u, values, vh = torch.linalg.svd(matrix, full_matrices=False)
    errors = torch.linalg.vector_norm(matrix.T @ u - vh.T * values, dim=0)
    residuals = errors / values[0] if float(values[0]) else torch.zeros_like(errors)
    rows, columns = matrix.shape
    return Spectrum(values[:k].cpu().numpy(), residuals[:k].cpu().numpy(), (rows, columns))


def _right_vectors(jacobian: LinearMap, k: int, tolerance: float, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    start = random.standard_normal(jacobian.columns)
    image = jacobian.jvp(_tensor(start, jacobian))
    _check_finite(image)
    # Squares of what is far from 1 have no floating-point numbers.
    scale = _length(image) / float(np.linalg.norm(start))
    if not scale:
        return np.eye(jacobian.columns, k)  # J maps a random vector to 0: it is 0

    def gram(v: np.ndarray) -> np.ndarray:
        pulled = jacobian.vjp(jacobian.jvp(_tensor(v, jacobian)) / scale) / scale
        _check_finite(pulled)
        return pulled.double().flatten().cpu().numpy()

    squares, vectors = _lanczos(gram, start, k, tolerance)
    # Iterations from one vector may see one direction of several that are stretched alike: look at what is left.
    while True:
        rest, probe = _without(gram, vectors), random.standard_normal(jacobian.columns)
        start, rounding = rest(probe), _ROUNDING * squares[-1]
        if np.linalg.norm(start) <= rounding * np.linalg.norm(probe):
            return vectors
        left, _ = _lanczos(rest, start, 1, _GLANCE)
        if left[0] <= max(squares[0] * (1 + 2 * tolerance), rounding):
            return vectors
        more, others = _lanczos(rest, start, k, tolerance)
        squares, vectors = _largest(np.append(squares, more), np.hstack([vectors, others]), k)


def _lanczos(
    gram: Callable[[np.ndarray], np.ndarray], start: np.ndarray, k: int, tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ``k`` largest eigenvalues of a symmetric matrix, ascending, and their vectors."""
    size = len(start)
    operator = linalg.LinearOperator((size, size), matvec=gram, dtype=np.float64)
    try:
        squares, vectors = linalg.eigsh(operator, k=k, tol=tolerance, v0=start, ncv=min(size, 2 * k + 10))
    except linalg.ArpackNoConvergence as error:
        raise JacobianError(
            f"the {k} largest singular values did not converge to {tolerance:g}: "
            f"allow a larger tolerance or ask for fewer"
        ) from error
    return _largest(squares, vectors, k)


def _without(gram: Callable[[np.ndarray], np.ndarray], vectors: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    def rest(v: np.ndarray) -> np.ndarray:
        image = gram(v - vectors @ (vectors.T @ v))
        image -= vectors @ (vectors.T @ image)
        return image

    return rest


def _largest(squares: np.ndarray, vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(squares)[-k:]
    return squares[order], vectors[:, order]


def _length(v: Tensor) -> float:
    """Return ‖v‖, of which the squares may be too large or too small for floating-point numbers."""
    largest = float(v.abs().max())
    return largest * float(torch.linalg.vector_norm(v.double() / largest)) if largest else 0.0


def _check_finite(entries: Tensor) -> None:
    if not bool(torch.isfinite(entries).all()):
        raise NonFiniteJacobian("its Jacobian has entries that are not finite, and so no singular values")


def _tensor(v: np.ndarray, jacobian: LinearMap) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(v)).to(jacobian.output).reshape(jacobian.input_shape)


def _checked(jacobian: LinearMap, right: np.ndarray) -> Spectrum:
    """Singular values from right vectors, each with its residual."""
    values, residuals = [], []
    for column in right.T:
        v = _tensor(column, jacobian)
        image = jacobian.jvp(v)
        sigma = _length(image)
        back = jacobian.vjp(image / sigma).double() - sigma * v.double() if sigma else torch.zeros(1)
        values.append(sigma)
        residuals.append(_length(back))
    order = np.argsort(values)[::-1]
    largest = max(values) or 1.0
    return Spectrum(
        values=np.asarray(values)[order],
        residuals=np.asarray(residuals)[order] / largest,
        shape=(jacobian.rows, jacobian.columns),
    )
