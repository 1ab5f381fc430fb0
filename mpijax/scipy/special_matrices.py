"""Structured matrices, from vectors or from their size."""

from __future__ import annotations

import math
import operator
from functools import partial
from typing import Any

import numpy as np

from mpijax import lax
from mpijax import numpy as jnp
from mpijax.core import dtypes
from mpijax.numpy.util import check_arraylike, promote_args_inexact, promote_dtypes
from mpijax.transforms.jit import jit

# ---------------------------------------------------------------- from vectors


@jit
def block_diag(*arrs: Any) -> Any:
    """The block diagonal matrix of the given matrices; vectors are rows.

    >>> mpijax.scipy.linalg.block_diag(jnp.eye(2), jnp.array([5.0, 6.0]))
    Array([[1., 0., 0., 0.],
           [0., 1., 0., 0.],
           [0., 0., 5., 6.]], dtype=float32)
    """
    arrs = tuple(promote_dtypes(*(arrs or (jnp.zeros((1, 0)),))))
    for i, a in enumerate(arrs):
        if np.ndim(a) > 2:
            raise ValueError(
                f"Arguments to jax.scipy.linalg.block_diag must have at most 2 dimensions, got {a} at argument {i}."
            )
    blocks = [jnp.atleast_2d(a) for a in arrs]
    width, left, rows = sum(a.shape[1] for a in blocks), 0, []
    for a in blocks:
        rows.append(lax.pad(a, a.dtype.type(0), ((0, 0, 0), (left, width - a.shape[1] - left, 0))))
        left += a.shape[1]
    return jnp.concatenate(rows, axis=0)


def _from_last(fun: Any, signature: str, *xs: Any) -> Any:
    return jnp.vectorize(fun, signature=signature)(*xs)


def _sliding(elements: Any, rows: int, columns: int, rising: bool) -> Any:
    """The matrix whose rows are windows of a vector, each one place before (or, rising, after) the one above."""
    i, j = np.arange(rows)[:, None], np.arange(columns)[None, :]
    return elements[i + j if rising else rows - 1 - i + j]


def toeplitz(c: Any, r: Any = None) -> Any:
    """Matrices with equal elements along each diagonal.

    Args:
      c: first columns, of shape [..., m].
      r: first rows, of shape [..., n]; their first element is ignored. Default: the conjugate of c.

    Returns:
      Matrices of shape [..., m, n].

    >>> mpijax.scipy.linalg.toeplitz(jnp.array([1, 2, 3]))
    Array([[1, 2, 3],
           [2, 1, 2],
           [3, 2, 1]], dtype=int32)
    """
    check_arraylike("toeplitz", c, *(() if r is None else (r,)))
    c = jnp.atleast_1d(jnp.asarray(c))
    r = jnp.conjugate(c) if r is None else jnp.atleast_1d(jnp.asarray(r))
    return _from_last(_toeplitz, "(m),(n)->(m,n)", c, r)


def _toeplitz(c, r):
    (m,), (n,) = c.shape, r.shape
    if not m or not n:
        return jnp.empty((m, n), dtype=jnp.promote_types(c.dtype, r.dtype))
    return _sliding(jnp.concatenate((c[::-1], r[1:])), m, n, rising=False)


def hankel(c: Any, r: Any = None) -> Any:
    """Matrices with equal elements along each antidiagonal.

    Args:
      c: first columns, of shape [..., m].
      r: last rows, of shape [..., n]; their first element is ignored. Default: zeros with the shape of c.

    Returns:
      Matrices of shape [..., m, n].

    >>> mpijax.scipy.linalg.hankel(jnp.array([1, 2, 3]))
    Array([[1, 2, 3],
           [2, 3, 0],
           [3, 0, 0]], dtype=int32)
    """
    check_arraylike("hankel", c, *(() if r is None else (r,)))
    c = jnp.asarray(c)
    r = jnp.zeros_like(c) if r is None else jnp.asarray(r)
    for name, x in (("c", c), ("r", r)):
        if x.ndim == 0:
            raise ValueError(f"hankel: {name} must be at least 1-dimensional, got a scalar.")
    ndim = max(c.ndim, r.ndim)
    c, r = (x.reshape((1,) * (ndim - x.ndim) + x.shape) for x in (c, r))  # no rank is promoted: that may be an error
    return _from_last(_hankel, "(m),(n)->(m,n)", c, r)


