"""Factorizations of `scipy.linalg`, with SciPy's arguments.

Arguments that allow SciPy to overwrite an operand, or to check for NaN, have no effect.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from mpijax import lax
from mpijax import numpy as jnp
from mpijax.core import dtypes
from mpijax.core.base import config
from mpijax.core.base.warn import warn_user
from mpijax.lax import linalg
from mpijax.numpy.util import promote_dtypes_complex, promote_dtypes_inexact
from mpijax.ops.linalg import orthogonal
from mpijax.transforms.jit import jit


def inexact(*xs: Any) -> list[Any]:
    return promote_dtypes_inexact(*map(jnp.asarray, xs))


def solve_signature(name: str, a: Any, b: Any) -> str:
    """Whether b holds vectors, for a solve with matrices a."""
    stacked = a.ndim == b.ndim + 1 and a.shape[-1] == b.shape[-1]
    if b.ndim > 1 and stacked:
        warn_user(
            f"jax.scipy.linalg.{name}: batched 1D solves with b.ndim > 1 are deprecated, and in the future will be "
            f"treated as a batched 2D solve. Use {name}(..., b[..., None]).squeeze(-1) to avoid this warning.",
            category=FutureWarning,
        )
    return "(n)->(n)" if b.ndim == 1 or stacked else "(n,k)->(n,k)"


# ---------------------------------------------------------------- Cholesky


@jit(static_argnames=("lower",))
def _cholesky(a, lower):
    (a,) = inexact(a)
    factor = linalg.cholesky(a if lower else jnp.conj(a.mT), symmetrize_input=False)
    return factor if lower else jnp.conj(factor.mT)


def cholesky(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The triangular factor of Hermitian positive definite matrices of shape [..., n, n].

    Returns:
      L with L L^H = a if `lower`, else R with R^H R = a. A matrix that is not positive definite gives NaN.

    >>> mpijax.scipy.linalg.cholesky(jnp.array([[4.0, 2.0], [2.0, 5.0]]))
    Array([[2., 1.],
           [0., 2.]], dtype=float32)
    """
    return _cholesky(a, lower)


def cho_factor(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Any, bool]:
    """(`cholesky(a, lower)`, lower), the first argument of `cho_solve`.

    >>> factor, lower = mpijax.scipy.linalg.cho_factor(jnp.array([[4.0, 2.0], [2.0, 5.0]]), lower=True)
    >>> factor, lower
    (Array([[2., 0.],
           [1., 2.]], dtype=float32), True)
    """
    return cholesky(a, lower=lower), lower


@jit(static_argnames=("lower",))
def _cho_solve(c, b, lower):
    c, b = inexact(c, b)
    signature = "(n,n)," + solve_signature("cho_solve", c, b)

    def half(transpose, b):
        solve = partial(
            linalg.triangular_solve, left_side=True, lower=lower, transpose_a=transpose, conjugate_a=transpose
        )
        return jnp.vectorize(solve, signature=signature)(c, b)

    return half(lower, half(not lower, b))


def cho_solve(c_and_lower: tuple[Any, bool], b: Any, overwrite_b: bool = False, check_finite: bool = True) -> Any:
    """The x with a x = b, from `cho_factor(a)`. b has the shape [n] or [..., n, k].

    >>> factor = mpijax.scipy.linalg.cho_factor(jnp.array([[4.0, 0.0], [0.0, 9.0]]))
    >>> mpijax.scipy.linalg.cho_solve(factor, jnp.array([4.0, 18.0]))
    Array([1., 2.], dtype=float32)
    """
    c, lower = c_and_lower
    return _cho_solve(c, b, lower)


# ---------------------------------------------------------------- eigenvalues, singular values


@jit(static_argnames=("full_matrices", "compute_uv"))
def _svd(a, *, full_matrices, compute_uv):
    (a,) = inexact(a)
    return linalg.svd(a, full_matrices=full_matrices, compute_uv=compute_uv)


