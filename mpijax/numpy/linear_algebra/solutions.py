"""Linear systems in `numpy.linalg`: solutions, inverses, least squares, ranks and powers."""

from __future__ import annotations

import math
import operator
from functools import partial
from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.base import config
from mpijax.numpy.creation.constructors import array, asarray
from mpijax.numpy.creation.fills import empty, zeros
from mpijax.numpy.creation.matrices import eye
from mpijax.numpy.indexing.conditions import where
from mpijax.numpy.linear_algebra.factorizations import adjoint, inexact, svd, svdvals
from mpijax.numpy.linear_algebra.linear import matmul
from mpijax.numpy.linear_algebra.norms import norm
from mpijax.numpy.reductions.standard import sum as sum_of
from mpijax.numpy.shapes.reshape import broadcast_to, expand_dims, moveaxis
from mpijax.numpy.ufuncs.arithmetic import divide
from mpijax.numpy.ufuncs.complexes import conj
from mpijax.numpy.ufuncs.logic import isnan
from mpijax.numpy.ufuncs.vectorization import vectorize
from mpijax.numpy.util import ensure_arraylike, promote_dtypes_inexact
from mpijax.ops.linalg.solve import solve as solve_matrices
from mpijax.transforms.custom_jvp import custom_jvp
from mpijax.transforms.jit import jit

_HIGHEST = lax.Precision.HIGHEST


@jit
def solve(a: Any, b: Any) -> Any:
    """The x with a x = b.

    Args:
      a: matrices of shape [..., n, n].
      b: a vector of shape [n], or matrices of shape [..., n, k]; leading axes broadcast.

    Returns:
      An array with the shape of b. A singular matrix gives infinities and NaN.

    Raises:
      ValueError: shapes that do not match.

    >>> jnp.linalg.solve(np.array([[2.0, 0.0], [0.0, 4.0]]), np.array([1.0, 1.0])).tolist()
    [0.5, 0.25]
    """
    a, b = promote_dtypes_inexact(*ensure_arraylike("jnp.linalg.solve", a, b))
    if a.ndim < 2:
        raise ValueError(f"left hand array must be at least two dimensional; got a.shape={a.shape!r}")
    if b.ndim > 1 and a.ndim == b.ndim + 1 and a.shape[-1] == b.shape[-1] and a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"Invalid shapes for solve: {a.shape}, {b.shape}. For a stack of vectors use solve(a, b[..., None])"
            ".squeeze(-1)."
        )
    signature = "(m,m),(m)->(m)" if b.ndim == 1 else "(m,m),(m,n)->(m,n)"
    return vectorize(solve_matrices, signature=signature)(a, b)