def _hankel(c, r):
    (m,), (n,) = c.shape, r.shape
    if not m or not n:
        return jnp.empty((m, n), dtype=jnp.result_type(c, r))
    return _sliding(jnp.concatenate((c, r[1:])), m, n, rising=True)


def circulant(c: Any) -> Any:
    """Circulant matrices of shape [..., n, n]. The first column is c, of shape [..., n]; each next column is rotated by
    one.

    >>> mpijax.scipy.linalg.circulant(jnp.array([1, 2, 3]))
    Array([[1, 3, 2],
           [2, 1, 3],
           [3, 2, 1]], dtype=int32)
    """
    check_arraylike("circulant", c)

    def one(c):
        i = np.arange(c.shape[0])
        return c[(i[:, None] - i[None, :]) % max(len(i), 1)]

    return _from_last(one, "(n)->(n,n)", jnp.atleast_1d(jnp.asarray(c)))


def leslie(f: Any, s: Any) -> Any:
    """Leslie matrices of shape [..., n, n]: f, of shape [..., n], in the first row, and s, of shape [..., n - 1], below
    the diagonal.

    >>> mpijax.scipy.linalg.leslie(jnp.array([0.0, 2.0]), jnp.array([0.5]))
    Array([[0. , 2. ],
           [0.5, 0. ]], dtype=float32)
    """
    check_arraylike("leslie", f, s)
    f, s = jnp.atleast_1d(f), jnp.atleast_1d(s)
    if f.shape[-1] < 2:
        raise ValueError(f"The length of f along the last axis must be at least 2; got shape {f.shape}.")
    if s.shape[-1] != f.shape[-1] - 1:
        raise ValueError(
            "Incorrect lengths for f and s. The length of s along the last axis must be one less than the length of f; "
            f"got f shape {f.shape} and s shape {s.shape}."
        )

    def one(f, s):
        f, s = promote_dtypes(f, s)
        return jnp.diag(s, k=-1).at[0].set(f)

    return _from_last(one, "(n),(m)->(n,n)", f, s)


def companion(a: Any) -> Any:
    """Companion matrices, of shape [..., n - 1, n - 1], of polynomials with coefficients a, of shape [..., n], the
    highest power first.

    >>> mpijax.scipy.linalg.companion(jnp.array([1.0, -3.0, 2.0]))
    Array([[ 3., -2.],
           [ 1.,  0.]], dtype=float32)
    """
    (a,) = promote_args_inexact("companion", a)
    a = jnp.atleast_1d(a)
    if a.shape[-1] < 2:
        raise ValueError(f"The length of `a` along the last axis must be at least 2; got shape {a.shape}.")

    def one(a):
        row = -a[1:] / a[0]
        return jnp.eye(row.shape[0], k=-1, dtype=row.dtype).at[0].set(row)

    return _from_last(one, "(n)->(m,m)", a)


def fiedler(a: Any) -> Any:
    """Fiedler matrices |a_i - a_j|, of shape [..., n, n], of vectors of shape [..., n].

    >>> mpijax.scipy.linalg.fiedler(jnp.array([1, 4, 9]))
    Array([[0, 3, 8],
           [3, 0, 5],
           [8, 5, 0]], dtype=int32)
    """
    check_arraylike("fiedler", a)
    a = jnp.atleast_1d(a)
    return jnp.abs(a[..., None] - a[..., None, :])


def fiedler_companion(a: Any) -> Any:
    """Fiedler companion matrices, with five diagonals, of shape [..., n - 1, n - 1], of polynomials a of shape [...,
    n].

    >>> mpijax.scipy.linalg.fiedler_companion(jnp.array([1.0, -3.0, 2.0]))
    Array([[ 3., -2.],
           [ 1.,  0.]], dtype=float32)
    """
    (a,) = promote_args_inexact("fiedler_companion", a)
    a = jnp.atleast_1d(a)
    if a.shape[-1] == 0:
        raise ValueError(
            "fiedler_companion requires the last axis of 'a' to have nonzero length, but got an array of shape "
            f"{a.shape}."
        )
    return _from_last(_fiedler_companion, "(n)->(m,m)", a)


