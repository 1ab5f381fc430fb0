"""Tables for array types of other libraries: functions that give their type and their elements.

A library adds its type to both tables, which have JAX's names. If its type has shape and dtype as `numpy.ndarray` does,
it can reuse the entries of `numpy.ndarray`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mpijax.core import dtypes

if TYPE_CHECKING:
    from mpijax.core.types.avals import ShapedArray


def _elements(x: Any) -> np.ndarray:
    found = np.asarray(x)
    return found.astype(dtypes.canonicalize_dtype(found.dtype), copy=False)


# By type: a function from a value to its `ShapedArray`, and a function from a value to a NumPy array.
pytype_aval_mappings: dict[type, Callable[[Any], ShapedArray]] = {}  # `typeof.py` puts in that of `np.ndarray`
canonicalize_dtype_handlers: dict[type, Callable[[Any], Any]] = {np.ndarray: _elements}


def rule_for(table: dict[type, Callable], kind: type) -> Callable | None:
    """The entry for a type, or for its nearest base that has one."""
    return next((table[base] for base in kind.__mro__ if base in table), None)
