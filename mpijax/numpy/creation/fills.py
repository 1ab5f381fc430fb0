"""Arrays of one value: zeros, ones, full, empty, and their `_like` forms with the shape and dtype of another array."""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.sharding.shardings import Sharding
from mpijax.core.types.array_api import Array
from mpijax.core.types.avals import ShapeDtypeStruct
from mpijax.numpy.creation.constructors import asarray
from mpijax.numpy.util import (
    broadcast_to,
    canonical_shape,
    check_arraylike,
    device_sharding,
    place,
    requested_dtype,
    shape_of,
    unwrap,
)


def _filled(name: str, shape: Any, value: int, dtype: Any, device: Any, out_sharding: Any):
    if isinstance(shape, types.GeneratorType):
        raise TypeError("expected sequence object with len >= 0 or a single integer")
    if isinstance(dtype, int) and isinstance(shape, int):
        raise TypeError(
            f"Cannot interpret '{dtype}' as a data type.\n\nDid you accidentally write "
            f"`jax.numpy.{name}({shape}, {dtype})` when you meant `jax.numpy.{name}(({shape}, {dtype}))`, "
            "i.e. with a single tuple argument for the shape?"
        )
    dtype = dtypes.default_float_dtype() if dtype is None else dtypes.check_user_dtype_supported(dtype, name)
    sharding = device_sharding(device, out_sharding, f"jnp.{name}")
    return lax.full(canonical_shape(shape), value, dtype, sharding=sharding)


def zeros(shape, dtype=None, *, device=None, out_sharding=None):
    """An array of zeros; the default dtype is float32 (float64 with jax_enable_x64).

    Args:
      shape: an int or a sequence of them, known while tracing.
      device, out_sharding: where to put the array; give at most one of the two.

    >>> jnp.zeros((2, 3))
    Array([[0., 0., 0.],
           [0., 0., 0.]], dtype=float32)
    """
    return _filled("zeros", shape, 0, dtype, device, out_sharding)


def ones(shape, dtype=None, *, device=None, out_sharding=None):
    """An array of ones; the default dtype is float32 (float64 with jax_enable_x64).

    Args:
      shape: an int or a sequence of them, known while tracing.
      device, out_sharding: where to put the array; give at most one of the two.

    >>> jnp.ones((2, 2), dtype=jnp.int32)
    Array([[1, 1],
           [1, 1]], dtype=int32)
    """
    return _filled("ones", shape, 1, dtype, device, out_sharding)


def empty(shape, dtype=None, *, device=None, out_sharding=None):
    """An array of zeros; mpijax has no uninitialised arrays.

    The arguments are those of `zeros`.

    >>> jnp.empty((2, 0)).shape
    (2, 0)
    """
    return _filled("empty", shape, 0, dtype, device, out_sharding)


def full(shape, fill_value, dtype=None, *, device=None, out_sharding=None):
    """An array of `fill_value`, which may be an array that broadcasts to the shape.

    The default dtype is that of `fill_value`.

    >>> jnp.full((2, 3), jnp.array([1, 2, 3]))
    Array([[1, 2, 3],
           [1, 2, 3]], dtype=int32)
    """
    dtype = requested_dtype(dtype, "full")
    check_arraylike("full", fill_value)
    sharding = device_sharding(device, out_sharding, "full")
    if not shape_of(fill_value):
        return lax.full(canonical_shape(shape), fill_value, dtype, sharding=sharding)
    return place(broadcast_to(asarray(fill_value, dtype=dtype), shape), sharding)


def _like(name: str, a: Any) -> Any:
    """The object whose shape, dtype and sharding the new array gets."""
    if hasattr(a, "dtype") and hasattr(a, "shape"):
        if isinstance(a, (Array, np.ndarray, np.generic, ShapeDtypeStruct)):
            return a
        sharding = getattr(a, "sharding", None)
        placed = isinstance(sharding, Sharding) and getattr(a, "_committed", True)
        weak = getattr(a, "weak_type", False)
        return ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding if placed else None, weak_type=weak)
    a = unwrap(a)
    check_arraylike(name, a)
    return a


def _filled_like(name: str, a: Any, value: int, dtype: Any, shape: Any, device: Any, out_sharding=None):
    a = _like(name, a)
    dtype = requested_dtype(dtype, name)
    shape = None if shape is None else canonical_shape(shape)
    sharding = device_sharding(device, out_sharding, f"jnp.{name}")
    return lax.full_like(a, value, dtype, shape, sharding)


def zeros_like(a, dtype=None, shape=None, *, device=None, out_sharding=None):
    """Zeros with the shape and dtype of `a`, unless given.

    >>> jnp.zeros_like(jnp.array([[1.5, 2.5]]), dtype=jnp.int32)
    Array([[0, 0]], dtype=int32)
    """
    return _filled_like("zeros_like", a, 0, dtype, shape, device, out_sharding)


def ones_like(a, dtype=None, shape=None, *, device=None, out_sharding=None):
    """Ones with the shape and dtype of `a`, unless given.

    >>> jnp.ones_like(jnp.array([[1.5, 2.5]]))
    Array([[1., 1.]], dtype=float32)
    """
    return _filled_like("ones_like", a, 1, dtype, shape, device, out_sharding)


def empty_like(prototype, dtype=None, shape=None, *, device=None):
    """Zeros with the shape and dtype of `prototype`, unless given.

    >>> jnp.empty_like(jnp.array([5, 6], dtype=jnp.int8))
    Array([0, 0], dtype=int8)
    """
    return _filled_like("empty_like", prototype, 0, dtype, shape, device)


def full_like(a, fill_value, dtype=None, shape=None, *, device=None, out_sharding=None):
    """`fill_value`, broadcast, with the shape and dtype of `a`, unless given.

    Args:
      a: array or number; only its shape and dtype count.
      shape: shape of the result; default that of `a`.

    >>> jnp.full_like(jnp.array([1.0, 2.0]), 7)
    Array([7., 7.], dtype=float32)
    """
    a = _like("full_like", a)
    check_arraylike("full_like", 0, fill_value)
    dtype = requested_dtype(dtype, "full_like")
    shape = None if shape is None else canonical_shape(shape)
    sharding = device_sharding(device, out_sharding, "full_like")
    if not shape_of(fill_value):
        return lax.full_like(a, fill_value, dtype, shape, sharding)
    if sharding is None and shape is None:
        sharding = getattr(a, "_sharding", None)
    shape = np.shape(a) if shape is None else shape
    dtype = dtypes.result_type(a) if dtype is None else dtype
    return place(broadcast_to(asarray(fill_value, dtype=dtype), shape), sharding)
