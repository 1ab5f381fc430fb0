"""`jax.numpy.linalg`: linear algebra on stacks of matrices, the last two axes of an array."""

from __future__ import annotations

import itertools
from typing import Any

from mpijax import lax
from mpijax.numpy.creation import matrices
from mpijax.numpy.linear_algebra import linear
from mpijax.numpy.linear_algebra.contraction import einsum
from mpijax.numpy.linear_algebra.determinants import det, slogdet
from mpijax.numpy.linear_algebra.factorizations import cholesky, eig, eigh, eigvals, eigvalsh, qr, svd, svdvals
from mpijax.numpy.linear_algebra.norms import matrix_norm, norm, vector_norm
from mpijax.numpy.linear_algebra.products import cross as _cross
from mpijax.numpy.linear_algebra.solutions import (
    cond,
    inv,
    lstsq,
    matrix_power,
    matrix_rank,
    pinv,
    solve,
    tensorinv,
    tensorsolve,
)
from mpijax.numpy.util import ensure_arraylike

__all__ = [
    "cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq",
    "matmul", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer",
    "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot", "tensorinv", "tensorsolve", "trace",
    "vecdot", "vector_norm",
]  # fmt: skip


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Cross products of vectors with three elements along an axis; the other axes broadcast.

    Raises:
      ValueError: the size of the axis is not 3.

    >>> jnp.linalg.cross(np.array([1, 0, 0]), np.array([0, 1, 0])).tolist()
    [0, 0, 1]
    """
    x1, x2 = ensure_arraylike("jnp.linalg.outer", x1, x2)
    if x1.shape[axis] != 3 or x2.shape[axis] != 3:
        raise ValueError(
            "Both input arrays must be (arrays of) 3-dimensional vectors, but they have "
            f"x1.shape[axis]={x1.shape[axis]!r} and x2.shape[axis]={x2.shape[axis]!r}"
        )
    return _cross(x1, x2, axis=axis)


def outer(x1: Any, x2: Any, /) -> Any:
    """Products of each element of x1, of shape [m], with each element of x2, of shape [n]: an array of shape [m, n].

    Raises:
      ValueError: an argument is not a vector.

    >>> jnp.linalg.outer(np.array([1, 2]), np.array([3, 4])).tolist()
    [[3, 4], [6, 8]]
    """
    x1, x2 = ensure_arraylike("jnp.linalg.outer", x1, x2)
    if x1.ndim != 1 or x2.ndim != 1:
        raise ValueError(f"Input arrays must be one-dimensional, but they are x1.ndim={x1.ndim!r} x2.ndim={x2.ndim!r}")
    return x1[:, None] * x2[None, :]


def matrix_transpose(x: Any, /) -> Any:
    """The transpose of each matrix: from shape [..., m, n] to [..., n, m].

    Raises:
      ValueError: x has fewer than two axes.

    >>> jnp.linalg.matrix_transpose(jnp.array([[1, 2], [3, 4]])).tolist()
    [[1, 3], [2, 4]]
    """
    x = ensure_arraylike("jnp.linalg.matrix_transpose", x)
    if x.ndim < 2:
        raise ValueError(f"matrix_transpose requires at least 2 dimensions; got ndim={x.ndim!r}")
    return lax.transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Inner products of vectors along an axis, with x1 conjugated, as `jax.numpy.vecdot`.

    Args:
      x1, x2: arrays; the other axes broadcast.
      axis: axis of the vectors, of the same size in both.

    Raises:
      ValueError: vectors of different sizes.

    >>> jnp.linalg.vecdot(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 10]))
    Array([21, 43], dtype=int32)
    """
    x1, x2 = ensure_arraylike("jnp.linalg.vecdot", x1, x2)
    return linear.vecdot(x1, x2, axis=axis, precision=precision, preferred_element_type=preferred_element_type)


