"""Finds the position of an array's maximum or minimum."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.rules import sharding_types as types
from mpijax.core.rules.lowering import Decompose
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise.bitwise import bitwise_or
from mpijax.ops.elementwise.compare import eq, ne
from mpijax.ops.elementwise.select import select
from mpijax.ops.families import CONSTANT, NOT_LINEAR, ORDERED, check_dtype
from mpijax.ops.reductions.standard import batched_reduction, extreme, reduce_max, reduce_min, reduced_shape
from mpijax.ops.rules import full_like


def argmax(operand: Any, axis: int, index_dtype: Any) -> Any:
    """Position of the maximum along `axis`: the first one for ties, or the first NaN if there is one.

    The result has the other axes, and the integer dtype `index_dtype`.

    >>> lax.argmax(jnp.array([3, 9, 5]), axis=0, index_dtype=jnp.int32)
    Array(1, dtype=int32)
    """
    return _arg_extremum(argmax_p, operand, axis, index_dtype)


def argmin(operand: Any, axis: int, index_dtype: Any) -> Any:
    """Position of the minimum along `axis`: the first one for ties, or the first NaN if there is one.

    The result has the other axes, and the integer dtype `index_dtype`.

    >>> lax.argmin(jnp.array([3, 9, 5]), axis=0, index_dtype=jnp.int32)
    Array(0, dtype=int32)
    """
    return _arg_extremum(argmin_p, operand, axis, index_dtype)


def _arg_extremum(primitive, operand, axis, index_dtype):
    index_dtype = dtypes.granted_dtype(dtypes.dtype(index_dtype))
    return primitive.bind(operand, axes=(operator.index(axis),), index_dtype=index_dtype)


def _arg_type(name: str) -> Callable:
    def type_rule(x: ShapedArray, *, axes, index_dtype) -> ShapedArray:
        (axis,) = axes
        if not 0 <= axis < x.ndim:
            raise ValueError(f"Invalid axis {axis} for operand shape {x.shape}")
        if x.shape[axis] < 1:
            raise ValueError(
                f"argmin and argmax require non-empty reduced dimension. operand.shape={x.shape} {axis=}"
            )
        if not dtypes.issubdtype(index_dtype, np.integer):
            raise TypeError(f"index_dtype must be an integer type, but got {index_dtype}")
        if dtypes.issubdtype(x.dtype, np.complexfloating):
            kind = "gt" if name == "argmax" else "lt"
            check_dtype(kind, x.dtype, ORDERED, " at position 0")
        return ShapedArray(reduced_shape(x, axes), index_dtype)

    return type_rule


def _by_first_hit(reduce: Callable) -> Callable:
    """The smallest index at which the element is the extremum, or NaN."""

    def decomposed(x, *, axes, index_dtype):
        aval = typeof(x)
        (axis,) = axes
        shape = tuple(1 if i == axis else d for i, d in enumerate(aval.shape))
        best = registry["reshape"].bind(reduce(x, axes), new_sizes=shape, dimensions=None, sharding=None)
        hit = eq(x, best)
        if dtypes.issubdtype(aval.dtype, np.floating):
            hit = bitwise_or(hit, ne(x, x))
        place = registry["iota"].bind(dtype=index_dtype, shape=aval.shape, dimension=axis, sharding=None)
        return reduce_min(select(hit, place, full_like(place, extreme(index_dtype, largest=True))), axes)

    return decomposed


def _position(name: str, reduce: Callable, numpy_position: Callable) -> Primitive:
    primitive = Primitive(
        name,
        type_rule=_arg_type(name),
        reference=lambda x, *, axes, index_dtype: np.asarray(numpy_position(x, axis=int(axes[0]))).astype(
            index_dtype
        ),
        lower=Decompose(_by_first_hit(reduce)),
        jvp=NOT_LINEAR,
        transpose=NOT_LINEAR,
        batch=NOT_LINEAR,
        sharding_type=types.without_axes("axes"),
    )
    primitive.batch = batched_reduction(primitive)
    primitive.jvp = CONSTANT.attach(primitive)
    return primitive


argmax_p = _position("argmax", reduce_max, np.argmax)
argmin_p = _position("argmin", reduce_min, np.argmin)
