"""Removal of zeros at the ends of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.numpy.util import canonical_axes, ensure_arraylike, host_value, static


def trim_zeros(filt: Any, trim: str = "fb", axis: int | Sequence[int] | None = None) -> Any:
    """`filt` without the slices of zeros at its front ("f" in `trim`) and back ("b"), along axes (default: all).

    Raises:
      ConcretizationTypeError: `filt` is traced; the shape of the result depends on its values.

    >>> jnp.trim_zeros(jnp.array([0, 0, 1, 0, 2, 0]))
    Array([1, 0, 2], dtype=int32)
    """
    filt = ensure_arraylike("trim_zeros", filt)
    known = static(filt, "Error arose in the `filt` argument of trim_zeros()", host_value)
    flatnonzero = np.flatnonzero if isinstance(known, np.ndarray) else jnp.flatnonzero
    front, back = "f" in trim.lower(), "b" in trim.lower()
    kept = [slice(None)] * filt.ndim
    for i in canonical_axes(axis, filt.ndim):
        nonzero = flatnonzero(known.any(axis=tuple(k for k in range(filt.ndim) if k != i)))
        if not front and not back:
            continue
        if not nonzero.size:
            kept[i] = slice(0, 0)
            continue
        kept[i] = slice(int(nonzero[0]) if front else None, int(nonzero[-1]) + 1 if back else None)
    return filt[tuple(kept)]


def trim_zeros_tol(filt: Any, tol: Any, trim: str = "fb") -> Any:
    """A one-dimensional array without the elements at its ends whose absolute values are below `tol`."""
    known = static(filt, "Error arose in the `filt` argument of trim_zeros_tol()", np.asarray)
    large = np.flatnonzero(~(np.abs(known) < np.asarray(tol)))  # NaN is large
    if not large.size:
        return jnp.empty(0, filt.dtype)
    start = int(large[0]) if "f" in trim.lower() else 0
    stop = int(large[-1]) + 1 if "b" in trim.lower() else len(filt)
    return filt[start:stop]
