"""Sorts arrays with NumPy: orders of values as integers, stable permutations, largest elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpijax.core import dtypes

# With at least this many elements per wanted one, a row is searched block by block for the largest elements.
SPARSE = 4096
BLOCK = 1024


def ordered(x: np.ndarray) -> list[np.ndarray]:
    """Arrays whose order in NumPy is XLA's order of x: -0.0 equals 0.0, NaN is last. Most significant array first."""
    if x.dtype.kind == "c":
        return [*ordered(x.real), *ordered(x.imag)]
    if x.dtype.kind == "V" or dtypes.issubdtype(x.dtype, np.floating):
        x = x.astype(np.float32) if x.dtype.itemsize < 4 else x
        return [np.where(x == 0, np.abs(x), x)]
    return [x]


def total_order(x: np.ndarray) -> np.ndarray:
    """Numbers whose order is that of the bits: for floats -NaN, -inf, ..., -0.0, 0.0, ..., inf, NaN."""
    if x.dtype == np.bool_ or x.dtype.kind in "iu":
        return x
    bits = x.view(np.dtype(f"i{x.dtype.itemsize}"))
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _upper_half(x: np.ndarray) -> np.ndarray | None:
    """Sort keys of numbers of at most 32 bits, in the upper half of int64; None for wider numbers."""
    if x.dtype.itemsize > 4 or x.dtype.kind == "c":
        return None
    key = total_order(x).astype(np.int64)
    if x.dtype == np.uint32:
        key -= 2**31
    key <<= 32
    return key


def _along(axis: int, ndim: int, values: np.ndarray) -> np.ndarray:
    return values.reshape([-1 if d == axis else 1 for d in range(ndim)])


def permutation(keys: Sequence[np.ndarray], axis: int) -> np.ndarray:
    """Positions that sort stably along an axis by all keys, the first key being most significant.

    32-bit numbers are sorted as one integer together with their positions, which NumPy does with vector instructions.
    """
    parts = [part for k in keys for part in ordered(k)]
    if len(parts) > 1:
        return np.lexsort(parts[::-1], axis)
    [x] = parts
    n = x.shape[axis]
    key = _upper_half(np.where(np.isnan(x), np.float32(np.nan), x) if x.dtype == np.float32 else x)
    if key is None or n >= 2**32:
        return np.argsort(x, axis, kind="stable")
    key |= _along(axis, x.ndim, np.arange(n))
    key.sort(axis)
    key &= 2**32 - 1
    return key


def largest(x: np.ndarray, k: int, axis: int) -> np.ndarray:
    """Positions of the k largest elements along an axis in descending order; equal elements in order of position."""
    n = x.shape[axis]
    if k and x.ndim == 1 and n // k >= SPARSE and x.dtype.kind in "fiu":
        candidates = _candidates(x, k)
        if candidates is not None:
            return candidates[largest(x[candidates], k, 0)]
    key = _upper_half(x)
    if key is None or n >= 2**32:
        # Descending and stable: sort the reversed array, then reverse the result.
        order = np.argsort(np.flip(total_order(x), axis), axis, kind="stable")
        return np.take(n - 1 - np.flip(order, axis), np.arange(k), axis)
    key |= _along(axis, x.ndim, np.arange(n - 1, -1, -1))
    if 0 < k < n // 8:
        key = np.take(np.partition(key, n - k, axis), np.arange(n - k, n), axis)
    key = np.take(np.sort(key, axis), np.arange(key.shape[axis] - 1, key.shape[axis] - 1 - k, -1), axis)
    return n - 1 - (key & (2**32 - 1))


def _candidates(x: np.ndarray, k: int) -> np.ndarray | None:
    """Positions of all elements that reach the k-th largest block maximum; None if there are many, or NaNs."""
    whole = x.size // BLOCK * BLOCK
    maxima = x[:whole].reshape(-1, BLOCK).max(1)
    if maxima.size < k or np.any(maxima != maxima):
        return None
    found = np.flatnonzero(x >= np.partition(maxima, maxima.size - k)[-k])
    return found if found.size < x.size // 4 else None
