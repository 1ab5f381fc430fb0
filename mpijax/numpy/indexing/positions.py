"""Conversion between positions in a flattened array and positions along each axis."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.core import dtypes
from mpijax.numpy.util import ensure_arraylike, ensure_arraylike_tuple, host_value, is_integer, shape_of, static


def ravel_multi_index(
    multi_index: Sequence[Any], dims: Sequence[int], mode: str = "raise", order: str = "C", *, dtype: Any = None
) -> Any:
    """Positions in the flattened array from positions along each axis.

    Args:
      multi_index: an integer array for each axis.
      dims: the shape.
      mode: for positions out of bounds: "raise" (not under `jit`), "wrap" around, "clip" to the ends, or "ignore".
      order: "C" for row-major order, "F" for column-major order.
      dtype: an integer dtype; default: the promoted dtype of the positions and int.

    >>> jnp.ravel_multi_index((jnp.array([0, 1]), jnp.array([2, 1])), (2, 3))
    Array([2, 4], dtype=int32)
    """
    if len(multi_index) != len(dims):
        raise AssertionError(f"{len(multi_index)=} != {len(dims)=}")
    dims = tuple(static(d, "in `dims` argument of ravel_multi_index().", operator.index) for d in dims)
    positions = list(ensure_arraylike_tuple("ravel_multi_index", multi_index))
    if dtype is None:
        dtype = dtypes.result_type(int, *positions)
    else:
        dtype = dtypes.check_user_dtype_supported(dtype, "ravel_multi_index")
    if not is_integer(dtype):
        raise ValueError(f"{dtype=} is not an integer type.")
    if math.prod(dims) - 1 > dtypes.iinfo(dtype).max:
        raise ValueError(
            f"jnp.ravel_multi_index: {dtype=} not large enough to hold flattened index for {dims=}. Use the dtype "
            "argument to pass a suitable dtype (e.g. dtype=np.min_scalar_type(prod(dims)))."
        )
    positions = [_in_bounds(i, d, mode) for i, d in zip(positions, dims, strict=True)]
    if order not in ("C", "F"):
        raise ValueError(f"invalid {order=}. Expected 'C' or 'F'")
    flat = jnp.array(0, dtype=dtype)
    for k, i in enumerate(positions):
        stride = math.prod(dims[:k] if order == "F" else dims[k + 1 :])
        flat = flat + i.astype(dtype) * stride
    return flat


def _in_bounds(position: Any, size: int, mode: str) -> Any:
    if mode == "raise":
        known = static(
            position,
            "The error occurred because ravel_multi_index was jit-compiled with mode='raise'. Use mode='wrap' or "
            "mode='clip' instead.",
            host_value,
        )
    if not is_integer(position.dtype):
        raise TypeError("only int indices permitted")
    if mode == "raise":
        if ((known < 0) | (known >= size)).any():
            raise ValueError("invalid entry in coordinates array")
        return position
    if mode == "clip":
        return jnp.clip(position, 0, size - 1)
    if mode == "wrap":
        return position % size
    if mode == "ignore":
        return position
    raise ValueError(f"invalid {mode=}. Expected 'raise', 'wrap', 'clip', or 'ignore'.")


def unravel_index(indices: Any, shape: Any) -> tuple[Any, ...]:
    """Positions along each axis from positions in the flattened array. Positions out of bounds are clipped to the ends.

    Returns:
      A tuple with an int array for each axis of `shape`, each with the shape of `indices`.

    >>> jnp.unravel_index(jnp.array([2, 4]), (2, 3))
    (Array([0, 1], dtype=int32), Array([2, 1], dtype=int32))
    """
    flat = ensure_arraylike("unravel_index", indices)
    try:
        sizes = list(shape)
    except TypeError:
        sizes = [shape]
    if any(shape_of(s) != () for s in sizes):
        raise ValueError("unravel_index: shape should be a scalar or 1D sequence.")
    positions: list[Any] = [0] * len(sizes)
    for k in reversed(range(len(sizes))):
        flat, positions[k] = jnp.divmod(flat, sizes[k])
    # The rest is 0 for positions in bounds, and -1 for positions that count from the end.
    above = flat > 0
    below = jnp.asarray(False) if dtypes.issubdtype(flat.dtype, np.unsignedinteger) else flat < -1
    return tuple(
        jnp.where(above, size - 1, jnp.where(below, 0, i)) for size, i in zip(sizes, positions, strict=True)
    )


def mask_indices(
    n: int, mask_func: Callable[[Any, int], Any], k: int = 0, *, size: int | None = None
) -> tuple[Any, Any]:
    """Positions of the elements of an n x n array that are not 0 in `mask_func(ones, k)`; `mask_func` is for example
    `triu`.

    Args:
      size: number of positions to return; see `nonzero`.

    >>> rows, columns = jnp.mask_indices(3, jnp.triu, 1)
    >>> rows, columns
    (Array([0, 0, 1], dtype=int32), Array([1, 2, 2], dtype=int32))
    """
    i, j = jnp.nonzero(mask_func(jnp.ones((n, n)), k), size=size)
    return i, j
