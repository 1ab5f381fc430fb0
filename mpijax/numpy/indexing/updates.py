"""NumPy's functions that write into an array. Here they return an updated copy, and need `inplace=False`."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.numpy.util import ensure_arraylike


def _refuse_in_place(name: str, inplace: bool) -> None:
    if inplace:
        raise ValueError(
            f"jax.numpy.{name} cannot modify arrays in-place, because JAX arrays are immutable. Pass "
            "inplace=False to instead return an updated array."
        )


def _repeated(values: Any, n: int) -> Any:
    """n elements: those of a one-dimensional array, repeated."""
    if values.size < n:
        values = jnp.tile(values, int(np.ceil(n / values.size)))
    return values[:n] if values.size > n else values


def put(a: Any, ind: Any, v: Any, mode: str | None = None, *, inplace: bool = True) -> Any:
    """`a` with the elements at positions `ind` of the flattened array replaced by those of `v`, repeated if necessary.

    Args:
      mode: for positions out of bounds: None drops them, "clip" clips to the ends, and "wrap" wraps around.

    Raises:
      ValueError: `inplace` is not False: arrays are immutable.

    >>> jnp.put(jnp.zeros((2, 2), int), jnp.array([0, 3]), jnp.array([7, 8]), inplace=False)
    Array([[7, 0],
           [0, 8]], dtype=int32)
    """
    _refuse_in_place("put", inplace)
    a, ind, v = ensure_arraylike("put", a, ind, v)
    ind, v = ind.ravel(), v.ravel()
    if not a.size or not ind.size or not v.size:
        return a
    scatter_mode = "drop" if mode is None else "promise_in_bounds"
    if mode == "clip":
        ind = jnp.clip(ind, 0, a.size - 1)
    elif mode == "wrap":
        ind = ind % a.size
    elif mode == "raise":
        raise NotImplementedError("The 'raise' mode to jnp.put is not supported.")
    elif mode is not None:
        raise ValueError(f"mode should be one of 'wrap' or 'clip'; got mode={mode!r}")
    return a.at[jnp.unravel_index(ind, a.shape)].set(_repeated(v, len(ind)), mode=scatter_mode)


def place(arr: Any, mask: Any, vals: Any, *, inplace: bool = True) -> Any:
    """`arr` with the elements where `mask` holds replaced by those of `vals`, in order, repeated if necessary.

    Raises:
      ValueError: `mask` has another size, or `inplace` is not False: arrays are immutable.

    >>> x = jnp.array([1, -2, 3, -4])
    >>> jnp.place(x, x < 0, jnp.array([0]), inplace=False)
    Array([1, 0, 3, 0], dtype=int32)
    """
    arr, mask, vals = ensure_arraylike("place", arr, mask, vals)
    vals = vals.ravel()
    _refuse_in_place("place", inplace)
    if arr.size != mask.size:
        raise ValueError("place: arr and mask must be the same size")
    if not vals.size:
        raise ValueError("Cannot place values from an empty array")
    if not arr.size:
        return arr
    positions = jnp.where(mask.ravel(), size=mask.size, fill_value=mask.size)[0]
    return arr.ravel().at[positions].set(_repeated(vals, mask.size), mode="drop").reshape(arr.shape)


def fill_diagonal(a: Any, val: Any, wrap: bool = False, *, inplace: bool = True) -> Any:
    """`a` with its main diagonal replaced by `val`: a number, or numbers, repeated if necessary.

    Args:
      a: array with two axes, or with more axes of equal size.
      wrap: not supported.

    Raises:
      ValueError: fewer than two axes, or `inplace` is not False: arrays are immutable.

    >>> jnp.fill_diagonal(jnp.zeros((3, 3), int), jnp.array([1, 2, 3]), inplace=False)
    Array([[1, 0, 0],
           [0, 2, 0],
           [0, 0, 3]], dtype=int32)
    """
    if inplace:
        raise NotImplementedError("JAX arrays are immutable, must use inplace=False")
    if wrap:
        raise NotImplementedError("wrap=True is not implemented, must use wrap=False")
    a, val = ensure_arraylike("fill_diagonal", a, val)
    if a.ndim < 2:
        raise ValueError("array must be at least 2-d")
    if a.ndim > 2 and len(set(a.shape)) != 1:
        raise ValueError("All dimensions of input must be of equal length")
    n = min(a.shape)
    return a.at[jnp.diag_indices(n, a.ndim)].set(val if val.ndim == 0 else _repeated(val.ravel(), n))
