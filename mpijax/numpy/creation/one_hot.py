"""Rows of an identity matrix, chosen by integers."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.base.warn import warn_user
from mpijax.numpy import util
from mpijax.numpy.creation.constructors import asarray
from mpijax.transforms.jit import jit


def one_hot(x: Any, num_classes: int, *, dtype: Any = None, axis: int | Any = -1) -> Any:
    """Vectors of zeros with a one at position `x`.

    Args:
      x: integers of any shape. An integer outside of [0, num_classes) gives zeros only.
      num_classes: length of the vectors.
      dtype: dtype of the result; default float.
      axis: axis of the vectors in the result. Or the name of a mapped axis of size `num_classes`: each position on that
        axis then gets its element of the vectors.

    Returns:
      Array with the shape of `x` and one more axis, of size `num_classes`.

    >>> mpijax.nn.one_hot(jnp.array([1, 0, 5]), 3)
    Array([[0., 1., 0.],
           [1., 0., 0.],
           [0., 0., 0.]], dtype=float32)
    """
    num_classes = util.static_int(num_classes, "The error arose in jax.nn.one_hot argument `num_classes`.")
    x = asarray(x)
    if not dtypes.isdtype(x.dtype, "integral"):
        warn_user(
            f"jax.nn.one_hot input should be integer-typed; got dtype={x.dtype}",
            DeprecationWarning,
        )
    return _one_hot(x, num_classes, dtype=dtypes.default_float_dtype() if dtype is None else dtype, axis=axis)


@jit(static_argnames=("num_classes", "dtype", "axis"))
def _one_hot(x, num_classes, *, dtype, axis):
    try:
        axis = operator.index(axis)
    except TypeError:
        return _one_hot_over_named_axis(x, num_classes, dtype, axis)
    position = util.canonical_axis(axis, x.ndim + 1)
    shape = [1] * x.ndim
    shape.insert(position, num_classes)
    return (lax.expand_dims(x, (axis,)) == lax.broadcasted_iota(x.dtype, shape, position)).astype(dtype)


def _one_hot_over_named_axis(x, num_classes, dtype, axis):
    size = lax.axis_size(axis)
    if num_classes != size:
        raise ValueError(f"Expected num_classes to match the size of axis {axis}, but {num_classes} != {size}")
    return asarray(x == lax.axis_index(axis), dtype=np.dtype(dtype))
