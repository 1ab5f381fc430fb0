"""Factorizations and eigenvalues of `numpy.linalg`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpijax import lax
from mpijax.lax import linalg
from mpijax.numpy.indexing.take import take_along_axis
from mpijax.numpy.shapes.reshape import matrix_transpose
from mpijax.numpy.ufuncs.complexes import conjugate
from mpijax.numpy.util import ensure_arraylike, promote_dtypes_inexact
from mpijax.ops.linalg.orthogonal import geqrf
from mpijax.transforms.jit import jit


class EighResult(NamedTuple):
    """Real eigenvalues in ascending order, and eigenvectors in columns."""

    eigenvalues: Any
    eigenvectors: Any


class EigResult(NamedTuple):
    """Complex eigenvalues, and eigenvectors in columns."""

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """A = Q R."""

    Q: Any
    R: Any


class SVDResult(NamedTuple):
    """A = U diag(S) Vh."""

    U: Any
    S: Any
    Vh: Any


def adjoint(x: Any) -> Any:
    """The conjugate transpose of each matrix."""
    return conjugate(matrix_transpose(x))


def inexact(name: str, x: Any) -> Any:
    """x as an Array of floats or complex numbers. Raises TypeError with the name of the function if x is not an
    array."""
    (x,) = promote_dtypes_inexact(ensure_arraylike(f"jnp.linalg.{name}", x))
    return x


@jit(static_argnames=("upper", "symmetrize_input"))
def cholesky(a: Any, *, upper: bool = False, symmetrize_input: bool = True) -> Any:
    """The lower triangular L with L L^H = a, or its conjugate transpose if `upper`.

    Args:
      a: Hermitian positive definite matrices of shape [..., n, n].
      symmetrize_input: use (a + a^H) / 2; otherwise, only the lower triangle of a is read.

    Returns:
      Matrices with the shape of a. A matrix that is not positive definite gives NaN.

    Raises:
      TypeError, ValueError: the shape of a is not [..., n, n].

    >>> jnp.linalg.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]])).tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    factor = linalg.cholesky(inexact("cholesky", a), symmetrize_input=symmetrize_input)
    return factor.mT.conj() if upper else factor


@jit(static_argnames=("full_matrices", "compute_uv", "hermitian", "subset_by_index"))
def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Any:
    """Singular value decomposition, a = U diag(s) Vh.

    Args:
      a: matrices of shape [..., m, n].
      full_matrices: U has the shape [..., m, m] and Vh [..., n, n]; otherwise [..., m, k] and [..., k, n] with k =
        min(m, n).
      compute_uv: whether to return U and Vh.
      hermitian: whether a is Hermitian; then `svd` uses `eigh`.
      subset_by_index: None, or (0, min(m, n)); both mean all singular values.

    Returns:
      SVDResult(U, S, Vh), or only S, of shape [..., k], in descending order.

    Raises:
      TypeError: a has fewer than two axes.
      ValueError: a subset together with `full_matrices`.
      NotImplementedError: another subset.

    >>> jnp.linalg.svd(np.diag([3.0, 2.0]), compute_uv=False).round(4).tolist()
    [3.0, 2.0]
    """
    a = inexact("svd", a)
    if hermitian:
        return _hermitian_svd(a, compute_uv, subset_by_index)
    found = linalg.svd(a, full_matrices=full_matrices, compute_uv=compute_uv, subset_by_index=subset_by_index)
    return SVDResult(*found) if compute_uv else found


def _hermitian_svd(a, compute_uv, subset_by_index):
    """Singular values are the absolute values of the eigenvalues; Vh gets their signs."""
    vectors, values = linalg.eigh(a, subset_by_index=subset_by_index)
    s = lax.abs(values)
    last = s.ndim - 1
    if not compute_uv:
        return lax.rev(lax.sort(s, dimension=-1), dimensions=[last])
    order = lax.broadcasted_iota(np.dtype(np.uint32), s.shape, dimension=last)
    s, order, sign = lax.sort((s, order, lax.sign(values)), dimension=-1, num_keys=1)
    s, order, sign = (lax.rev(x, dimensions=[last]) for x in (s, order, sign))
    u = take_along_axis(vectors, order[..., None, :], axis=-1)
    return SVDResult(u, s, adjoint(u * sign[..., None, :].astype(u.dtype)))


