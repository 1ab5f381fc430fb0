"""Defines powers: with a fixed integer exponent, and in general."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.rules.registry import registry
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise.binary import mul, sub
from mpijax.ops.elementwise.compare import eq
from mpijax.ops.elementwise.convert import convert_element_type
from mpijax.ops.elementwise.select import select
from mpijax.ops.families import INEXACT, NUMERIC, PerOperand, broadcast_type, check_dtype, elementwise
from mpijax.ops.rules import broadcast_shapes, broadcast_to, const_like, full_like

# In this module `pow` is the operation, not Python's builtin.


def integer_pow(x: Any, y: int) -> Any:
    """x ** y for a constant Python integer y, by repeated multiplication.

    >>> lax.integer_pow(jnp.array([2.0, 3.0]), 3)
    Array([ 8., 27.], dtype=float32)
    """
    return integer_pow_p.bind(x, y=y)


def reciprocal(x: Any) -> Any:
    """1 / x.

    Elementwise on floats or complex numbers; the result has the same shape and dtype. TypeError for others.

    >>> lax.reciprocal(jnp.array([2.0, 4.0]))
    Array([0.5 , 0.25], dtype=float32)
    """
    return integer_pow(x, -1)


def square(x: Any) -> Any:
    """x * x.

    Elementwise on integers, floats or complex numbers; the result has the same shape and dtype. TypeError for others.

    >>> lax.square(jnp.array([2.0, -3.0]))
    Array([4., 9.], dtype=float32)
    """
    return square_p.bind(x)


def _integer_pow_type(x: ShapedArray, *, y: int) -> ShapedArray:
    check_dtype("integer_pow", x.dtype, NUMERIC)
    if y < 0 and dtypes.issubdtype(x.dtype, np.integer):
        raise TypeError(
            f"Integers cannot be raised to negative powers, got integer_pow({x.str_short(False)}, {y})"
        )
    return x


def _integer_pow_jvp(g, ans, x, *, y):
    if y == 0:
        return full_like(x, 0)
    if y == 1:
        return g
    return mul(g, mul(const_like(x, y), x if y == 2 else integer_pow(x, y - 1)))


def _numpy_integer_pow(x, *, y):
    return x**y if y >= 0 else 1 / x**-y


integer_pow_p = elementwise(
    "integer_pow", NUMERIC, reference=_numpy_integer_pow, cost=3, jvp=PerOperand(_integer_pow_jvp)
)
integer_pow_p.type_rule = _integer_pow_type

square_p = elementwise(
    "square",
    NUMERIC,
    reference=np.square,
    jvp=PerOperand(lambda g, ans, x: mul(g, mul(const_like(x, 2), x))),
)


def pow(x: Any, y: Any) -> Any:
    """x ** y for a float or complex x; y has the same dtype or is an integer.

    >>> lax.pow(jnp.array([2.0, 3.0]), jnp.array([3, 2]))
    Array([8., 9.], dtype=float32)
    """
    return pow_p.bind(x, y)


def _pow_type(x: ShapedArray, y: ShapedArray) -> ShapedArray:
    check_dtype("pow", x.dtype, INEXACT, " at position 0")
    if y.dtype != x.dtype and not dtypes.issubdtype(y.dtype, np.integer):
        raise TypeError(
            "the first argument to pow must have an inexact dtype (float or complex), and the second "
            "argument must have an inexact or integer dtype, and two inexact dtypes must match, but got "
            f"{x.dtype} and {y.dtype} respectively."
        )
    return ShapedArray(broadcast_type("pow", (x, y)), x.dtype, x.weak_type and y.weak_type)


def _nonzero(x):
    """x, with 0 replaced by 1."""
    return select(eq(x, const_like(x, 0)), full_like(x, 1), x)


def _pow_jvp_x(g, ans, x, y):
    if not dtypes.issubdtype(typeof(y).dtype, np.integer):
        return mul(g, mul(y, pow(x, sub(y, full_like(y, 1)))))
    # The derivative of x ** 0 is 0 even for x = 0, where x ** -1 is infinite.
    dtype, shape = typeof(x).dtype, broadcast_shapes(typeof(x).shape, typeof(y).shape)
    x, y = (broadcast_to(convert_element_type(v, dtype), shape) for v in (x, y))
    jacobian = select(
        eq(y, const_like(y, 0)), full_like(y, 0), mul(_nonzero(y), pow(x, sub(y, full_like(y, 1))))
    )
    return mul(g, jacobian)


def _pow_jvp_y(g, ans, x, y):
    return mul(g, mul(registry["log"].bind(_nonzero(x), accuracy=None), ans))


pow_p = elementwise(
    "pow",
    INEXACT,
    NUMERIC,
    reference=np.power,
    same_dtypes=False,
    cost=20,
    jvp=PerOperand(_pow_jvp_x, _pow_jvp_y),
)
pow_p.type_rule = _pow_type
