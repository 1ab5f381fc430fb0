"""Norms of vectors and matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.numpy.linear_algebra.factorizations import inexact, svd
from mpijax.numpy.reductions.standard import amax, amin
from mpijax.numpy.reductions.standard import sum as sum_of
from mpijax.numpy.shapes.reshape import expand_dims, moveaxis
from mpijax.numpy.ufuncs.arithmetic import abs as magnitude
from mpijax.numpy.ufuncs.arithmetic import power
from mpijax.numpy.ufuncs.complexes import conj, real
from mpijax.numpy.ufuncs.elementwise import sqrt
from mpijax.numpy.util import canonical_axis, ensure_arraylike, scalar_like
from mpijax.transforms.jit import jit


def _root_of_squares(x, axis, keepdims):
    return sqrt(sum_of(real(x * conj(x)), axis=axis, keepdims=keepdims))


@jit(static_argnames=("ord", "axis", "keepdims"))
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Norms of vectors along one axis, of matrices in two axes, or of all elements.

    Args:
      x: an array.
      ord: for matrices "fro" (the default), "nuc", 1, -1, 2, -2, inf or -inf; for vectors any number, 2 by default.
      axis: one axis, a pair of axes, or None for all axes. If `ord` is None, too, x may have any number of axes.
      keepdims: keep the axes, with size 1.

    Raises:
      ValueError: more than two axes, an axis that x does not have, or an order that is not listed.

    >>> float(jnp.linalg.norm(np.array([3.0, 4.0])))
    5.0
    """
    x = inexact("norm", x)
    if axis is None and ord is None:
        return _root_of_squares(x, None, keepdims)
    if axis is None:
        axis = tuple(range(x.ndim))
    axis = tuple(canonical_axis(i, x.ndim) for i in (axis if isinstance(axis, tuple) else (axis,)))
    if len(axis) == 1:
        return vector_norm(x, ord=2 if ord is None else ord, axis=axis, keepdims=keepdims)
    if len(axis) == 2:
        return _matrix_norm(x, ord, axis, keepdims)
    raise ValueError(
        f"Improper number of axes for norm: axis={axis!r}. Pass one axis to compute a vector-norm, or two axes to "
        "compute a matrix-norm."
    )


def _matrix_norm(x, ord, axis, keepdims):
    rows, columns = axis
    if ord is None or ord in ("f", "fro"):
        return _root_of_squares(x, axis, keepdims)
    if ord in (1, -1):
        return _extreme_sum(x, ord > 0, rows, columns, keepdims)
    if ord in (np.inf, -np.inf):
        return _extreme_sum(x, ord > 0, columns, rows, keepdims)
    if ord not in ("nuc", 2, -2):
        raise ValueError(f"Invalid order '{ord}' for matrix norm.")
    s = svd(moveaxis(x, axis, (-2, -1)), compute_uv=False)
    if ord == "nuc":
        found = sum_of(s, axis=-1)
    else:
        found = amax(s, axis=-1, initial=0) if ord == 2 else amin(s, axis=-1)
    return expand_dims(found, axis) if keepdims else found


def _extreme_sum(x, largest, along, over, keepdims):
    """The largest or the smallest, over one axis, of the sums of absolute values along the other."""
    sums = sum_of(magnitude(x), axis=along, keepdims=keepdims)
    over -= not keepdims and over > along
    if largest:
        return amax(sums, axis=over, keepdims=keepdims, initial=0)
    return amin(sums, axis=over, keepdims=keepdims)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """Norms of vectors: the sum of |x|^ord, to the power 1 / ord.

    Args:
      x: an array.
      axis: axes whose elements form one vector; None for all axes.
      keepdims: keep these axes, with size 1.
      ord: a number. inf and -inf give the largest and the smallest absolute value, and 0 counts elements that are not
        0.

    Raises:
      ValueError: the order is a string, or x does not have the axes.

    >>> float(jnp.linalg.vector_norm(np.array([3.0, 4.0])))
    5.0
    """
    x = ensure_arraylike("jnp.linalg.vector_norm", x)
    if ord is None or ord == 2:
        return _root_of_squares(x, axis, keepdims)
    if isinstance(ord, str):
        hint = f" Use '{ord.replace('inf', 'jax.numpy.inf')}' instead." if ord in ("inf", "-inf") else ""
        raise ValueError(f"Invalid order '{ord}' for vector norm.{hint}")
    if ord == np.inf:
        return amax(magnitude(x), axis=axis, keepdims=keepdims, initial=0)
    if ord == -np.inf:
        return amin(magnitude(x), axis=axis, keepdims=keepdims)
    if ord == 0:
        return sum_of(x != 0, dtype=dtypes.finfo(x.dtype).dtype, axis=axis, keepdims=keepdims)
    if ord == 1:
        return sum_of(magnitude(x), axis=axis, keepdims=keepdims)
    sizes = magnitude(x)
    exponent = scalar_like(sizes, ord)
    total = sum_of(sizes**exponent, axis=axis, keepdims=keepdims)
    return power(total, scalar_like(sizes, 1.0 / exponent))


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """Norms of matrices of shape [..., m, n]; the arguments are those of `norm`.

    Raises:
      ValueError: fewer than two axes, or an order that is not listed.

    >>> float(jnp.linalg.matrix_norm(np.array([[3.0, 4.0]])))
    5.0
    """
    x = ensure_arraylike("jnp.linalg.matrix_norm", x)
    return norm(x, ord=ord, keepdims=keepdims, axis=(-2, -1))
