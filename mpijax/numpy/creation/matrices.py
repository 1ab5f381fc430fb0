"""Identity, triangular and diagonal matrices, and their indices."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.shapes.dimensions import is_longer, max_dim, min_dim
from mpijax.numpy.creation.constructors import asarray
from mpijax.numpy.creation.fills import ones, zeros
from mpijax.numpy.creation.ranges import arange
from mpijax.numpy.indexing.conditions import nonzero
from mpijax.numpy.indexing.take import getitem
from mpijax.numpy.reductions.standard import sum as array_sum
from mpijax.numpy.shapes.reshape import ravel
from mpijax.numpy.ufuncs.arithmetic import add, multiply, subtract
from mpijax.numpy.util import (
    _where,
    as_array,
    canonical_axis,
    canonical_shape,
    check_arraylike,
    convert,
    ensure_arraylike,
    is_integer,
    place,
    requested_dtype,
    scalar_like,
    static_int,
)
from mpijax.transforms.jit import jit

_I32 = np.dtype(np.int32)


def eye(N, M=None, k=0, dtype=None, *, device=None):
    """An N x M (default N x N) matrix with ones on the diagonal number k and zeros elsewhere.

    Raises:
      ValueError: a negative size.

    >>> jnp.eye(2, 3, k=1)
    Array([[0., 1., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    dtype = dtypes.check_user_dtype_supported(float if dtype is None else dtype, "eye")
    rows = static_int(N, "argument of 'N' jnp.eye()")
    columns = rows if M is None else static_int(M, "argument 'M' of jnp.eye()")
    if isinstance(k, int):
        k = max(-(2**31), min(k, 2**31 - 1))
    offset = ensure_arraylike("eye", k)
    if offset.shape or not is_integer(offset.dtype):
        raise ValueError(f"k must be a scalar integer; got {k}")
    if rows < 0 or columns < 0:
        raise ValueError(f"negative dimensions are not allowed, got {N} and {M}")
    return place(_eye(offset, (rows, columns), dtype), device)


@jit(static_argnums=(1, 2), inline=True)
def _eye(offset, shape, dtype):
    i = lax.broadcasted_iota(offset.dtype, shape, 0)
    j = lax.broadcasted_iota(offset.dtype, shape, 1)
    return convert(lax.eq(lax.add(i, convert(offset, offset.dtype)), j), dtype)


def identity(n, dtype=None):
    """The n x n identity matrix.

    The default dtype is float32 (float64 with jax_enable_x64).

    >>> jnp.identity(2, dtype=jnp.int32)
    Array([[1, 0],
           [0, 1]], dtype=int32)
    """
    return eye(n, dtype=requested_dtype(dtype, "identity"))


def tri(N, M=None, k=0, dtype=None):
    """An N x M (default N x N) matrix with ones on and below the diagonal number k, zeros above.

    The default dtype is float32 (float64 with jax_enable_x64).

    >>> jnp.tri(2, 3, dtype=jnp.int32)
    Array([[1, 0, 0],
           [1, 1, 0]], dtype=int32)
    """
    dtype = np.dtype(np.float32) if dtype is None else dtypes.check_user_dtype_supported(dtype, "tri")
    offset = as_array(k)
    if not is_integer(offset.dtype):
        raise TypeError(f"offset must be an integer, got {offset!r}")
    return _tri(offset, canonical_shape((N, N if M is None else M)), dtype)


@jit(static_argnums=(1, 2), inline=True)
def _tri(offset, shape, dtype):
    wide = offset.dtype.itemsize > 4 or any(is_longer(d, 2**31 - 1) for d in shape)
    index = np.dtype(np.int64) if wide else _I32
    i = lax.add(lax.broadcasted_iota(index, shape, 0), convert(offset, index))
    return convert(lax.ge(i, lax.broadcasted_iota(index, shape, 1)), dtype)


def _triangle_mask(name: str, m, k: int):
    if m.ndim < 2:
        raise ValueError(f"Argument to jax.numpy.{name} must be at least 2D")
    rows, columns = m.shape[-2:]
    mask = tri(rows, columns, k=k, dtype=bool)
    return lax.broadcast(mask, m.shape[:-2]) if m.ndim > 2 else mask


@jit(static_argnames=("k",))
def tril(m, k=0):
    """The lower triangle of matrices: zeros above the diagonal number k.

    Raises:
      ValueError: `m` has fewer than two axes.

    >>> jnp.tril(jnp.array([[1, 2], [3, 4]]))
    Array([[1, 0],
           [3, 4]], dtype=int32)
    """
    m = ensure_arraylike("tril", m)
    mask = _triangle_mask("tril", m, k)
    return lax.select(mask, m, lax.full_like(m, 0))


@jit(static_argnames=("k",))
def triu(m, k=0):
    """The upper triangle of matrices: zeros below the diagonal number k.

    Raises:
      ValueError: `m` has fewer than two axes.

    >>> jnp.triu(jnp.array([[1, 2], [3, 4]]), k=1)
    Array([[0, 2],
           [0, 0]], dtype=int32)
    """
    m = ensure_arraylike("triu", m)
    mask = _triangle_mask("triu", m, k - 1)
    return lax.select(mask, lax.full_like(m, 0), m)


def diag(v, k=0):
    """The diagonal number k of a matrix; for a 1-d array, the matrix with that diagonal.

    Raises:
      ValueError: `v` has neither one nor two axes.

    >>> jnp.diag(jnp.array([1, 2]), k=1)
    Array([[0, 1, 0],
           [0, 0, 2],
           [0, 0, 0]], dtype=int32)
    """
    return _diag(ensure_arraylike("diag", v), operator.index(k))


@jit(static_argnames=("k",))
def _diag(v, k):
    if v.ndim == 1:
        n = v.shape[0] + abs(k)
        column = lax.pad(v, scalar_like(v, 0), ((max(0, -k), max(0, k), 0),))
        on_diagonal = eye(n, k=k, dtype=bool)
        return _where(on_diagonal, lax.expand_dims(column, (1,)), scalar_like(v, 0))
    if v.ndim == 2:
        return diagonal(v, offset=k)
    raise ValueError("diag input must be 1d or 2d")


@jit(static_argnames=("offset", "axis1", "axis2"))
def diagonal(a, offset=0, axis1=0, axis2=1):
    """The diagonal number `offset` of the matrices in two axes. The result has one last axis instead of these two.

    Raises:
      ValueError: `a` has fewer than two axes.

    >>> jnp.diagonal(jnp.arange(6).reshape(2, 3), offset=1)
    Array([1, 5], dtype=int32)
    """
    a = ensure_arraylike("diagonal", a)
    if a.ndim < 2:
        raise ValueError("diagonal requires an array of at least two dimensions.")
    offset = static_int(offset, "'offset' argument of jnp.diagonal()")
    rows, columns = a.shape[axis1], a.shape[axis2]
    first, second = canonical_axis(axis1, a.ndim), canonical_axis(axis2, a.ndim)
    a = lax.transpose(a, [i for i in range(a.ndim) if i not in (first, second)] + [first, second])
    size = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    i, j = arange(size), arange(abs(offset), abs(offset) + size)
    return getitem(a, (..., i, j) if offset >= 0 else (..., j, i))


@jit(static_argnames=("axis1", "axis2", "dtype"))
def trace(a, offset=0, axis1=0, axis2=1, dtype=None, out=None):
    """The sum along the diagonal number `offset` of the matrices in two axes.

    Integers narrower than the default integer type become that type, unless `dtype` is given.

    Raises:
      ValueError: fewer than two axes.

    >>> jnp.trace(jnp.array([[1, 2], [3, 4]]))
    Array(5, dtype=int32)
    """
    a = ensure_arraylike("trace", a)
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.trace is not supported.")
    first, second = canonical_axis(axis1, a.ndim), canonical_axis(axis2, a.ndim)
    if first == second:
        raise ValueError(f"axis1 and axis2 can not be same. axis1={axis1} and axis2={axis2}")
    dtype = requested_dtype(dtype, "trace")
    shape = a.shape
    order = [i for i in range(a.ndim) if i not in (first, second)] + [first, second]
    a = lax.transpose(a, order)
    on_diagonal = eye(shape[first], shape[second], k=offset, dtype=bool)
    a = _where(on_diagonal, a, lax.full_like(a, 0))
    return array_sum(a, axis=(-2, -1), dtype=dtype)


def diagflat(v, k=0):
    """The matrix with the elements of v, in row-major order, on the diagonal number k.

    >>> jnp.diagflat(jnp.array([[1, 2]]), k=-1)
    Array([[0, 0, 0],
           [1, 0, 0],
           [0, 2, 0]], dtype=int32)
    """
    check_arraylike("diagflat", v)
    values = ravel(v)
    n = values.shape[0] + abs(k)
    flat = zeros(n * n, dtype=values.dtype)
    i = lax.iota(dtypes.default_int_dtype(), n - abs(k))
    # Row-major positions: the diagonal starts k columns to the right, or -k rows down.
    if k >= 0:
        index = add(add(i, k), multiply(i, n))
    else:
        index = add(i, multiply(subtract(i, k), n))
    return lax.reshape(flat.at[index].set(values), (n, n))


def diag_indices(n, ndim=2):
    """The indices of the main diagonal of an array with `ndim` axes of size n.

    Returns:
      A tuple of `ndim` int arrays [n].

    >>> jnp.zeros((2, 2)).at[jnp.diag_indices(2)].set(7.0)
    Array([[7., 0.],
           [0., 7.]], dtype=float32)
    """
    n = static_int(n, "'n' argument of jnp.diag_indices()")
    ndim = static_int(ndim, "'ndim' argument of jnp.diag_indices()")
    if n < 0:
        raise ValueError(f"n argument to diag_indices must be nonnegative, got {n}")
    if ndim < 0:
        raise ValueError(f"ndim argument to diag_indices must be nonnegative, got {ndim}")
    return (lax.iota(dtypes.default_int_dtype(), n),) * ndim


def diag_indices_from(arr):
    """The indices of the main diagonal of an array whose axes all have the same size.

    Raises:
      ValueError: the axes differ in size, or there are fewer than two.

    >>> rows, columns = jnp.diag_indices_from(jnp.zeros((3, 3)))
    >>> rows
    Array([0, 1, 2], dtype=int32)
    """
    arr = ensure_arraylike("diag_indices_from", arr)
    if arr.ndim < 2:
        raise ValueError("input array must be at least 2-d")
    if len(set(arr.shape)) != 1:
        raise ValueError("All dimensions of input must be of equal length")
    return diag_indices(arr.shape[0], ndim=arr.ndim)


def _upper_count(n: Any, m: Any, k: Any) -> Any:
    """Number of elements on and above the diagonal number k of an n x m matrix; sizes may have names."""
    whole = min_dim(n, max_dim(-k, 0))  # rows that lie above the diagonal from end to end
    longest = max_dim(m - max_dim(k, 0), 0)
    rows = min_dim(n - whole, longest)
    count = whole * m + rows * (rows + 1) // 2 + rows * (longest - rows)
    return max_dim(count, 0)  # the count is at least 0, but symbolic sizes do not show that


def _triangle_indices(name: str, triangle, n, k, m):
    n = static_int(n, f"n argument of jnp.{name}")
    k = static_int(k, f"k argument of jnp.{name}")
    m = n if m is None else static_int(m, f"m argument of jnp.{name}")
    size = _upper_count(n, m, k) if triangle is triu else _upper_count(m, n, -k)
    return tuple(nonzero(triangle(ones((n, m)), k=k), size=size))


def triu_indices(n, k=0, m=None):
    """The indices of the upper triangle of an n x m (default n x n) matrix.

    Returns:
      A pair of int arrays: rows and columns, row by row.

    >>> rows, columns = jnp.triu_indices(3, k=1)
    >>> rows, columns
    (Array([0, 0, 1], dtype=int32), Array([1, 2, 2], dtype=int32))
    """
    return _triangle_indices("triu_indices", triu, n, k, m)


def tril_indices(n, k=0, m=None):
    """The indices of the lower triangle of an n x m (default n x n) matrix.

    Returns:
      A pair of int arrays: rows and columns, row by row.

    >>> rows, columns = jnp.tril_indices(3, k=-1)
    >>> rows, columns
    (Array([1, 2, 2], dtype=int32), Array([0, 0, 1], dtype=int32))
    """
    return _triangle_indices("tril_indices", tril, n, k, m)


def _matrix_shape(name: str, arr) -> tuple[int, int]:
    shape = arr.shape if hasattr(arr, "shape") else asarray(arr).shape
    if len(shape) != 2:
        raise ValueError("Only 2-D inputs are accepted")
    return shape


def triu_indices_from(arr, k=0):
    """The indices of the upper triangle of a matrix.

    Raises:
      ValueError: the array does not have two axes.

    >>> x = jnp.array([[1, 2], [3, 4]])
    >>> x[jnp.triu_indices_from(x)]
    Array([1, 2, 4], dtype=int32)
    """
    n, m = _matrix_shape("triu_indices_from", arr)
    return triu_indices(n, k=k, m=m)


def tril_indices_from(arr, k=0):
    """The indices of the lower triangle of a matrix.

    Raises:
      ValueError: the array does not have two axes.

    >>> x = jnp.array([[1, 2], [3, 4]])
    >>> x[jnp.tril_indices_from(x)]
    Array([1, 3, 4], dtype=int32)
    """
    n, m = _matrix_shape("tril_indices_from", arr)
    return tril_indices(n, k=k, m=m)
