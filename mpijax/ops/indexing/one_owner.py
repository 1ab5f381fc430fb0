"""Encodes elements that one rank has, and that are zero on all others, so that a sum over ranks transfers them.

The encoding is exact, also for -0.0, NaN and bools.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.rules.registry import registry
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise.convert import bitcast_convert_type, convert_element_type
from mpijax.ops.shapes.reshape import expand_dims, squeeze


def bits(x: Any) -> Any:
    """Integers with the same bits; complex numbers get a last axis of two."""
    dtype = typeof(x).dtype
    if dtype == np.bool_:
        return convert_element_type(x, np.uint8)
    if dtypes.issubdtype(dtype, np.complexfloating):
        parts = [bits(registry[name].bind(x)) for name in ("real", "imag")]
        ends = [expand_dims(part, (-1,)) for part in parts]
        return registry["concatenate"].bind(*ends, dimension=typeof(x).ndim)
    if dtypes.issubdtype(dtype, np.floating):
        return bitcast_convert_type(x, np.dtype(f"u{dtype.itemsize}"))
    return x


def of_bits(x: Any, dtype: Any) -> Any:
    """The inverse of `bits`."""
    if dtypes.issubdtype(dtype, np.complexfloating):
        return registry["complex"].bind(*(of_bits(_part(x, k), np.dtype(f"f{dtype.itemsize // 2}")) for k in (0, 1)))
    if dtypes.issubdtype(dtype, np.floating):
        return bitcast_convert_type(x, dtype)
    return convert_element_type(x, dtype)


def _part(x: Any, k: int) -> Any:
    """Element `k` of the last axis."""
    *shape, _ = typeof(x).shape
    starts, limits = (*(0 for _ in shape), k), (*shape, k + 1)
    found = registry["slice"].bind(x, start_indices=starts, limit_indices=limits, strides=None)
    return squeeze(found, (len(shape),))