def svdvals(x: Any, /) -> Any:
    """The singular values of matrices of shape [..., m, n], in descending order; the result has the shape [..., min(m,
    n)].

    Raises:
      TypeError: x has fewer than two axes.

    >>> jnp.linalg.svdvals(np.diag([3.0, 2.0])).round(4).tolist()
    [3.0, 2.0]
    """
    x = ensure_arraylike("jnp.linalg.svdvals", x)
    return svd(x, compute_uv=False, hermitian=False)


@jit(static_argnames=("mode",))
def qr(a: Any, mode: str = "reduced") -> Any:
    """QR factorization, a = Q R.

    Args:
      a: matrices of shape [..., m, n].
      mode: "reduced": Q has the shape [..., m, k] and R [..., k, n] with k = min(m, n). "complete": [..., m, m] and
        [..., m, n]. "r": only R. "raw": LAPACK's matrices with reflectors, transposed, and their factors.

    Returns:
      QRResult(Q, R), or R.

    Raises:
      TypeError: a has fewer than two axes.
      ValueError: an unknown mode.

    >>> abs(jnp.linalg.qr(np.array([[3.0], [4.0]])).R).tolist()
    [[5.0]]
    """
    a = inexact("qr", a)
    if mode == "raw":
        factors, taus = geqrf(a)
        return QRResult(factors.mT, taus)
    if mode not in ("reduced", "r", "full", "complete"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}'")
    q, r = linalg.qr(a, pivoting=False, full_matrices=mode == "complete")
    return r if mode == "r" else QRResult(q, r)


def eig(a: Any) -> EigResult:
    """Eigenvalues and eigenvectors of square matrices.

    Args:
      a: matrices [..., n, n].

    Returns:
      EigResult(eigenvalues, eigenvectors): complex, of shape [..., n], in no particular order; and of shape [..., n,
      n], with vectors of length 1 in columns.

    Raises:
      TypeError: a has fewer than two axes.
      ValueError: its matrices are not square.

    >>> jnp.linalg.eig(np.diag([1.0, 2.0])).eigenvalues.tolist()
    [(1+0j), (2+0j)]
    """
    values, vectors = linalg.eig(inexact("eig", a), compute_left_eigenvectors=False)
    return EigResult(values, vectors)


@jit
def eigvals(a: Any) -> Any:
    """Eigenvalues of square matrices of shape [..., n, n]: complex, of shape [..., n], in no particular order.

    Raises:
      TypeError, ValueError: as for `eig`.

    >>> jnp.linalg.eigvals(np.array([[0.0, 1.0], [-1.0, 0.0]])).tolist()
    [1j, -1j]
    """
    a = inexact("eigvals", a)
    return linalg.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0]


@jit(static_argnames=("UPLO", "symmetrize_input"))
def eigh(a: Any, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:
    """Eigenvalues and eigenvectors of Hermitian matrices.

    Args:
      a: matrices [..., n, n].
      UPLO: the triangle that is read unless `symmetrize_input`: "L" (also None) or "U".
      symmetrize_input: use (a + a^H) / 2.

    Returns:
      EighResult(eigenvalues, eigenvectors): real, of shape [..., n], in ascending order; and orthonormal columns, of
      shape [..., n, n].

    Raises:
      ValueError: an unknown `UPLO`.
      TypeError, ValueError: the shape of a is not [..., n, n].

    >>> jnp.linalg.eigh(np.diag([2.0, 1.0])).eigenvalues.tolist()
    [1.0, 2.0]
    """
    if UPLO not in (None, "L", "U"):
        raise ValueError(f"UPLO must be one of None, 'L', or 'U', got {UPLO}")
    a = inexact("eigh", a)
    vectors, values = linalg.eigh(a, lower=UPLO != "U", symmetrize_input=symmetrize_input)
    return EighResult(values, vectors)


@jit(static_argnames=("UPLO", "symmetrize_input"))
def eigvalsh(a: Any, UPLO: str | None = "L", *, symmetrize_input: bool = True) -> Any:
    """Eigenvalues of Hermitian matrices of shape [..., n, n]: real, of shape [..., n], in ascending order. The
    arguments are those of `eigh`.

    Raises:
      ValueError, TypeError: as for `eigh`.

    >>> jnp.linalg.eigvalsh(np.diag([2.0, 1.0])).tolist()
    [1.0, 2.0]
    """
    values, _ = eigh(inexact("eigvalsh", a), UPLO, symmetrize_input=symmetrize_input)
    return values
