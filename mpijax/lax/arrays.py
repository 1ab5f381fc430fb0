"""Small array functions of jax.lax: uninitialized arrays, shapes as values, dtypes, shapes of other arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.dtypes import canonical
from mpijax.core.tracing.out_sharding import with_out_sharding
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise.convert import convert_element_type, stage
from mpijax.ops.shapes.creation import full
from mpijax.ops.shapes.reshape import broadcast_to
from mpijax.ops.shapes.stacking import stack


def empty(shape: int | Sequence[int], dtype: Any, *, out_sharding: Any = None) -> Any:
    """An array with unspecified values, which are zeros here.

    >>> lax.empty((2, 3), jnp.float32).shape
    (2, 3)
    """
    dtype = dtypes.check_user_dtype_supported(dtype, "lax.empty")
    return with_out_sharding(full((shape,) if isinstance(shape, int) else shape, 0, dtype), out_sharding, "lax.empty")


def broadcast_like(arr: Any, like_arr: Any) -> Any:
    """`arr` broadcast to the shape of another array, and split over Explicit mesh axes like that array.

    Raises ValueError if the shapes do not match.

    >>> lax.broadcast_like(jnp.array([1, 2]), jnp.zeros((3, 2)))
    Array([[1, 2],
           [1, 2],
           [1, 2]], dtype=int32)
    """
    like = typeof(like_arr)
    return broadcast_to(arr, like.shape, like.said_sharding)


def shape_as_value(shape: Sequence[int]) -> Any:
    """A shape as an int32 vector. It is an int64 vector with 64-bit types, if a size is symbolic or exceeds int32.

    >>> lax.shape_as_value((2, 3))
    Array([2, 3], dtype=int32)
    """
    known = all(isinstance(n, (int, np.integer)) for n in shape)
    short = known and all(n <= np.iinfo(np.int32).max for n in shape)
    dtype = np.dtype(np.int32) if short else canonical.default_int_dtype()
    return stage(np.array(shape, dtype)) if known else stack([convert_element_type(n, dtype) for n in shape])


def dtype(x: Any) -> np.dtype:
    """The dtype of arrays made from x: an array, a Python number, or a dtype.

    >>> lax.dtype(1.0), lax.dtype("int8")
    (dtype('float32'), dtype('int8'))
    """
    return canonical.dtype(x)
