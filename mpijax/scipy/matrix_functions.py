"""Functions of matrices: exponentials, roots, general functions, and Sylvester's equation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mpijax import lax
from mpijax import numpy as jnp
from mpijax.core import dtypes
from mpijax.numpy.util import promote_dtypes_inexact
from mpijax.scipy.factorizations import rsf2csf, schur
from mpijax.scipy.systems import inv, solve, solve_triangular
from mpijax.transforms.derivatives import jvp
from mpijax.transforms.jit import jit

_HIGHEST = lax.Precision.HIGHEST

# ---------------------------------------------------------------- exponential

# N. J. Higham, "The scaling and squaring method for the matrix exponential revisited" (2005): coefficients of the
# Pade approximants by their degree, and the 1-norms up to which each is as exact as the precision.
_PADE = {
    3: (120.0, 60.0, 12.0, 1.0),
    5: (30240.0, 15120.0, 3360.0, 420.0, 30.0, 1.0),
    7: (17297280.0, 8648640.0, 1995840.0, 277200.0, 25200.0, 1512.0, 56.0, 1.0),
    9: (17643225600.0, 8821612800.0, 2075673600.0, 302702400.0, 30270240.0, 2162160.0, 110880.0, 3960.0, 90.0, 1.0),
    13: (
        64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0,
        10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
    ),
}  # fmt: skip
_DOUBLE = ((1.495585217958292e-2, 2.53939833006323e-1, 9.504178996162932e-1, 2.097847961257068), 5.371920351148152)
_SINGLE = ((4.258730016922831e-1, 1.880152677804762), 3.92572478313866)


@jit(static_argnames=("upper_triangular", "max_squarings"))
def expm(A: Any, *, upper_triangular: bool = False, max_squarings: int = 16) -> Any:
    """Exponentials of matrices, by Pade approximants of A / 2^s that are squared s times.

    Args:
      A: matrices of shape [..., n, n].
      upper_triangular: whether A is upper triangular.
      max_squarings: the largest s; the result is NaN if A needs more squarings.

    Returns:
      Matrices with the shape of A.

    >>> mpijax.scipy.linalg.expm(jnp.array([[0.0, 2.0], [0.0, 0.0]])).round(4)
    Array([[1., 2.],
           [0., 1.]], dtype=float32)
    """
    (A,) = promote_dtypes_inexact(A)
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise ValueError(f"Expected A to be a (batched) square matrix, got A.shape={A.shape!r}.")
    if A.ndim > 2:
        one = partial(expm, upper_triangular=upper_triangular, max_squarings=max_squarings)
        return jnp.vectorize(one, signature="(n,n)->(n,n)")(A)
    numerator, denominator, squarings = _pade_terms(jnp.asarray(A))

    def compute(args):
        _, p, q = args
        root = solve_triangular(q, p) if upper_triangular else jnp.linalg.solve(q, p)
        return _squared(root, squarings, max_squarings)

    return lax.cond(
        squarings > max_squarings, lambda args: jnp.full_like(args[0], jnp.nan), compute, (A, numerator, denominator)
    )


@jit
def _pade_terms(A):
    """Numerator and denominator of the approximant, and the number of squarings."""
    norm = jnp.linalg.norm(A, 1)
    known = {"float64": _DOUBLE, "complex128": _DOUBLE, "float32": _SINGLE, "complex64": _SINGLE}
    if A.dtype.name not in known:
        raise TypeError(f"A.dtype={A.dtype} is not supported.")
    bounds, largest = known[A.dtype.name]
    squarings = jnp.maximum(0, jnp.floor(jnp.log2(norm / largest)))
    A = A / 2 ** squarings.astype(A.dtype)
    which = jnp.digitize(norm, jnp.array(bounds, dtype=norm.dtype))
    degrees = (3, 5, 7, 9, 13)[: len(bounds) + 1] if len(bounds) > 2 else (3, 5, 7)
    odd, even = lax.switch(which, [partial(_pade, _PADE[d]) for d in degrees], A)
    return odd + even, -odd + even, squarings


def _product(a, b):
    return jnp.dot(a, b, precision=_HIGHEST)


def _pade(b, A):
    """The odd and the even part of the polynomial with coefficients b."""
    one = jnp.eye(*A.shape, dtype=A.dtype)
    A2 = _product(A, A)
    if len(b) == 14:
        return _pade_13(b, A, A2, one)
    powers = [one, A2]
    while len(powers) < len(b) // 2:
        powers.append(_product(powers[-1], A2))
    odd = sum(c * p for c, p in reversed(list(zip(b[1::2], powers, strict=True))))
    even = sum(c * p for c, p in reversed(list(zip(b[0::2], powers, strict=True))))
    return _product(A, odd), even


def _pade_13(b, A, A2, one):
    """The approximant of degree 13, with six products."""
    A4 = _product(A2, A2)
    A6 = _product(A4, A2)
    odd = _product(A6, b[13] * A6 + b[11] * A4 + b[9] * A2) + b[7] * A6 + b[5] * A4 + b[3] * A2 + b[1] * one
    even = _product(A6, b[12] * A6 + b[10] * A4 + b[8] * A2) + b[6] * A6 + b[4] * A4 + b[2] * A2 + b[0] * one
    return _product(A, odd), even


@partial(jit, static_argnums=(2,))
def _squared(root, squarings, max_squarings):
    """Repeated squaring, with a fixed number of steps, so that reverse mode works."""

    def step(x, i):
        return lax.cond(i < squarings, lambda x: _product(x, x), lambda x: x, x), None

    out, _ = lax.scan(step, root, jnp.arange(max_squarings, dtype=squarings.dtype))
    return out


@jit(static_argnames=("method", "compute_expm"))
def expm_frechet(A: Any, E: Any, *, method: str | None = None, compute_expm: bool = True) -> Any:
    """The derivative of `expm` at A in the direction E.

    Args:
      A, E: matrices of shape [..., n, n].
      method: has no effect.
      compute_expm: return (expm(A), derivative) instead of the derivative.

    >>> direction = jnp.array([[0.0, 1.0], [2.0, 0.0]])
    >>> mpijax.scipy.linalg.expm_frechet(jnp.zeros((2, 2)), direction, compute_expm=False).round(4)
    Array([[0., 1.],
           [2., 0.]], dtype=float32)
    """
    A, E = jnp.asarray(A), jnp.asarray(E)
    for name, x in (("A", A), ("E", E)):
        if x.ndim < 2 or x.shape[-2] != x.shape[-1]:
            raise ValueError(f"expected {name} to be a (batched) square matrix, got {name}.shape={x.shape}")
    if A.shape != E.shape:
        raise ValueError(f"expected A and E to be the same shape, got A.shape={A.shape} E.shape={E.shape}")
    value, derivative = jvp(partial(expm, upper_triangular=False, max_squarings=16), (A,), (E,))
    return (value, derivative) if compute_expm else derivative


# ---------------------------------------------------------------- square root


def sqrtm(A: Any, blocksize: int = 1) -> Any:
    """The principal square root of a matrix of shape [n, n], by its Schur form. The result is complex.

    >>> mpijax.scipy.linalg.sqrtm(jnp.array([[4.0, 0.0], [0.0, 9.0]])).real.round(4)
    Array([[2., 0.],
           [0., 3.]], dtype=float32)
    """
    if blocksize > 1:
        raise NotImplementedError("Blocked version is not implemented yet.")
    return _sqrtm(A)


@jit
def _sqrtm(A):
    T, Z = schur(A, output="complex")
    root = _sqrtm_triangular(T)
    return jnp.matmul(jnp.matmul(Z, root, precision=_HIGHEST), jnp.conj(Z.T), precision=_HIGHEST)


@jit
def _sqrtm_triangular(T):
    """The upper triangular U with U U = T, computed column by column, each from the diagonal upwards.

    A. Bjorck, S. Hammarling, "A Schur method for the square root of a matrix" (1983).
    """
    diagonal = jnp.sqrt(jnp.diag(T))
    n = diagonal.size
    index = jnp.arange(n)

    def element(step, data):
        j, U = data
        i = j - 1 - step
        between = (index > i) & (index < j)
        known = jnp.sum(jnp.where(between, U[i, :] * U[:, j], 0.0))
        value = jnp.where(T[i, j] == known, 0.0, (T[i, j] - known) / (diagonal[i] + diagonal[j]))
        return j, U.at[i, j].set(value)

    def column(j, U):
        return lax.fori_loop(0, j, element, (j, U))[1]

    return lax.fori_loop(0, n, column, jnp.diag(diagonal))


# ---------------------------------------------------------------- any function


def funm(A: Any, func: Callable[[Any], Any], disp: bool = True) -> Any:
    """A function of a matrix of shape [n, n] with distinct eigenvalues, by its complex Schur form.

    Args:
      func: the function, of an array of eigenvalues.
      disp: if False, also return an estimate of the relative error.

    Returns:
      The complex matrix, or (matrix, error).

    >>> mpijax.scipy.linalg.funm(jnp.array([[1.0, 0.0], [0.0, 4.0]]), jnp.sqrt).real.round(4)
    Array([[1., 0.],
           [0., 2.]], dtype=float32)
    """
    A = jnp.asarray(A)
    if A.ndim != 2 or A.shape[0] != A.shape[1]:
        raise ValueError("expected square array_like input")
    T, Z = rsf2csf(*schur(A))
    F = jnp.diag(func(jnp.diag(T))).astype(T.dtype)
    F, smallest = _parlett(F, T)
    F = Z @ F @ Z.conj().T
    if disp:
        return F
    tol = dtypes.finfo(F.dtype).eps
    smallest = jnp.where(smallest == 0.0, tol, smallest)
    error = jnp.minimum(1, jnp.maximum(tol, (tol / smallest) * jnp.linalg.norm(jnp.triu(T, 1), 1)))
    return F, jnp.where(jnp.any(jnp.isinf(F)), jnp.inf, error)


@jit
def _parlett(F, T):
    """The function of an upper triangular matrix from its diagonal, diagonal by diagonal, and the smallest difference
    of eigenvalues that was divided by.

    G. H. Golub, C. F. Van Loan, "Matrix Computations", algorithm 11.1.1.
    """
    n = T.shape[0]
    index = jnp.arange(n)

    def element(i, data):
        p, F, smallest = data
        j = i + p
        between = (index > i) & (index < j)
        s = T[i, j] * (F[j, j] - F[i, i])
        left = jnp.where(between, T[i], 0) @ jnp.where(between, F[:, j], 0)
        s = s + left - jnp.where(between, F[i], 0) @ jnp.where(between, T[:, j], 0)
        gap = T[j, j] - T[i, i]
        F = F.at[i, j].set(jnp.where(gap != 0, s / gap, s))
        return p, F, jnp.minimum(smallest, jnp.abs(gap))

    def diagonal(p, data):
        _, F, smallest = lax.fori_loop(0, n - p, element, (p, *data))
        return F, smallest

    return lax.fori_loop(1, n, diagonal, (F, jnp.abs(T[0, 0])))


# ---------------------------------------------------------------- Sylvester


@jit(static_argnames=("method",))
def solve_sylvester(A: Any, B: Any, C: Any, *, method: str = "schur", tol: float = 1e-8) -> Any:
    """The X with A X + X B = C.

    Args:
      A, B, C: matrices of shapes [..., m, m], [..., n, n] and [..., m, n].
      method: "schur" or "eigen".
      tol: the result is NaN if the sum of an eigenvalue of A and an eigenvalue of B is smaller.

    >>> mpijax.scipy.linalg.solve_sylvester(jnp.eye(2), 2 * jnp.eye(2), jnp.array([[3.0, 6.0], [9.0, 12.0]])).round(4)
    Array([[1., 2.],
           [3., 4.]], dtype=float32)
    """
    A, B, C = promote_dtypes_inexact(jnp.asarray(A), jnp.asarray(B), jnp.asarray(C))
    m, n = C.shape[-2:]
    if A.shape[-2:] != (m, m) or B.shape[-2:] != (n, n):
        raise ValueError(f"Incompatible shapes for Sylvester equation:\nA: {A.shape}\nB: {B.shape}\nC: {C.shape}")
    one = partial(_sylvester, method=method, tol=tol)
    return jnp.vectorize(one, signature="(m,m),(n,n),(m,n)->(m,n)")(A, B, C)


def _sylvester(A, B, C, *, method, tol):
    if method == "schur":
        R, U = schur(A, output="complex")
        S, V = schur(B.conj().T, output="complex")
        X = U @ _sylvester_triangular(R, S.conj().T, U.conj().T @ C.astype(R.dtype) @ V) @ V.conj().T
    elif method == "eigen":
        (a, U), (b, V) = jnp.linalg.eig(A), jnp.linalg.eig(B)
        X = U @ (solve(U, C.astype(a.dtype) @ V) / (a[:, None] + b[None, :])) @ inv(V)
    else:
        raise ValueError(f'Unrecognized method {method}. The two valid methods are either "schur" or "eigen".')
    if not dtypes.issubdtype(C.dtype, np.complexfloating):
        X = X.real
    sums = jnp.abs(jnp.linalg.eigvals(A)[:, None] + jnp.linalg.eigvals(B)[None, :])
    return jnp.where(jnp.any(sums < tol), jnp.nan, X)


def _sylvester_triangular(R, S, F):
    """Solves R Y + Y S = F with R upper and S lower triangular, element by element, beginning with the last."""
    m, n = F.shape
    rows, columns = jnp.arange(m), jnp.arange(n)

    def element(Y, position):
        i, j = position // n, position % n
        known = jnp.sum(jnp.where(rows > i, R[i, :] * Y[:, j], 0.0)) + jnp.sum(
            jnp.where(columns > j, Y[i, :] * S[:, j], 0.0)
        )
        return Y.at[i, j].set((F[i, j] - known) / (R[i, i] + S[j, j])), None

    return lax.scan(element, jnp.zeros_like(F), jnp.arange(m * n - 1, -1, -1))[0]