def matmul(x1: Any, x2: Any, /, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Products of matrices of shapes [..., m, k] and [..., k, n], or of vectors of shape [k], as `jax.numpy.matmul`.

    Raises:
      ValueError: an argument is a scalar.
      TypeError: the sizes k differ.

    >>> jnp.linalg.matmul(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 10]))
    Array([21, 43], dtype=int32)
    """
    x1, x2 = ensure_arraylike("jnp.linalg.matmul", x1, x2)
    return linear.matmul(x1, x2, precision=precision, preferred_element_type=preferred_element_type)


def tensordot(
    x1: Any,
    x2: Any,
    /,
    *,
    axes: Any = 2,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Sums of products over several axes of two arrays, as `jax.numpy.tensordot`.

    Args:
      x1, x2: arrays.
      axes: n, for the last n axes of x1 and the first n axes of x2; or a pair of axes, or a pair of sequences of axes.

    Returns:
      Array with the other axes of x1, then the other axes of x2.

    Raises:
      TypeError: the sizes of the axes differ.

    >>> jnp.linalg.tensordot(jnp.ones((2, 3, 4)), jnp.ones((3, 4, 5))).shape
    (2, 5)
    """
    x1, x2 = ensure_arraylike("jnp.linalg.tensordot", x1, x2)
    kind = {"precision": precision, "preferred_element_type": preferred_element_type, "out_sharding": out_sharding}
    return linear.tensordot(x1, x2, axes=axes, **kind)


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """The diagonal number `offset` of each matrix, of shape [..., m, n]; above the main diagonal if positive. The
    result has the shape [..., k].

    Raises:
      ValueError: x has fewer than two axes.

    >>> jnp.linalg.diagonal(jnp.array([[1, 2], [3, 4]]))
    Array([1, 4], dtype=int32)
    """
    x = ensure_arraylike("jnp.linalg.diagonal", x)
    return matrices.diagonal(x, offset=offset, axis1=-2, axis2=-1)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """The sum along the diagonal number `offset` of each matrix, of shape [..., m, n]. The result has the shape [...],
    and the dtype `dtype`, by default that of `sum`.

    Raises:
      ValueError: x has fewer than two axes.

    >>> jnp.linalg.trace(jnp.array([[1, 2], [3, 4]]))
    Array(5, dtype=int32)
    """
    x = ensure_arraylike("jnp.linalg.trace", x)
    return matrices.trace(x, offset=offset, axis1=-2, axis2=-1, dtype=dtype)


def multi_dot(arrays: Any, *, precision: Any = None) -> Any:
    """The product of several matrices, in the order with the fewest multiplications.

    Args:
      arrays: at least two matrices; the first and the last may be vectors.

    Raises:
      ValueError: fewer than two arrays, a wrong number of axes, or sizes that do not match.

    >>> jnp.linalg.multi_dot([jnp.ones((2, 3)), jnp.ones((3, 4)), jnp.ones(4)])
    Array([12., 12.], dtype=float32)
    """
    arrays = list(ensure_arraylike("jnp.linalg.multi_dot", *arrays))
    _check_multi_dot(arrays)
    axes: list[tuple[int, ...]] = [(i, i + 1) for i in range(len(arrays))]
    if arrays[0].ndim == 1:
        axes[0] = axes[0][1:]
    if arrays[-1].ndim == 1:
        axes[-1] = axes[-1][:1]
    operands = itertools.chain(*zip(arrays, axes, strict=True))
    return einsum(*operands, optimize="auto", precision=precision)


def _check_multi_dot(arrays: list[Any]) -> None:
    shapes = [a.shape for a in arrays]
    if len(arrays) < 2:
        raise ValueError(f"multi_dot requires at least two arrays; got len(arrays)={len(arrays)}")
    if any(a.ndim not in (1, 2) for a in (arrays[0], arrays[-1])) or any(a.ndim != 2 for a in arrays[1:-1]):
        raise ValueError(
            "multi_dot: input arrays must all be two-dimensional, except for the first and last array which may be 1 "
            f"or 2 dimensional. Got array shapes {shapes}"
        )
    if any(a.shape[-1] != b.shape[0] for a, b in itertools.pairwise(arrays)):
        raise ValueError(
            "multi_dot: last dimension of each array must match first dimension of following array. Got array shapes "
            f"{shapes}"
        )