@jit
def inv(a: Any) -> Any:
    """Inverses of matrices of shape [..., n, n]. A singular matrix gives infinities and NaN.

    Raises:
      ValueError: the shape of a is not [..., n, n].

    >>> jnp.linalg.inv(np.array([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    a = ensure_arraylike("jnp.linalg.inv", a)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"Argument to inv must have shape [..., n, n], got {a.shape}.")
    return solve(a, lax.broadcast(eye(a.shape[-1], dtype=a.dtype), a.shape[:-2]))


@jit(static_argnames=("n",))
def matrix_power(a: Any, n: int) -> Any:
    """The n-th power of matrices; powers of their inverses if n is negative.

    Args:
      a: matrices of shape [..., m, m].
      n: an integer known while tracing.

    Raises:
      TypeError: the shape of a is not [..., m, m], or n is not an integer.

    >>> jnp.linalg.matrix_power(np.array([[1.0, 1.0], [0.0, 1.0]]), 5).tolist()
    [[1.0, 5.0], [0.0, 1.0]]
    """
    a = ensure_arraylike("jnp.linalg.matrix_power", a)
    if a.ndim < 2:
        raise TypeError(f"{a.ndim}-dimensional array given. Array must be at least two-dimensional")
    if a.shape[-2] != a.shape[-1]:
        raise TypeError("Last 2 dimensions of the array must be square")
    try:
        n = operator.index(n)
    except TypeError as error:
        raise TypeError(f"exponent must be an integer, got {n}") from error
    if n == 0:
        return broadcast_to(eye(a.shape[-2], dtype=a.dtype), a.shape)
    return _positive_power(inv(a) if n < 0 else a, abs(n))


def _positive_power(a, n):
    if n <= 3:
        return {1: lambda: a, 2: lambda: a @ a, 3: lambda: a @ a @ a}[n]()
    square = result = None
    while n > 0:
        square = a if square is None else square @ square
        n, bit = divmod(n, 2)
        if bit:
            result = square if result is None else result @ square
    return result


@jit(static_argnames=("hermitian",))
def matrix_rank(M: Any, rtol: Any = None, *, hermitian: bool = False, tol: Any = None) -> Any:
    """The rank of matrices: the number of singular values larger than a tolerance.

    Args:
      M: matrices of shape [..., m, n]. For a vector or scalar, the result says whether an element is not 0.
      rtol: the tolerance, an absolute number as in JAX. Default: the largest singular value times max(m, n) eps.
      hermitian: whether M is Hermitian.
      tol: another name of `rtol`.

    Raises:
      ValueError: both `rtol` and `tol` are given.

    >>> int(jnp.linalg.matrix_rank(np.ones((3, 3))))
    1
    """
    M = ensure_arraylike("jnp.linalg.matrix_rank", M)
    if tol is not None:
        if rtol is not None:
            raise ValueError("matrix_rank: only one of tol or rtol may be specified.")
        rtol = tol
    (M,) = promote_dtypes_inexact(M)
    if M.ndim < 2:
        return (M != 0).any().astype(np.int32)
    s = svd(M, full_matrices=False, compute_uv=False, hermitian=hermitian)
    if rtol is None:
        largest = s.max(-1) if s.shape[-1] else s.sum(-1)
        rtol = largest * np.max(M.shape[-2:]).astype(s.dtype) * dtypes.finfo(s.dtype).eps
    return sum_of(s > expand_dims(rtol, np.ndim(rtol)), axis=-1)


# ---------------------------------------------------------------- least squares


def pinv(a: Any, rtol: Any = None, hermitian: bool = False, *, rcond: Any = None) -> Any:
    """Pseudo-inverses, by singular value decomposition.

    Args:
      a: matrices of shape [..., m, n].
      rtol: singular values up to this fraction of the largest one are treated as 0. Default: 10 max(m, n) eps.
      hermitian: whether a is Hermitian.
      rcond: another name of `rtol`.

    Returns:
      Matrices of shape [..., n, m].

    Raises:
      ValueError: both `rtol` and `rcond` are given, or a has fewer than two axes.

    >>> jnp.linalg.pinv(np.array([[2.0], [0.0]])).tolist()
    [[0.5, 0.0]]
    """
    if rcond is not None:
        if rtol is not None:
            raise ValueError("pinv: only one of rtol and rcond may be specified.")
        rtol = rcond
    return _pinv(a, rtol, hermitian)


@partial(custom_jvp, nondiff_argnums=(1, 2))
@jit(static_argnames="hermitian")
def _pinv(a, rtol=None, hermitian=False):
    a = inexact("pinv", a)
    if a.ndim < 2:
        raise ValueError(f"Argument to pinv must have shape [..., m, n], got {a.shape}.")
    m, n = a.shape[-2:]
    if not m or not n:
        return empty(a.shape[:-2] + (n, m), a.dtype)
    conjugated = conj(a)
    if rtol is None:
        rtol = 10.0 * max(m, n) * array(dtypes.finfo(a.dtype).eps)
    rtol = asarray(rtol)
    u, s, vh = svd(conjugated, full_matrices=False, hermitian=hermitian)
    rtol = lax.expand_dims(rtol[..., np.newaxis], range(s.ndim - rtol.ndim - 1))
    s = where(s > rtol * s[..., 0:1], s, np.inf).astype(u.dtype)
    out = matmul(vh.mT, divide(u.mT, s[..., np.newaxis]), precision=_HIGHEST)
    return lax.convert_element_type(out, a.dtype)


@_pinv.defjvp
def _pinv_jvp(rtol, hermitian, primals, tangents):
    """With P the pseudo-inverse, dP = -P dA P + P P^H dA^H (1 - A P) + (1 - P A) dA^H P^H P.

    G. H. Golub, V. Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems whose
    variables separate" (1973).
    """
    (a,), (a_dot,) = primals, tangents
    with config.default_matmul_precision("float32"):
        p = pinv(a, rtol=rtol, hermitian=hermitian)
        if hermitian:
            a, a_dot = (a + adjoint(a)) / 2, (a_dot + adjoint(a_dot)) / 2
        if a.shape[-2] >= a.shape[-1]:
            s = p @ adjoint(p) @ adjoint(a_dot)
            t = adjoint(a_dot) @ adjoint(p) @ p
            p_dot = -(p @ a_dot) @ p + s - s @ a @ p + t - p @ a @ t
        else:
            s = p @ (adjoint(p) @ adjoint(a_dot))
            t = adjoint(a_dot) @ (adjoint(p) @ p)
            p_dot = -p @ (a_dot @ p) + s - s @ (a @ p) + t - p @ (a @ t)
    return p, p_dot


def lstsq(a: Any, b: Any, rcond: Any = None, *, numpy_resid: bool = False) -> tuple[Any, Any, Any, Any]:
    """Least-squares solutions of a x = b with the smallest norm.

    Args:
      a: matrix of shape [m, n].
      b: vector of shape [m] or matrix of shape [m, k].
      rcond: singular values below this fraction of the largest one are treated as 0. Default: max(m, n) eps. A negative
        number means eps.
      numpy_resid: return no residuals if NumPy returns none. The function can then not be traced.

    Returns:
      (x, residuals, rank, s): x has the shape [n] or [n, k]; residuals are the squared norms of b - a x; s has the
      singular values, of shape [min(m, n)].

    Raises:
      ValueError: a and b have different numbers of rows.
      TypeError: a or b has another number of axes.

    >>> jnp.linalg.lstsq(np.array([[1.0], [1.0]]), np.array([1.0, 3.0]))[0].round(4).tolist()
    [2.0]
    """
    a, b = ensure_arraylike("jnp.linalg.lstsq", a, b)
    return _lstsq(a, b, rcond, numpy_resid=True) if numpy_resid else _jit_lstsq(a, b, rcond)


def _check_lstsq(a, b) -> None:
    if a.shape[0] != b.shape[0]:
        raise ValueError("Leading dimensions of input arrays must match")
    if a.ndim != 2:
        raise TypeError(f"{a.ndim}-dimensional array given. Array must be two-dimensional")
    if b.ndim not in (1, 2):
        raise TypeError(f"{b.ndim}-dimensional array given. Array must be one or two-dimensional")


def _lstsq(a, b, rcond, *, numpy_resid=False):
    a, b = promote_dtypes_inexact(a, b)
    _check_lstsq(a, b)
    vector = b.ndim == 1
    b = b[:, None] if vector else b
    m, n = a.shape
    if a.size == 0:
        s, rank, x = empty(0, dtype=a.dtype), array(0, dtype=int), zeros((n, *b.shape[1:]), dtype=a.dtype)
    else:
        x, rank, s = _least_squares(a, b, rcond)
    if numpy_resid and (rank < n or m <= n):
        residuals = asarray([])
    else:
        residuals = norm(b - matmul(a, x, precision=_HIGHEST), axis=0) ** 2
    return x.ravel() if vector else x, residuals, rank, s


def _least_squares(a, b, rcond):
    eps = dtypes.finfo(a.dtype).eps
    rcond = float(eps) * max(a.shape) if rcond is None else where(rcond < 0, eps, rcond)
    u, s, vt = svd(a, full_matrices=False)
    taken = (s > 0) & (s >= array(rcond, dtype=s.dtype) * s[0])
    rank = taken.sum()
    inverses = where(taken, 1 / where(taken, s, 1).astype(a.dtype), 0)[:, np.newaxis]
    coordinates = matmul(u.conj().T, b, precision=_HIGHEST)
    return matmul(vt.conj().T, inverses * coordinates, precision=_HIGHEST), rank, s


_jit_lstsq = jit(partial(_lstsq, numpy_resid=False))


@jit(static_argnames=("p",))
def cond(x: Any, p: Any = None) -> Any:
    """Condition numbers: the norm of a matrix times the norm of its inverse.

    Args:
      x: matrices of shape [..., m, n], square unless p is None, 2 or -2.
      p: the norm, as in `norm`. None and 2 give the ratio of the largest and the smallest singular value.

    Raises:
      ValueError: x has fewer than two axes or no elements, or its matrices are not square and p needs square ones.

    >>> float(jnp.linalg.cond(np.diag([4.0, 2.0])))
    2.0
    """
    a = ensure_arraylike("cond", x)
    if a.ndim < 2:
        raise ValueError(f"jnp.linalg.cond: input array must be at least 2D; got arr.shape={a.shape!r}")
    if not a.shape[-1] or not a.shape[-2]:
        raise ValueError(f"jnp.linalg.cond: input array must not be empty; got arr.shape={a.shape!r}")
    if p is None or p == 2:
        s = svdvals(x)
        return s[..., 0] / s[..., -1]
    if p == -2:
        s = svdvals(x)
        ratio = s[..., -1] / s[..., 0]
    else:
        if a.shape[-2] != a.shape[-1]:
            raise ValueError(f"jnp.linalg.cond: for p={p!r}, array must be square; got arr.shape={a.shape!r}")
        ratio = norm(x, ord=p, axis=(-2, -1)) * norm(inv(x), ord=p, axis=(-2, -1))
    return where(isnan(ratio) & ~isnan(x).any(axis=(-2, -1)), np.inf, ratio)


# ---------------------------------------------------------------- tensors


def tensorinv(a: Any, ind: int = 2) -> Any:
    """The tensor b for which tensordot(b, a, ind) is the identity.

    Args:
      a: an array. The product of its first `ind` sizes equals the product of the others.

    Raises:
      ValueError: `ind` is not positive, or these products differ.

    >>> jnp.linalg.tensorinv(np.eye(4).reshape(2, 2, 4), ind=2).shape
    (4, 2, 2)
    """
    a = ensure_arraylike("tensorinv", a)
    ind = operator.index(ind)
    if ind <= 0:
        raise ValueError(f"ind must be a positive integer; got ind={ind!r}")
    first, rest = a.shape[:ind], a.shape[ind:]
    flat = (math.prod(first), math.prod(rest))
    if flat[0] != flat[1]:
        raise ValueError(
            "tensorinv is only possible when the product of the first `ind` dimensions equals that of the remaining "
            f"dimensions. got arr.shape={a.shape!r} with ind={ind!r}."
        )
    return inv(a.reshape(flat)).reshape(*rest, *first)


def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """The x for which tensordot(a, x, x.ndim) equals b.

    Args:
      a: an array of shape b.shape + x.shape, where b and x have the same number of elements.
      b: an array.
      axes: axes of a to move to its end first.

    Raises:
      ValueError: shapes that do not match.

    >>> jnp.linalg.tensorsolve(np.eye(6).reshape(2, 3, 6), np.ones((2, 3))).shape
    (6,)
    """
    a, b = ensure_arraylike("tensorsolve", a, b)
    if axes is not None:
        a = moveaxis(a, axes, len(axes) * (a.ndim - 1,))
    shape = a.shape[b.ndim :]
    if a.shape[: b.ndim] != b.shape:
        raise ValueError(
            "After moving axes to end, leading shape of a must match shape of b. got "
            f"a.shape={a.shape}, b.shape={b.shape}"
        )
    if b.size != math.prod(shape):
        raise ValueError(
            "Input arrays must have prod(a.shape[:b.ndim]) == prod(a.shape[b.ndim:]); got "
            f"a.shape={a.shape}, b.ndim={b.ndim}."
        )
    return solve(a.reshape(b.size, math.prod(shape)), b.ravel()).reshape(shape)
