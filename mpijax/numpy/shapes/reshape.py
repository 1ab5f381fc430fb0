"""Changes of the shape of an array: axes split, merged, moved, added, removed and broadcast."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core.shapes.dimensions import DimExpr
from mpijax.core.tracing.out_sharding import explicit_sharding, takes_out_sharding, with_out_sharding
from mpijax.core.types.array_api import Array
from mpijax.numpy.creation.constructors import array, asarray
from mpijax.numpy.util import broadcast_to as _broadcast_to
from mpijax.numpy.util import (
    broadcast_together,
    canonical_axis,
    check_arraylike,
    ensure_arraylike,
    ensure_arraylike_tuple,
    index_tuple,
)
from mpijax.ops.shapes.moves import canonical_shape
from mpijax.transforms.jit import jit


def resolved_shape(old: tuple[int, ...], shape: Any) -> tuple[int, ...]:
    """The requested shape, with -1 replaced by the size that follows from the others.

    Raises:
      TypeError: the sizes do not match, or there is more than one -1.
    """
    new = canonical_shape(shape if isinstance(shape, Iterable) else (shape,))
    unknown = [i for i, n in enumerate(new) if n == -1]
    size = math.prod(old)
    if len(unknown) > 1:
        raise TypeError(f"can only specify one unknown axis size with a `-1` value, got {shape}")
    if unknown:
        i = unknown[0]
        others = math.prod(new[:i] + new[i + 1 :])
        if others == 0 or size % others:
            raise TypeError(
                f"cannot reshape array of shape {old} (size {size}) into shape {shape} because the product "
                f"of specified axis sizes ({others}) does not evenly divide {size}"
            )
        return (*new[:i], size // others, *new[i + 1 :])
    if size != math.prod(new):
        raise TypeError(
            f"cannot reshape array of shape {old} (size {size}) into shape {shape} (size {math.prod(new)})"
        )
    return new


def reshape(a, shape, order="C", *, copy=None, out_sharding=None):
    """The elements of `a`, in row-major order (column-major for order "F"), in another shape.

    One size may be -1; it follows from the others. NumPy reshapes its own arrays, and the result is NumPy's.

    Raises:
      TypeError: the shape has another number of elements.

    >>> jnp.reshape(jnp.arange(6), (2, -1))
    Array([[0, 1, 2],
           [3, 4, 5]], dtype=int32)
    """
    del copy
    check_arraylike("reshape", a)
    if out_sharding is None and not isinstance(a, Array) and hasattr(a, "reshape"):
        return a.reshape(shape, order=order)
    a = asarray(a)
    new = resolved_shape(a.shape, shape)
    if order == "C":
        return lax.reshape(a, new, out_sharding=out_sharding)
    if order == "F":
        sharding = explicit_sharding(out_sharding, "reshape")
        if sharding is not None:
            sharding = sharding.update(spec=sharding.spec.update(sharding.spec.padded(len(new))[::-1]))
        backwards = lax.reshape(a, new[::-1], dimensions=tuple(range(a.ndim))[::-1], out_sharding=sharding)
        return with_out_sharding(lax.transpose(backwards, tuple(range(len(new)))[::-1]), out_sharding, "reshape")
    if order == "A":
        raise NotImplementedError("np.reshape order=A is not implemented.")
    raise ValueError(f"Unexpected value for 'order' argument: {order}.")


def ravel(a, order="C", *, out_sharding=None):
    """The elements of `a` as a 1-d array.

    Args:
      order: "C" for row-major order, "F" for column-major order.

    >>> jnp.ravel(jnp.array([[1, 2], [3, 4]]), order="F")
    Array([1, 3, 2, 4], dtype=int32)
    """
    a = ensure_arraylike("ravel", a)
    if order == "K":
        raise NotImplementedError("Ravel not implemented for order='K'.")
    return reshape(a, (a.size,), order, out_sharding=out_sharding)


# -- order of axes -------------------------------------------------------------------------------------------


def transpose(a, axes=None):
    """The array with its axes in the order `axes` (default: reversed).

    Raises:
      TypeError: `axes` does not contain each axis exactly once.

    >>> jnp.transpose(jnp.array([[1, 2, 3], [4, 5, 6]]))
    Array([[1, 4],
           [2, 5],
           [3, 6]], dtype=int32)
    """
    a = ensure_arraylike("transpose", a)
    if axes is None:
        return lax.transpose(a, tuple(range(a.ndim))[::-1])
    return lax.transpose(a, [canonical_axis(i, a.ndim) for i in axes])


def permute_dims(a, /, axes):
    """The array with its axes in the order `axes`.

    Raises:
      TypeError: `axes` does not contain each axis exactly once.

    >>> jnp.permute_dims(jnp.ones((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    return lax.transpose(ensure_arraylike("permute_dims", a), axes)


def matrix_transpose(x, /):
    """Matrices in the last two axes transposed.

    Raises:
      ValueError: fewer than two axes.

    >>> jnp.matrix_transpose(jnp.ones((5, 2, 3))).shape
    (5, 3, 2)
    """
    x = ensure_arraylike("matrix_transpose", x)
    if x.ndim < 2:
        raise ValueError(f"x must be at least two-dimensional for matrix_transpose; got ndim={x.ndim!r}")
    n = x.ndim
    return lax.transpose(x, (*range(n - 2), n - 1, n - 2))


def swapaxes(a, axis1, axis2):
    """The array with two axes exchanged.

    >>> jnp.swapaxes(jnp.ones((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    a = ensure_arraylike("swapaxes", a)
    order = np.arange(a.ndim)
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return lax.transpose(a, order.tolist())


def moveaxis(a, source, destination):
    """The array with the axes `source` moved to the positions `destination`. The other axes keep their order.

    Raises:
      ValueError: `source` and `destination` have different lengths, or the array does not have an axis.

    >>> jnp.moveaxis(jnp.ones((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    a = ensure_arraylike("moveaxis", a)
    source = tuple(canonical_axis(i, a.ndim) for i in index_tuple(source))
    destination = tuple(canonical_axis(i, a.ndim) for i in index_tuple(destination))
    if len(source) != len(destination):
        raise ValueError(f"Inconsistent number of elements: {len(source)} vs {len(destination)}")
    order = [i for i in range(a.ndim) if i not in source]
    for to, axis in sorted(zip(destination, source)):
        order.insert(to, axis)
    return lax.transpose(a, order)


# -- axes of size 1 ------------------------------------------------------------------------------------------


def expand_dims(a, axis):
    """The array with new axes of size 1 at the positions `axis` of the result.

    Raises:
      ValueError: a position occurs twice, or does not exist.

    >>> jnp.expand_dims(jnp.ones((2, 3)), (0, 2)).shape
    (1, 2, 1, 3)
    """
    return lax.expand_dims(ensure_arraylike("expand_dims", a), index_tuple(axis))


def squeeze(a, axis=None):
    """The array without the axes `axis` (default: all) of size 1.

    Raises:
      ValueError: an axis of `axis` does not have size 1.

    >>> jnp.squeeze(jnp.ones((1, 3, 1)), axis=0).shape
    (3, 1)
    """
    a = ensure_arraylike("squeeze", a)
    if axis is None and any(isinstance(n, DimExpr) for n in a.shape):
        raise ValueError(
            "jnp.squeeze with axis=None is not supported with shape polymorphism, because a symbolic dimension may be "
            f"1. Got shape {a.shape}. Pass the axes."
        )
    axes = tuple(i for i, n in enumerate(a.shape) if n == 1) if axis is None else index_tuple(axis)
    return lax.squeeze(a, axes)


def _at_least(name: str, arys: tuple[Any, ...], convert):
    check_arraylike(name, *arys)
    return convert(arys[0]) if len(arys) == 1 else [convert(a) for a in arys]


@jit
def atleast_1d(*arys):
    """Arrays with at least one axis: one array for one argument, else a list.

    >>> jnp.atleast_1d(5.0)
    Array([5.], dtype=float32, weak_type=True)
    """
    return _at_least("atleast_1d", arys, lambda a: array(a, copy=False, ndmin=1))


@jit
def atleast_2d(*arys):
    """Arrays with at least two axes; new axes are in front. One array for one argument, else a list.

    >>> jnp.atleast_2d(jnp.array([1, 2]))
    Array([[1, 2]], dtype=int32)
    """
    return _at_least("atleast_2d", arys, lambda a: array(a, copy=False, ndmin=2))


@jit
def atleast_3d(*arys):
    """Arrays with at least three axes, (n,) as (1, n, 1) and (n, m) as (n, m, 1).

    >>> jnp.atleast_3d(jnp.ones((2, 3))).shape
    (2, 3, 1)
    """
    if len(arys) > 1:
        check_arraylike("atleast_3d", *arys)
        return [atleast_3d(a) for a in arys]
    return _at_least("atleast_3d", arys, lambda a: _with_three_axes(asarray(a)))


def _with_three_axes(a):
    new = {0: (0, 1, 2), 1: (0, 2), 2: (2,)}.get(a.ndim)
    return a if new is None else lax.expand_dims(a, new)


# -- broadcasting --------------------------------------------------------------------------------------------


def broadcast_shapes(*shapes):
    """The shape that arrays of these shapes broadcast to.

    Raises:
      ValueError: they do not broadcast.

    >>> jnp.broadcast_shapes((2, 1), (3,), ())
    (2, 3)
    """
    if not shapes:
        return ()
    return lax.broadcast_shapes(*((s,) if np.ndim(s) == 0 else tuple(s) for s in shapes))


def broadcast_arrays(*args):
    """The arrays broadcast to their common shape, as a list.

    Raises:
      ValueError: they do not broadcast.

    >>> x, y = jnp.broadcast_arrays(jnp.array([1, 2]), jnp.array([[10], [20]]))
    >>> x
    Array([[1, 2],
           [1, 2]], dtype=int32)
    """
    return broadcast_together(*ensure_arraylike_tuple("broadcast_arrays", args))


@takes_out_sharding
def broadcast_to(array, shape, *, out_sharding=None):
    """The array broadcast to a shape.

    Raises:
      ValueError: it does not broadcast to that shape.

    >>> jnp.broadcast_to(jnp.array([1, 2]), (2, 2))
    Array([[1, 2],
           [1, 2]], dtype=int32)
    """
    return _broadcast_to(array, shape)
