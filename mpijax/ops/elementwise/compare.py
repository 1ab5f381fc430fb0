"""Comparisons of two operands of one dtype. The result is bool and has no derivative."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.rules.lowering import Combiner, Meaning, Zeros
from mpijax.ops.families import ANY, FLOATING, ORDERED, comparison
from mpijax.transforms import key_reuse

# PRNG keys can be compared for equality.
_EQUALITY = (*ANY, dtypes.extended)


def eq(x: Any, y: Any) -> Any:
    """x == y.

    Elementwise on values of one shape and dtype, or scalars; the result is bool.

    >>> lax.eq(jnp.array([1, 2, 3]), 2)
    Array([False,  True, False], dtype=bool)
    """
    return eq_p.bind(x, y)


def ne(x: Any, y: Any) -> Any:
    """x != y.

    Elementwise on values of one shape and dtype, or scalars; the result is bool.

    >>> lax.ne(jnp.array([1, 2, 3]), 2)
    Array([ True, False,  True], dtype=bool)
    """
    return ne_p.bind(x, y)


def lt(x: Any, y: Any) -> Any:
    """x < y.

    Elementwise on bool, integers or floats of one shape and dtype, or scalars; the result is bool. TypeError for
    others.

    >>> lax.lt(jnp.array([1, 2, 3]), 2)
    Array([ True, False, False], dtype=bool)
    """
    return lt_p.bind(x, y)


def le(x: Any, y: Any) -> Any:
    """x <= y.

    Elementwise on bool, integers or floats of one shape and dtype, or scalars; the result is bool. TypeError for
    others.

    >>> lax.le(jnp.array([1, 2, 3]), 2)
    Array([ True,  True, False], dtype=bool)
    """
    return le_p.bind(x, y)


def gt(x: Any, y: Any) -> Any:
    """x > y.

    Elementwise on bool, integers or floats of one shape and dtype, or scalars; the result is bool. TypeError for
    others.

    >>> lax.gt(jnp.array([1, 2, 3]), 2)
    Array([False, False,  True], dtype=bool)
    """
    return gt_p.bind(x, y)


def ge(x: Any, y: Any) -> Any:
    """x >= y.

    Elementwise on bool, integers or floats of one shape and dtype, or scalars; the result is bool. TypeError for
    others.

    >>> lax.ge(jnp.array([1, 2, 3]), 2)
    Array([False,  True,  True], dtype=bool)
    """
    return ge_p.bind(x, y)


def _total_order_key(x: np.ndarray) -> np.ndarray:
    """Integers that sort as the floats do: -NaN < -inf < ... < -0 < 0 < ... < inf < NaN."""
    if x.dtype.kind in "biu":
        return x
    bits = x.view(np.dtype(f"i{x.dtype.itemsize}"))
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _by_total_order(compare):
    return lambda x, y: compare(_total_order_key(x), _total_order_key(y))


eq_p = comparison("eq", _EQUALITY, np.equal, over_words=Combiner.AND)
ne_p = comparison("ne", _EQUALITY, np.not_equal, over_words=Combiner.OR)
eq_p.keys = ne_p.keys = key_reuse.NOTHING
lt_p = comparison("lt", ORDERED, np.less)
le_p = comparison("le", ORDERED, np.less_equal)
gt_p = comparison("gt", ORDERED, np.greater, meaning=Meaning.GREATER)
ge_p = comparison("ge", ORDERED, np.greater_equal)

# Comparisons in the total order of floats, which orders both zeros and all NaNs.
eq_to_p = comparison("eq_to", FLOATING, _by_total_order(np.equal), zeros=Zeros.SHOWN)
le_to_p = comparison("le_to", FLOATING, _by_total_order(np.less_equal), zeros=Zeros.SHOWN)
lt_to_p = comparison("lt_to", FLOATING, _by_total_order(np.less), zeros=Zeros.SHOWN)
for _primitive, _compare in ((eq_to_p, np.equal), (le_to_p, np.less_equal), (lt_to_p, np.less)):
    _primitive.reference = _by_total_order(_compare)
