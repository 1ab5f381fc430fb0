"""Helpers for rules of linear algebra: transposes, triangles, diagonals, products.

Arguments are arrays or tracers. Their operators and methods are those of `mpijax.numpy`, which is imported at the first
use.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core.shapes.dimensions import min_dim
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise.binary import add
from mpijax.ops.elementwise.compare import eq, ge
from mpijax.ops.elementwise.convert import convert_element_type
from mpijax.ops.elementwise.select import select
from mpijax.ops.products.dot import Precision, batch_matmul, dot
from mpijax.ops.shapes.creation import broadcasted_iota, full, full_like, iota
from mpijax.ops.shapes.reshape import broadcast, broadcast_in_dim, expand_dims
from mpijax.ops.shapes.reshape import transpose as permuted

_I32 = np.dtype(np.int32)


def transposed(x: Any) -> Any:
    """The transpose of each matrix."""
    n = x.ndim
    return permuted(x, (*range(n - 2), n - 1, n - 2))


def adjoint(x: Any) -> Any:
    """The conjugate transpose of each matrix."""
    return transposed(x).conj()


def symmetrized(x: Any) -> Any:
    """The Hermitian part of each matrix, (x + x^H) / 2. Raises TypeError unless x is [..., n, n]."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise TypeError(f"symmetrize_input needs square matrices [..., n, n], got an array of shape {x.shape}")
    return (x + adjoint(x)) / 2


def lower_triangle(x: Any, k: int = 0) -> Any:
    """x with zeros above diagonal k."""
    return select(broadcast(_triangle(x, k), x.shape[:-2]), x, full_like(x, 0))


def upper_triangle(x: Any, k: int = 0) -> Any:
    """x with zeros below diagonal k."""
    return select(broadcast(_triangle(x, k - 1), x.shape[:-2]), full_like(x, 0), x)


def _triangle(x: Any, k: int) -> Any:
    """A bool matrix that is true on and below diagonal k."""
    shape = x.shape[-2:]
    rows = add(broadcasted_iota(_I32, shape, 0), np.int32(k))
    return ge(rows, broadcasted_iota(_I32, shape, 1))


def eye(dtype: Any, shape: tuple[int, int]) -> Any:
    """Ones on the diagonal, zeros elsewhere."""
    rows = add(broadcasted_iota(_I32, shape, 0), np.int32(0))
    return convert_element_type(eq(rows, broadcasted_iota(_I32, shape, 1)), dtype)


def eye_beside(x: Any) -> Any:
    """The identity with the dtype and size of the matrices in x, with batch axes of size 1."""
    return expand_dims(eye(x.dtype, x.shape[-2:]), range(x.ndim - 2))


def diagonal(x: Any) -> Any:
    """The diagonal of each matrix."""
    i = iota(_I32, min_dim(x.shape[-2], x.shape[-1]))
    return x[..., i, i]


def diagonal_matrix(x: Any) -> Any:
    """Matrices with the vectors of x on their diagonals."""
    i = iota(_I32, x.shape[-1])
    return full((*x.shape, x.shape[-1]), 0, x.dtype).at[..., i, i].set(x)


def exact_product(x: Any, y: Any) -> Any:
    """Products of matrices in full precision."""
    product = dot if x.ndim == 2 else batch_matmul
    return product(x, y, precision=Precision.HIGHEST)


def broadcast_behind(x: Any, shape: tuple[int, ...]) -> Any:
    """x broadcast along new leading axes, and along axes of size 1, to `shape`."""
    ndim = typeof(x).ndim
    return broadcast_in_dim(x, shape, range(len(shape) - ndim, len(shape)))