def _fiedler_companion(a):
    n = a.shape[0] - 1
    if n == 0:
        return jnp.empty_like(a, shape=(0, 0))
    a = a / a[0]
    if n == 1:
        return -a[1:].reshape(1, 1)
    out = jnp.zeros((n, n), a.dtype).at[0, 0].set(-a[1]).at[1, 0].set(1)
    even, odd = np.arange(0, n, 2), np.arange(3, n, 2)
    right = even[even + 1 < n]
    out = out.at[right, right + 1].set(-a[right + 2])
    far = even[even + 2 < n]
    out = out.at[far, far + 2].set(1)
    left = even[even >= 2]
    out = out.at[left, left - 1].set(-a[left + 1])
    return out.at[odd, odd - 2].set(1)


@jit(static_argnames=("n", "mode"))
def convolution_matrix(a: Any, n: int, mode: str = "full") -> Any:
    """The matrix whose product with a vector of n elements is the convolution of the vector with a.

    Args:
      a: vectors of shape [..., m].
      mode: "full", "same" or "valid", as in `convolve`.

    Returns:
      Matrices of shape [..., k, n]; k is m + n - 1 for "full".

    >>> mpijax.scipy.linalg.convolution_matrix(jnp.array([1, -1]), 3, mode="valid")
    Array([[-1,  1,  0],
           [ 0, -1,  1]], dtype=int32)
    """
    n = operator.index(n)
    if n <= 0:
        raise ValueError(f"n must be a positive integer; got {n}.")
    check_arraylike("convolution_matrix", a)
    a = jnp.asarray(a)
    if a.ndim == 0:
        raise ValueError("convolution_matrix: a must be at least 1-dimensional, got a scalar.")
    m = a.shape[-1]
    if m < 1:
        raise ValueError(f"len(a) must be at least 1; got shape {a.shape}.")
    if mode not in ("full", "valid", "same"):
        raise ValueError(f"mode must be one of 'full', 'valid', 'same'; got {mode!r}.")
    length = m + n - 1
    spare = {"full": 0, "same": min(n, m) - 1, "valid": 2 * (min(n, m) - 1)}[mode]
    top = spare // 2
    pads = [(0, 0)] * (a.ndim - 1) + [(0, n - 1)]
    padded, turned = jnp.pad(a, pads), jnp.pad(jnp.flip(a, axis=-1), pads)
    column = lax.slice_in_dim(padded, top, length - (spare - top), axis=-1)
    row = lax.slice_in_dim(turned, length - n - top, length - top, axis=-1)
    return toeplitz(column, row)


# ---------------------------------------------------------------- from a size


@jit(static_argnames=("n",))
def hilbert(n: int) -> Any:
    """The Hilbert matrix 1 / (i + j + 1), of shape [n, n].

    >>> mpijax.scipy.linalg.hilbert(2).round(4)
    Array([[1.    , 0.5   ],
           [0.5   , 0.3333]], dtype=float32)
    """
    a = lax.broadcasted_iota(float, (n, 1), 0)
    return 1 / (a + a.T + 1)


@jit(static_argnames=("n",))
def invhilbert(n: int) -> Any:
    """The inverse of the Hilbert matrix, of shape [n, n].

    >>> mpijax.scipy.linalg.invhilbert(2)
    Array([[ 4., -6.],
           [-6., 12.]], dtype=float32)
    """
    dtype = dtypes.default_float_dtype()
    values = [[_inverse_hilbert(n, i, j) for j in range(n)] for i in range(n)]
    return jnp.asarray(np.array(values, float).reshape(n, n).astype(dtype))


def _inverse_hilbert(n: int, i: int, j: int) -> float:
    s = i + j
    return (-1) ** s * (s + 1) * math.comb(n + i, n - j - 1) * math.comb(n + j, n - i - 1) * math.comb(s, i) ** 2


def _kind(kind: str | None) -> str:
    known = ["symmetric", "lower", "upper"]
    if kind is not None and kind not in known:
        raise ValueError(f"Expected kind to be one of: {known}; got {kind}")
    return kind or "symmetric"


def _binomials(n, k):
    return lax.exp(lax.lgamma(n + 1.0) - lax.lgamma(n - k + 1.0) - lax.lgamma(k + 1.0))