def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Any:
    """Singular value decomposition: (U, s, Vh), or only s. See `numpy.linalg.svd`. `lapack_driver` has no effect.

    >>> mpijax.scipy.linalg.svd(jnp.array([[0.0, 2.0], [3.0, 0.0]]), compute_uv=False).round(4)
    Array([3., 2.], dtype=float32)
    """
    return _svd(a, full_matrices=full_matrices, compute_uv=compute_uv)


@jit(static_argnames=("lower", "eigvals_only", "eigvals", "type"))
def _eigh(a, b, lower, eigvals_only, eigvals, type):
    if b is not None:
        raise NotImplementedError("Only the b=None case of eigh is implemented")
    if type != 1:
        raise NotImplementedError("Only the type=1 case of eigh is implemented.")
    if eigvals is not None:
        raise NotImplementedError("Only the eigvals=None case of eigh is implemented.")
    (a,) = inexact(a)
    vectors, values = linalg.eigh(a, lower=lower)
    return values if eigvals_only else (values, vectors)


def eigh(
    a: Any,
    b: Any = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> Any:
    """Eigenvalues, in ascending order, and eigenvectors of Hermitian matrices of shape [..., n, n]; or only the
    eigenvalues.

    Raises NotImplementedError for generalized problems (`b`, `type`) and ranges (`eigvals`).

    >>> mpijax.scipy.linalg.eigh(jnp.array([[2.0, 1.0], [1.0, 2.0]]), eigvals_only=True).round(4)
    Array([1., 3.], dtype=float32)
    """
    return _eigh(a, b, lower, eigvals_only, eigvals, type)


@jit(static_argnames=("output",))
def _schur(a, output):
    return linalg.schur(a.astype(dtypes.to_complex_dtype(a.dtype)) if output == "complex" else a)


def schur(a: Any, output: str = "real") -> tuple[Any, Any]:
    """The Schur form a = Z T Z^H: (T, Z), matrices with the shape of a.

    Args:
      output: "real" or "complex". With "real" and a real a, T may have 2 x 2 blocks on the diagonal.

    >>> a = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    >>> t, z = mpijax.scipy.linalg.schur(a)
    >>> jnp.allclose(z @ t @ z.T, a, atol=1e-4)
    Array(True, dtype=bool)
    """
    if output not in ("real", "complex"):
        raise ValueError(f"Expected 'output' to be either 'real' or 'complex', got output={output!r}.")
    return _schur(jnp.asarray(a), output)


@jit(static_argnames=("check_finite",))
def rsf2csf(T: Any, Z: Any, check_finite: bool = True) -> tuple[Any, Any]:
    """The complex Schur form (T, Z) of matrices of shape [..., n, n], from their real Schur form.

    >>> t, z = mpijax.scipy.linalg.schur(jnp.array([[0.0, 1.0], [-1.0, 0.0]]))
    >>> t, z = mpijax.scipy.linalg.rsf2csf(t, z)
    >>> jnp.sort(jnp.diagonal(t).imag).round(4)
    Array([-1.,  1.], dtype=float32)
    """
    T, Z = jnp.asarray(T), jnp.asarray(Z)
    for name, x in (("T", T), ("Z", Z)):
        if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
            raise ValueError(f"Input '{name}' must be square.")
    if T.shape[-1] != Z.shape[-1]:
        raise ValueError(f"Input array shapes must match: Z: {Z.shape} vs. T: {T.shape}")
    return jnp.vectorize(_rsf2csf, signature="(n,n),(n,n)->(n,n),(n,n)")(T, Z)


@jit
def _rsf2csf(T, Z):
    """A rotation makes each element below the diagonal zero, beginning with the last."""
    T, Z = promote_dtypes_complex(T, Z)
    eps, n = dtypes.finfo(T.dtype).eps, T.shape[0]
    if n <= 1:
        return T, Z

    def rotate(m, T, Z):
        value = jnp.linalg.eigvals(lax.dynamic_slice(T, (m - 1, m - 1), (2, 2))) - T[m, m]
        length = jnp.linalg.norm(jnp.array([value[0], T[m, m - 1]])).astype(T.dtype)
        c, s = value[0] / length, T[m, m - 1] / length
        rotation = jnp.array([[c.conj(), s], [-s, c]], dtype=T.dtype)
        rows = lax.dynamic_slice_in_dim(T, m - 1, 2, axis=0)
        rows = jnp.where(jnp.arange(n) >= m - 1, rotation @ rows, rows)
        T = lax.dynamic_update_slice_in_dim(T, rows, m - 1, axis=0)
        columns = lax.dynamic_slice_in_dim(T, m - 1, 2, axis=1)
        columns = jnp.where(jnp.arange(n)[:, None] < m + 1, columns @ rotation.conj().T, columns)
        T = lax.dynamic_update_slice_in_dim(T, columns, m - 1, axis=1)
        columns = lax.dynamic_slice_in_dim(Z, m - 1, 2, axis=1) @ rotation.conj().T
        return T, lax.dynamic_update_slice_in_dim(Z, columns, m - 1, axis=1)

    def step(i, matrices):
        m = n - i
        T, Z = matrices
        large = jnp.abs(T[m, m - 1]) > eps * (jnp.abs(T[m - 1, m - 1]) + jnp.abs(T[m, m]))
        T, Z = lax.cond(large, rotate, lambda m, T, Z: (T, Z), m, T, Z)
        return T.at[m, m - 1].set(0.0), Z

    return lax.fori_loop(1, n, step, (T, Z))


@jit(static_argnames=("calc_q", "check_finite", "overwrite_a"))
def hessenberg(a: Any, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The upper Hessenberg form a = Q H Q^H of matrices of shape [..., n, n]: H, or (H, Q) with `calc_q`.

    >>> mpijax.scipy.linalg.hessenberg(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    Array([[1., 2.],
           [3., 4.]], dtype=float32)
    """
    n = np.shape(a)[-1]
    if n == 0:
        return (jnp.zeros_like(a), jnp.zeros_like(a)) if calc_q else jnp.zeros_like(a)
    form, taus = linalg.hessenberg(a)
    h = jnp.triu(form, -1)
    if not calc_q:
        return h
    q = linalg.householder_product(form[..., 1:, :-1], taus)
    stack = form.shape[:-2]
    corner = jnp.ones((*stack, 1, 1), form.dtype)
    row, column = jnp.zeros((*stack, 1, n - 1), form.dtype), jnp.zeros((*stack, n - 1, 1), form.dtype)
    return h, jnp.block([[corner, row], [column, q]])


# ---------------------------------------------------------------- QR, polar


@jit(static_argnames=("mode", "pivoting"))
def _qr(a, mode, pivoting):
    if mode not in ("full", "r", "economic"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}'")
    q, *rest = linalg.qr(*inexact(a), pivoting=pivoting, full_matrices=mode != "economic")
    return tuple(rest) if mode == "r" else (q, *rest)


def qr(
    a: Any,
    overwrite_a: bool = False,
    lwork: Any = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> tuple:
    """QR factorization of matrices of shape [..., m, n].

    Args:
      mode: "full": (Q, R), where Q has the shape [..., m, m]. "economic": Q has the shape [..., m, k] with k = min(m,
        n). "r": (R,).
      pivoting: exchange columns, and also return the order p with a[:, p] = Q R.

    >>> a = jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> q, r = mpijax.scipy.linalg.qr(a, mode="economic")
    >>> jnp.allclose(q @ r, a, atol=1e-5)
    Array(True, dtype=bool)
    """
    return _qr(a, mode, pivoting)


def qr_multiply(
    a: Any,
    c: Any,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple:
    """c Q, or Q c, with the Q of a = Q R. Q itself is not computed.

    Args:
      a: matrices of shape [..., m, n]. Below, k = min(m, n).
      c: matrices of shape [..., p, m] for mode "right", [..., k, p] for "left"; or a vector.
      mode: the side of Q in the product: "right" (c Q) or "left" (Q c).
      pivoting: exchange columns of a, and also return their order.
      conjugate: use the conjugate of Q.

    Returns:
      (product, R), or (product, R, order).

    >>> a, c = jnp.array([[3.0, 0.0], [4.0, 5.0]]), jnp.array([[1.0, 2.0]])
    >>> cq, r = mpijax.scipy.linalg.qr_multiply(a, c)
    >>> jnp.allclose(cq @ r, c @ a, atol=1e-4)
    Array(True, dtype=bool)
    """
    a, c = inexact(a, c)
    if mode not in ("right", "left"):
        raise ValueError(f"mode must be 'right' or 'left', got {mode!r}")
    vector = c.ndim == 1
    if vector:
        c = c[:, None] if mode == "left" else c[None, :]
    m, n = a.shape[-2:]
    k = min(m, n)
    _check_multiply(a, c, mode, k)
    stack = jnp.broadcast_shapes(a.shape[:-2], c.shape[:-2])
    a, c = (jnp.broadcast_to(x, stack + x.shape[-2:]) for x in (a, c))
    order = []
    if pivoting:
        r, found, taus = orthogonal.geqp3(a, jnp.zeros((*stack, n), np.int32))
        order = [found - 1]
    else:
        r, taus = orthogonal.geqrf(a)
    if m > n and mode == "left":
        c = jnp.concatenate([c, jnp.zeros((*stack, m - k, c.shape[-1]), c.dtype)], axis=-2)
    c = c.swapaxes(-1, -2) if conjugate else c
    product = linalg.ormqr(r, taus, c, left=(mode == "left") != conjugate, transpose=conjugate)
    product = product.swapaxes(-1, -2) if conjugate else product
    product = product[..., :k] if mode == "right" else product
    return (product.ravel() if vector else product, jnp.triu(r[..., :k, :]), *order)


def _check_multiply(a, c, mode, k):
    left = mode == "left"
    wanted, found = (k, c.shape[-2]) if left else (a.shape[-2], c.shape[-1])
    if wanted != found:
        raise ValueError(
            f"Array shapes are not compatible for {'Q @ c' if left else 'c @ Q'} operation: a has shape "
            f"{tuple(a.shape)} so Q has {wanted} {'columns' if left else 'rows'}, but c has {found} "
            f"{'rows' if left else 'columns'} (expected {wanted})."
        )


@jit(static_argnames=("side", "method"))
def polar(
    a: Any, side: str = "right", *, method: str = "qdwh", eps: Any = None, max_iterations: Any = None
) -> tuple[Any, Any]:
    """Polar decomposition a = U P ("right") or a = P U ("left"), with P Hermitian positive semidefinite.

    Args:
      a: matrices [..., m, n].
      method: "svd" or "qdwh". mpijax computes both by the singular value decomposition. "qdwh" needs m >= n with
        "right", and m < n with "left".
      eps, max_iterations: have no effect.

    Returns:
      (U, P): U has the shape [..., m, n], and P has the shape [..., n, n] or [..., m, m].

    >>> mpijax.scipy.linalg.polar(jnp.array([[0.0, -2.0], [2.0, 0.0]]))[1].round(4)
    Array([[2., 0.],
           [0., 2.]], dtype=float32)
    """
    a = jnp.asarray(a)
    if a.ndim < 2:
        raise ValueError("The input `a` must be at least a 2-D array.")
    if side not in ("right", "left"):
        raise ValueError("The argument `side` must be either 'right' or 'left'.")
    signature = "(m,n)->(m,n)," + ("(n,n)" if side == "right" else "(m,m)")
    return jnp.vectorize(partial(_polar, side=side, method=method), signature=signature)(a)


def _polar(a, side, method):
    m, n = a.shape
    if method not in ("svd", "qdwh"):
        raise ValueError(f"Unknown polar decomposition method {method}.")
    if method == "qdwh" and (m >= n) != (side == "right"):
        raise NotImplementedError(
            "method='qdwh' only supports mxn matrices where m < n where side='left' and m >= n side='right', got "
            f"{a.shape} with side={side!r}. Use method='svd'."
        )
    with config.default_matmul_precision("float32"):
        u, s, vh = linalg.svd(a, full_matrices=False)
        s = s.astype(u.dtype)
        p = vh.T.conj() * s[None, :] @ vh if side == "right" else u * s[None, :] @ u.T.conj()
        return u @ vh, p
