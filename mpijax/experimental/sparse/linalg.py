"""``jax.experimental.sparse.linalg``: largest eigenvalues of an operator, and linear systems with a CSR matrix."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, NoReturn

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax import missing as _missing
from mpijax.core import dtypes
from mpijax.core.types.avals import ShapedArray
from mpijax.numpy.util import as_array, is_arraylike
from mpijax.ops.callbacks.host import pure_callback
from mpijax.transforms.api import eval_shape
from mpijax.transforms.jit import jit
from mpijax.tree_util import Partial

__all__ = ["lobpcg_standard", "spsolve"]

_times = partial(lax.dot, precision=lax.Precision.HIGHEST)


class _LobpcgState(NamedTuple):
    """One iteration of LOBPCG: eigenvalues and vectors so far, their last changes, A V - lambda V, the number found."""

    iteration: Any
    values: Any
    vectors: Any
    moves: Any
    residuals: Any
    found: Any


def lobpcg_standard(A: Any, X: Any, m: int = 100, tol: Any = None) -> tuple[Any, Any, Any]:
    """The k largest eigenvalues of a Hermitian matrix and their eigenvectors, by LOBPCG.

    Each iteration finds the best vectors in the span of the current vectors, their residuals and their last changes
    (Knyazev, SIAM J. Sci. Comput. 23, 2001, without a preconditioner). A QR factorization keeps these independent. Not
    differentiable.

    Args:
      A: a matrix of shape (n, n), or a function that multiplies an array of shape (n, j) by such a matrix.
      X: the start vectors, of shape (n, k), with 0 < 5 k < n.
      m: the largest number of iterations.
      tol: an eigenvalue has converged if |A v - lambda v| < 10 n tol (|A v| + lambda). None means the eps of the dtype.

    Returns:
      (eigenvalues of shape (k,), the largest first; eigenvectors of shape (n, k); number of iterations).

    Raises:
      ValueError: too many vectors for the matrix, no vector, or shapes or dtypes that do not match.

    >>> from mpijax.experimental.sparse import linalg
    >>> values, vectors, _ = linalg.lobpcg_standard(jnp.diag(jnp.arange(12.)), jnp.eye(12)[:, 3:5] + 1)
    >>> values
    Array([11., 10.], dtype=float32)
    """
    X = as_array(X)
    multiply = Partial(_times, as_array(A)) if is_arraylike(A) else Partial(A)
    _check_search(multiply, X)
    return _search(multiply, X, m, dtypes.finfo(X.dtype).eps if tol is None else tol)


def _check_search(multiply: Callable, X: Any) -> None:
    n, k = X.shape
    if k == 0:
        raise ValueError(f"must have search dim > 0, got {k}")
    if 5 * k >= n:
        raise ValueError(
            f"expected search dim * 5 < matrix dim (got {5 * k}, {n}). Use fewer vectors, or jnp.linalg.eigh"
        )
    product = eval_shape(multiply, ShapedArray((n, 1), X.dtype))
    if product.dtype != X.dtype:
        raise ValueError(f"A, X must have same dtypes (were {product.dtype}, {X.dtype})")
    if product.shape != (n, 1):
        raise ValueError(f"A must be ({n}, {n}) matrix A, got output {product.shape}")


@jit
def _search(multiply: Callable, X: Any, m: Any, tol: Any) -> tuple[Any, Any, Any]:
    n, k = X.shape

    def residuals_of(values, vectors):
        product = multiply(vectors)
        residuals = product - values[None] * vectors
        allowed = 10 * n * tol * (jnp.linalg.norm(product, axis=0) + values)
        return residuals, jnp.sum(jnp.linalg.norm(residuals, axis=0) < allowed)

    def iteration(now: _LobpcgState) -> _LobpcgState:
        basis, _ = jnp.linalg.qr(jnp.concatenate([now.vectors, now.moves, now.residuals], axis=1))
        values, weights = jnp.linalg.eigh(_times(basis.conj().T, multiply(basis)))
        values, weights = values[: -k - 1 : -1], weights[:, : -k - 1 : -1]
        # Columns k and on of the basis are orthogonal to the vectors so far.
        moves = _times(basis[:, k:], weights[k:])
        vectors = _times(basis, weights)
        return _LobpcgState(now.iteration + 1, values, vectors, moves, *residuals_of(values, vectors))

    def goes_on(now: _LobpcgState):
        return (now.iteration < m) & (now.found < k)

    vectors, _ = jnp.linalg.qr(X)
    values = jnp.sum(vectors.conj() * multiply(vectors), axis=0).real
    residuals, _ = residuals_of(values, vectors)
    start = _LobpcgState(0, values, vectors, jnp.zeros_like(vectors), residuals, 0)
    end = lax.while_loop(goes_on, iteration, start)
    return end.values, end.vectors, end.iteration


def spsolve(data: Any, indices: Any, indptr: Any, b: Any, tol: float = 1e-6, reorder: int = 1) -> Any:
    """Solve M x = b, where row i of M has the values data[indptr[i]:indptr[i + 1]] in the columns `indices` of there.

    Uses SciPy's sparse LU factorization, in a callback. It has derivatives with respect to `data` and `b`. `tol` and
    `reorder` (0 to 3) are for GPUs and have no effect.

    Args:
      data: (nse,)
      indices, indptr: integers of shape (nse,) and (n + 1,).
      b: right-hand side of shape (n,), with the dtype of `data`.

    Returns:
      x, of shape (n,).

    Raises:
      ValueError: shapes or dtypes that do not match.

    >>> from mpijax.experimental.sparse import linalg
    >>> data, columns, ends = jnp.array([2., 4., 1.]), jnp.array([0, 1, 0]), jnp.array([0, 1, 3])
    >>> linalg.spsolve(data, columns, ends, jnp.array([2., 9.]))
    Array([1., 2.], dtype=float32)
    """
    data, indices, indptr, b = map(as_array, (data, indices, indptr, b))
    _check_rows(data, indices, indptr, b, reorder)
    rows = jnp.searchsorted(indptr, jnp.arange(data.size), side="right") - 1

    def multiply(x):
        return jnp.zeros_like(b).at[rows].add(data * x[indices])

    def solve(transposed: bool, _multiply: Callable, right: Any) -> Any:
        return pure_callback(
            partial(_solve_on_host, transposed), right, data, indices, indptr, right, vmap_method="sequential"
        )

    return lax.custom_linear_solve(multiply, b, partial(solve, False), partial(solve, True))


def _solve_on_host(transposed: bool, *system: Any) -> np.ndarray:
    import scipy.sparse.linalg  # heavy

    data, indices, indptr, b = map(np.asarray, system)
    matrix = scipy.sparse.csr_array((data, indices, indptr), shape=(b.size, b.size))
    return scipy.sparse.linalg.spsolve((matrix.T if transposed else matrix).tocsc(), b).astype(b.dtype)


def _check_rows(data: Any, indices: Any, indptr: Any, b: Any, reorder: int) -> None:
    if data.dtype != b.dtype:
        raise ValueError(f"data types do not match: data.dtype={data.dtype} b.dtype={b.dtype}")
    if not all(dtypes.issubdtype(x.dtype, np.integer) for x in (indices, indptr)):
        raise ValueError(
            f"index arrays must be integer typed; got indices.dtype={indices.dtype} indptr.dtype={indptr.dtype}"
        )
    shapes = f"data.shape={data.shape} indices.shape={indices.shape} indptr.shape={indptr.shape} b.shape={b.shape}"
    if not data.ndim == indices.ndim == indptr.ndim == b.ndim == 1:
        raise ValueError(f"Arrays must be one-dimensional. Got {shapes}")
    if indptr.size != b.size + 1 or data.shape != indices.shape:
        raise ValueError(
            f"Invalid CSR buffer sizes: {shapes}: indptr must have one more element than b, and indices as many as data"
        )
    if reorder not in range(4):
        raise ValueError(f"reorder={reorder!r} not valid, must be one of [0, 1, 2, 3]")


def __getattr__(name: str) -> NoReturn:
    raise _missing.error(__name__, name)
