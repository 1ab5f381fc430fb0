"""Bits as elements of an array, and packed into bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.numpy.util import ensure_arraylike, is_integer, scalar_like
from mpijax.transforms.jit import jit

_ORDERS = ("little", "big")


def _lines(a: Any, axis: int | None, bitorder: str) -> tuple[Any, int, Any]:
    """(the array with the axis of the bits last, that axis, the shifts of the eight bits of a byte)."""
    if bitorder not in _ORDERS:
        raise ValueError(f"'order' must be either 'little' or 'big'; got {bitorder!r}")
    if axis is None:
        a, axis = a.ravel(), 0
    shifts = jnp.arange(8, dtype="uint8")
    return jnp.swapaxes(a, axis, -1), axis, shifts[::-1] if bitorder == "big" else shifts


@jit(static_argnames=("axis", "bitorder"))
def packbits(a: Any, axis: int | None = None, bitorder: str = "big") -> Any:
    """Pack eight elements along an axis into a byte. Without an axis, pack the flattened array.

    Args:
      a: bools or integers; each integer except 0 is a 1 bit.
      bitorder: "big" if the first element is the highest bit, "little" if it is the lowest.

    Returns:
      uint8 array; the axis has size ceil(n / 8), and missing bits are 0.

    Raises:
      TypeError: `a` holds floats or complex numbers.

    >>> jnp.packbits(jnp.array([1, 0, 0, 0, 0, 0, 1, 1]))
    Array([131], dtype=uint8)
    """
    a = ensure_arraylike("packbits", a)
    if not (is_integer(a.dtype) or a.dtype == np.bool_):
        raise TypeError(f"Expected an input array of integer or boolean data type, got {a.dtype}")
    a, axis, shifts = _lines(lax.ne(a, scalar_like(a, 0)).astype("uint8"), axis, bitorder)
    missing = -a.shape[-1] % 8
    if missing:
        a = lax.pad(a, np.uint8(0), [(0, 0, 0)] * (a.ndim - 1) + [(0, missing, 0)])
    a = a.reshape(*a.shape[:-1], a.shape[-1] // 8, 8)
    packed = (a << lax.expand_dims(shifts, tuple(range(a.ndim - 1)))).sum(-1).astype("uint8")
    return jnp.swapaxes(packed, axis, -1)


@jit(static_argnames=("axis", "count", "bitorder"))
def unpackbits(a: Any, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Any:
    """The bits of bytes as elements 0 and 1 along an axis, which is eight times as long. The inverse of `packbits`.

    Args:
      a: uint8 array.
      count: number of bits to return, from the first; if negative, number of bits to drop at the end.

    Raises:
      TypeError: the dtype of `a` is not uint8.

    >>> jnp.unpackbits(jnp.array([131], dtype=jnp.uint8))
    Array([1, 0, 0, 0, 0, 0, 1, 1], dtype=uint8)
    """
    a = ensure_arraylike("unpackbits", a)
    if a.dtype != np.uint8:
        raise TypeError(f"Expected an input array of unsigned byte data type, got {a.dtype}")
    a, axis, shifts = _lines(a, axis, bitorder)
    bits = jnp.asarray(1) << shifts
    unpacked = ((a[..., None] & lax.expand_dims(bits, tuple(range(a.ndim)))) > 0).astype("uint8")
    unpacked = unpacked.reshape(*a.shape[:-1], 8 * a.shape[-1])
    if count is not None:
        missing = count - unpacked.shape[-1]
        if missing > 0:
            unpacked = jnp.pad(unpacked, [(0, 0)] * (a.ndim - 1) + [(0, missing)])
        else:
            unpacked = unpacked[..., :count]
    return jnp.swapaxes(unpacked, axis, -1)
