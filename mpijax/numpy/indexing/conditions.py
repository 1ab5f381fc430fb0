"""Choice of elements by a condition, and positions where a condition holds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.shapes.dimensions import is_symbolic_dim
from mpijax.core.types.array_api import is_whole
from mpijax.numpy import util
from mpijax.numpy.creation.constructors import asarray
from mpijax.numpy.creation.fills import zeros
from mpijax.numpy.indexing.parse import known_value
from mpijax.numpy.reductions.cumulative import cumsum
from mpijax.numpy.ufuncs.arithmetic import floor_divide, remainder
from mpijax.numpy.ufuncs.floats import clip


def where(condition: Any, x: Any = None, y: Any = None, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Elements of `x` where `condition` holds and of `y` elsewhere. Without `x` and `y`, `nonzero(condition)`.

    Args:
      condition: bool array, or numbers, which are true unless 0.
      x, y: arrays; the three broadcast against each other.
      size, fill_value: of `nonzero`.

    Returns:
      Array of the broadcast shape and the promoted dtype of `x` and `y`; or a tuple of arrays of positions.

    >>> x = jnp.array([-2, 3, -1])
    >>> jnp.where(x > 0, x, 0)
    Array([0, 3, 0], dtype=int32)
    """
    if x is None and y is None:
        util.check_arraylike("where", condition)
        return nonzero(condition, size=size, fill_value=fill_value)
    util.check_arraylike("where", condition, *(a for a in (x, y) if a is not None))
    if size is not None or fill_value is not None:
        raise ValueError("size and fill_value arguments cannot be used in three-term where function.")
    if x is None or y is None:
        raise ValueError(
            f"Either both or neither of the x and y arguments should be provided to jax.numpy.where, got {x} and {y}."
        )
    return util._where(condition, x, y)


_SIZE_CONTEXT = (
    "The size argument of jnp.nonzero must be statically specified to use jnp.nonzero within JAX transformations."
)


def nonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> tuple[Any, ...]:
    """Positions of the elements that are not 0, in order.

    Args:
      a: array with at least one axis.
      size: the number of positions to return; required if `a` is traced. Further positions are dropped, and missing
        ones get `fill_value`. Default: the number of positions found.
      fill_value: value for missing positions, or a tuple with a value for each axis. Default 0.

    Returns:
      For each axis an int array [size] of positions along it.

    Raises:
      ConcretizationTypeError: `a` is traced and `size` is not given.

    >>> jnp.nonzero(jnp.array([0, 5, 0, 7]), size=3, fill_value=-1)
    (Array([ 1,  3, -1], dtype=int32),)
    """
    arr = util.ensure_arraylike("nonzero", a)
    if arr.ndim == 0:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use jnp.atleast_1d(scalar).nonzero() instead.")
    if size is None:
        known = known_value(arr)
        if known is not None and is_whole(known):
            return tuple(asarray(p, dtype=int) for p in np.nonzero(np.asarray(known)))
    mask = arr if arr.dtype == np.bool_ else arr != 0
    count = util.static_int(mask.sum() if size is None else size, _SIZE_CONTEXT)
    if arr.size == 0 or count == 0:
        return tuple(zeros(count, int) for _ in arr.shape)
    positions = _unravel(_flat_positions(mask, count), arr.shape)
    return positions if fill_value is None else _filled(positions, mask, count, fill_value)


def _flat_positions(mask: Any, count: int) -> Any:
    """int array [count]: positions of the true elements of the flattened mask.

    The position of a true element follows from running counts: the number of elements with a running count of at most
    k is the position of the k-th true element.
    """
    running = cumsum(mask)
    hits = zeros(count, running.dtype).at[clip(running, 0)].add(np.array(1, running.dtype), mode="drop")
    return cumsum(hits)


def _unravel(flat: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    products = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    strides = [n if is_symbolic_dim(n) else np.array(n).astype(flat.dtype) for n in products]
    return tuple(remainder(floor_divide(flat, stride), size) for stride, size in zip(strides, shape, strict=True))


def _filled(positions: tuple[Any, ...], mask: Any, count: int, fill_value: Any) -> tuple[Any, ...]:
    values = fill_value if isinstance(fill_value, tuple) else (fill_value,) * mask.ndim
    if any(util.shape_of(v) != () for v in values):
        raise ValueError(f"fill_value must be a scalar or a tuple of length {mask.ndim}; got {fill_value}")
    missing = lax.iota(dtypes.default_int_dtype(), count) >= mask.sum()
    return tuple(where(missing, value, p) for value, p in zip(values, positions, strict=True))


def flatnonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Positions in the flattened array of the elements that are not 0; see `nonzero`.

    >>> jnp.flatnonzero(jnp.array([[0, 5], [7, 0]]))
    Array([1, 2], dtype=int32)
    """
    return nonzero(util.ensure_arraylike("flatnonzero", a).ravel(), size=size, fill_value=fill_value)[0]


def argwhere(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Positions of the elements that are not 0: int array [count, a.ndim]. See `nonzero`.

    >>> jnp.argwhere(jnp.array([[0, 5], [7, 0]]))
    Array([[0, 1],
           [1, 0]], dtype=int32)
    """
    a = util.ensure_arraylike("argwhere", a)
    rows = jnp.transpose(jnp.vstack(nonzero(jnp.atleast_1d(a), size=size, fill_value=fill_value)))
    return rows if a.ndim else rows[:0].reshape(rows.shape[0], 0)