@jit(static_argnames=("n", "kind"))
def pascal(n: int, kind: str | None = None) -> Any:
    """Pascal's triangle as a matrix of shape [n, n]: "lower", "upper", or their product, "symmetric" (the default).

    >>> mpijax.scipy.linalg.pascal(3)
    Array([[1., 1., 1.],
           [1., 2., 3.],
           [1., 3., 6.]], dtype=float32)
    """
    kind = _kind(kind)
    a = jnp.arange(n, dtype=np.float32)
    lower = _binomials(a[:, None], a[None, :])
    if kind == "lower":
        return lower
    return lower.T if kind == "upper" else jnp.dot(lower, lower.T)


@jit(static_argnames=("n", "kind"))
def invpascal(n: int, kind: str | None = None) -> Any:
    """The inverse of `pascal(n, kind)`.

    >>> mpijax.scipy.linalg.invpascal(3)
    Array([[ 3., -3.,  1.],
           [-3.,  5., -2.],
           [ 1., -2.,  1.]], dtype=float32)
    """
    kind = _kind(kind)
    a = jnp.arange(n, dtype=dtypes.default_float_dtype())
    i, j = a[:, None], a[None, :]
    lower = (-1.0) ** (i - j) * _binomials(i, j)
    if kind == "lower":
        return lower
    return lower.T if kind == "upper" else jnp.dot(lower.T, lower)


@jit(static_argnames=("n", "full"))
def helmert(n: int, full: bool = False) -> Any:
    """Helmert's orthogonal matrix, of shape [n, n] if `full`; otherwise without its first row, which has equal
    elements.

    >>> mpijax.scipy.linalg.helmert(2).round(4)
    Array([[ 0.7071, -0.7071]], dtype=float32)
    """
    if n < 1:
        raise ValueError(f"n must be a positive integer; got {n}.")
    i, j = jnp.arange(n - 1)[:, None], jnp.arange(n)[None, :]
    k = (i + 1).astype(dtypes.default_float_dtype())
    length = jnp.sqrt(k * (k + 1))
    rows = jnp.where(j <= i, 1.0 / length, jnp.where(j == i + 1, -k / length, jnp.zeros_like(length)))
    if not full:
        return rows
    return jnp.concatenate([jnp.full((1, n), 1.0 / jnp.sqrt(n), dtype=rows.dtype), rows], axis=0)


@partial(jit, static_argnames=("n", "dtype"))
def hadamard(n: int, dtype: Any = int) -> Any:
    """Hadamard's matrix of 1 and -1, of shape [n, n]; n must be a power of 2.

    >>> mpijax.scipy.linalg.hadamard(2, dtype="int32")
    Array([[ 1,  1],
           [ 1, -1]], dtype=int32)
    """
    if n < 1 or not math.log2(n).is_integer():
        raise ValueError(f"n must be a positive power of 2; got {n}.")
    out = jnp.ones((1, 1), dtype=dtype)
    for _ in range(int(math.log2(n))):
        out = jnp.block([[out, out], [out, -out]])
    return out


@jit(static_argnames=("n", "scale", "dtype"))
def dft(n: int, scale: str | None = None, *, dtype: Any = None) -> Any:
    """The matrix of the discrete Fourier transform, of shape [n, n]; divided by n or sqrt(n) for scale "n" or "sqrtn".

    >>> mpijax.scipy.linalg.dft(2).real.round(4)
    Array([[ 1.,  1.],
           [ 1., -1.]], dtype=float32)
    """
    if scale not in (None, "sqrtn", "n"):
        raise ValueError(f"scale must be None, 'sqrtn', or 'n'; got {scale!r}.")
    if dtype is None:
        dtype = dtypes.to_complex_dtype(dtypes.default_float_dtype())
    else:
        dtype = dtypes.check_user_dtype_supported(dtype, "dft")
        if not dtypes.issubdtype(dtype, np.complexfloating):
            raise ValueError(f"dtype must be a complex floating-point type; got {dtype}.")
    a = jnp.arange(n, dtype=dtype)
    out = jnp.exp(-2j * np.pi * a[:, None] * a[None, :] / n)
    return out if scale is None else out / (n if scale == "n" else jnp.sqrt(n))
