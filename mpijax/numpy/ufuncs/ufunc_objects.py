"""The elementwise functions that are `ufunc` objects, and the functions behind their methods."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.numpy.reductions import cumulative
from mpijax.numpy.reductions import standard as reductions
from mpijax.numpy.reductions.reduce import ReductionKind, _require_integer, check_where, reduce, reduction_axes, to_bool
from mpijax.numpy.ufuncs import arithmetic, elementwise, logic
from mpijax.numpy.ufuncs.ufunc_type import ufunc
from mpijax.numpy.util import ensure_arraylike, promote_dtypes_inexact


def _reducing(name: str, reducer: Callable, combine: Callable, identity: Any, prepare: Callable) -> Callable:
    return partial(reduce, ReductionKind(name, reducer, combine, identity, prepare=prepare))


def _logsumexp(a, axis=None, dtype=None, keepdims=False, initial=None, where=None):
    """log(Σ exp(a)) along an axis. `dtype` has no effect."""
    (a,) = promote_dtypes_inexact(ensure_arraylike("logsumexp", a))
    where = check_where("logsumexp", where)
    positions, _ = reduction_axes(a.ndim, axis)
    # Subtract the largest element first, so that no exponential overflows.
    largest = jnp.max(a.real, axis=positions, keepdims=True, where=where, initial=-np.inf)
    largest = lax.stop_gradient(jnp.where(jnp.isfinite(largest), largest, 0)).astype(a.dtype)
    total = jnp.sum(jnp.exp(a - largest), axis=positions, keepdims=keepdims, where=where)
    result = jnp.log(total) + (largest if keepdims else lax.squeeze(largest, positions))
    return result if initial is None else elementwise.logaddexp(initial, result)


def _logsumexp2(a, axis=None, dtype=None, keepdims=False, initial=None, where=None):
    """log2(Σ 2**a) along an axis. `dtype` has no effect."""
    ln2 = float(np.log(2))
    initial = initial if initial is None else initial * ln2
    a = ensure_arraylike("logsumexp2", a)
    return _logsumexp(a * ln2, axis, None, keepdims, initial, where) / ln2


def _updating(method: str) -> Callable:
    """`at` by the method of `x.at[...]`; bools count as 0 and 1."""

    def at(a, indices, b):
        if a.dtype != np.bool_ or method == "subtract":
            return getattr(a.at[indices], method)(b)
        numbers = getattr(a.astype("int32").at[indices], method)(b.astype(bool).astype("int32"))
        return numbers.astype(bool)

    return at


def _binary(func: Callable, identity: Any, **forms: Any) -> ufunc:
    return ufunc(func, 2, 1, identity=identity, call=func, **forms)


negative = ufunc(arithmetic.negative, 1, 1, call=arithmetic.negative)
add = _binary(arithmetic.add, 0, reduce=reductions.sum, accumulate=cumulative.cumsum, at=_updating("add"))
subtract = _binary(arithmetic.subtract, None, at=_updating("subtract"))
multiply = _binary(
    arithmetic.multiply, 1, reduce=reductions.prod, accumulate=cumulative.cumprod, at=_updating("multiply")
)
minimum = _binary(arithmetic.minimum, None, reduce=partial(reduce, reductions._MIN))
maximum = _binary(arithmetic.maximum, None, reduce=partial(reduce, reductions._MAX))
bitwise_and = _binary(
    logic.bitwise_and,
    -1,
    reduce=_reducing("reduce_bitwise_and", lax.reduce_and, lax.bitwise_and, -1, _require_integer),
)
bitwise_or = _binary(
    logic.bitwise_or, 0, reduce=_reducing("reduce_bitwise_or", lax.reduce_or, lax.bitwise_or, 0, _require_integer)
)
bitwise_xor = _binary(
    logic.bitwise_xor,
    0,
    reduce=_reducing("reduce_bitwise_xor", lax.reduce_xor, lax.bitwise_xor, 0, _require_integer),
)
logical_and = _binary(
    logic.logical_and, True, reduce=_reducing("reduce_logical_and", lax.reduce_and, lax.bitwise_and, True, to_bool)
)
logical_or = _binary(
    logic.logical_or, False, reduce=_reducing("reduce_logical_or", lax.reduce_or, lax.bitwise_or, False, to_bool)
)
logical_xor = _binary(
    logic.logical_xor, False, reduce=_reducing("reduce_logical_xor", lax.reduce_xor, lax.bitwise_xor, False, to_bool)
)
logaddexp = _binary(elementwise.logaddexp, -np.inf, reduce=_logsumexp)
logaddexp2 = _binary(elementwise.logaddexp2, -np.inf, reduce=_logsumexp2)
