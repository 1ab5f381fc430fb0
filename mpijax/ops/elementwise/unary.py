"""Unary operations that are not transcendental: signs, rounding, parts of complex numbers."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.rules import sum_types
from mpijax.core.rules.lowering import Elementwise, Zeros
from mpijax.core.rules.registry import registry
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise.binary import complex, div, mul, neg
from mpijax.ops.elementwise.compare import eq, ge
from mpijax.ops.elementwise.select import select
from mpijax.ops.families import (
    CONSTANT,
    FLOATING,
    LINEAR,
    NUMERIC,
    PerOperand,
    elementwise,
    scalar_rule,
    to_bool,
    to_complex,
    to_real,
)
from mpijax.ops.rules import const_like, full_like

# In this module `abs` and `round` are operations, not Python's builtins.


def _is_complex(x: Any) -> bool:
    return dtypes.issubdtype(typeof(x).dtype, np.complexfloating)


# ---------------------------------------------------------------- sign and magnitude


def abs(x: Any) -> Any:
    """|x|; for complex numbers the modulus, which is real.

    Elementwise on signed integers, floats or complex numbers; the result has the same dtype, or that of the parts.
    TypeError for others.

    >>> lax.abs(jnp.array([-2.0, 3.0]))
    Array([2., 3.], dtype=float32)
    """
    return abs_p.bind(x)


def _abs_jvp(g, ans, x):
    if not _is_complex(x):
        return select(ge(x, const_like(x, 0)), g, neg(g))
    to_dtype = registry["convert_element_type"].bind
    conjugate = conj(x)
    modulus = to_dtype(ans, new_dtype=typeof(x).dtype, weak_type=False, sharding=None)
    modulus = select(eq(modulus, const_like(modulus, 0)), full_like(modulus, 1), modulus)
    return real(mul(g, div(conjugate, modulus)))


abs_p = elementwise(
    "abs",
    (np.signedinteger, np.floating, np.complexfloating),
    reference=np.abs,
    result=to_real,
    jvp=PerOperand(_abs_jvp),
    narrow=False,
    zeros=Zeros.POSITIVE,
)


def sign(x: Any) -> Any:
    """-1, 0 or 1 by the sign of x; zeros and NaN unchanged. For complex numbers x / |x|, and 0 at 0.

    Elementwise on integers, floats or complex numbers; the result has the same shape and dtype. TypeError for others.

    >>> lax.sign(jnp.array([-2.0, 0.0, 3.0]))
    Array([-1.,  0.,  1.], dtype=float32)
    """
    return sign_p.bind(x)


def _numpy_sign(x):
    return np.where(x == 0, x, np.sign(x))


sign_p = elementwise("sign", NUMERIC, reference=_numpy_sign, cost=3, jvp=CONSTANT)

# ---------------------------------------------------------------- rounding


class RoundingMethod(enum.IntEnum):
    """How `round` rounds numbers halfway between two integers.

    >>> lax.round(jnp.array([0.5, 1.5, 2.5]), lax.RoundingMethod.TO_NEAREST_EVEN)
    Array([0., 2., 2.], dtype=float32)
    """

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1

    __str__ = enum.IntEnum.__repr__


def floor(x: Any) -> Any:
    """The largest integer not above x, as a float.

    Elementwise on floats; the result has the same shape and dtype. TypeError for others.

    >>> lax.floor(jnp.array([-1.5, 0.2]))
    Array([-2.,  0.], dtype=float32)
    """
    return floor_p.bind(x)


def ceil(x: Any) -> Any:
    """The smallest integer not below x, as a float.

    Elementwise on floats; the result has the same shape and dtype. TypeError for others.

    >>> lax.ceil(jnp.array([-1.5, 0.2]))
    Array([-1.,  1.], dtype=float32)
    """
    return ceil_p.bind(x)


def round(x: Any, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Any:
    """The nearest integer, as a float.

    Elementwise on floats; the result has the same shape and dtype. TypeError for others.

    >>> lax.round(jnp.array([-1.5, 0.2, 2.5]))
    Array([-2.,  0.,  3.], dtype=float32)
    """
    return round_p.bind(x, rounding_method=RoundingMethod(rounding_method))


def is_finite(x: Any) -> Any:
    """Whether x is neither infinite nor NaN.

    Elementwise on floats; the result is bool. TypeError for others.

    >>> lax.is_finite(jnp.array([1.0, np.inf, np.nan]))
    Array([ True, False, False], dtype=bool)
    """
    return is_finite_p.bind(x)


def _numpy_round(x, *, rounding_method):
    if rounding_method == RoundingMethod.TO_NEAREST_EVEN:
        return np.rint(x)
    whole = np.trunc(x)
    return whole + np.copysign((np.abs(x - whole) >= 0.5).astype(x.dtype), x)


floor_p = elementwise("floor", FLOATING, reference=np.floor, jvp=CONSTANT)
ceil_p = elementwise("ceil", FLOATING, reference=np.ceil, jvp=CONSTANT)
round_p = elementwise(
    "round",
    FLOATING,
    reference=_numpy_round,
    cost=2,
    jvp=CONSTANT,
    pretty=lambda eqn, _names: [("rounding_method", int(eqn.params["rounding_method"]))],
)
is_finite_p = elementwise(
    "is_finite", FLOATING, reference=np.isfinite, result=to_bool, jvp=CONSTANT, zeros=Zeros.EQUAL
)

# ---------------------------------------------------------------- parts of complex numbers

_COMPLEX = (np.complexfloating,)


def real(x: Any) -> Any:
    """The real part of a complex number.

    Elementwise on complex numbers; the result has the dtype of the parts. TypeError for others.

    >>> lax.real(jnp.array([1 + 2j]))
    Array([1.], dtype=float32)
    """
    return real_p.bind(x)


def imag(x: Any) -> Any:
    """The imaginary part of a complex number.

    Elementwise on complex numbers; the result has the dtype of the parts. TypeError for others.

    >>> lax.imag(jnp.array([1 + 2j]))
    Array([2.], dtype=float32)
    """
    return imag_p.bind(x)


def conj(x: Any) -> Any:
    """The complex conjugate; float32 and float64 become complex.

    Elementwise on floats or complex numbers; the result is complex. TypeError for others.

    >>> lax.conj(jnp.array([1 + 2j]))
    Array([1.-2.j], dtype=complex64)
    """
    return conj_p.bind(x, input_dtype=typeof(x).dtype)


def _part(ct) -> Any:
    """A zero for the other part, with a strong dtype: as in JAX, cotangents of complex numbers are not weakly typed."""
    return typeof(ct).dtype.type(0)


real_p = elementwise(
    "real",
    _COMPLEX,
    reference=np.real,
    result=to_real,
    jvp=LINEAR,
    transpose=lambda ct, x: [complex(ct, _part(ct))],
)
imag_p = elementwise(
    "imag",
    _COMPLEX,
    reference=np.imag,
    result=to_real,
    jvp=LINEAR,
    transpose=lambda ct, x: [complex(_part(ct), neg(ct))],
)
real_p.sums = imag_p.sums = sum_types.linear
conj_p = elementwise(
    "conj",
    (np.float32, np.float64, np.complexfloating),
    reference=lambda x, *, input_dtype: np.conj(x),
    result=to_complex,
    jvp=LINEAR,
    transpose=lambda ct, x, *, input_dtype: [
        conj(ct) if dtypes.issubdtype(input_dtype, np.complexfloating) else real(ct)
    ],
)

# ---------------------------------------------------------------- precision


def reduce_precision(operand: Any, exponent_bits: int, mantissa_bits: int) -> Any:
    """Round to a float format of the given widths; keeps the dtype.

    >>> lax.reduce_precision(jnp.float32(3.14159), exponent_bits=8, mantissa_bits=7)
    Array(3.140625, dtype=float32)
    """
    return reduce_precision_p.bind(
        operand, exponent_bits=int(exponent_bits), mantissa_bits=int(mantissa_bits)
    )


def _reduce_precision_type(infer):
    def type_rule(x, *, exponent_bits, mantissa_bits):
        out = infer(x)
        if exponent_bits < 1:
            raise ValueError(f"reduce_precision: exponent_bits must be positive; got {exponent_bits}")
        if mantissa_bits < 0:
            raise ValueError(f"reduce_precision: mantissa_bits must be non-negative; got {mantissa_bits}")
        return out

    return type_rule


def _numpy_reduce_precision(x, *, exponent_bits, mantissa_bits):
    """Computes in float64: rounds the mantissa, then turns values outside the exponent's range into inf or zero."""
    wide = x.astype(np.float64)
    fraction, exponent = np.frexp(wide)
    scale = 2.0 ** (mantissa_bits + 1)
    rounded = np.ldexp(np.rint(fraction * scale) / scale, exponent)
    bias = 2 ** (exponent_bits - 1) - 1
    largest = (2.0 - 2.0**-mantissa_bits) * 2.0**bias
    rounded = np.where(np.abs(rounded) > largest, np.copysign(np.inf, wide), rounded)
    rounded = np.where(np.abs(rounded) < 2.0 ** (1 - bias), np.copysign(0.0, wide), rounded)
    return np.where(np.isfinite(wide), rounded, wide)


reduce_precision_p = elementwise(
    "reduce_precision",
    FLOATING,
    reference=_numpy_reduce_precision,
    lower=Elementwise(scalar_rule("reduce_precision"), 4, zeros=Zeros.PASSED),
    jvp=LINEAR,
    transpose=lambda ct, x, **bits: [reduce_precision(ct, **bits)],
)
reduce_precision_p.type_rule = _reduce_precision_type(reduce_precision_p.type_rule)
reduce_precision_p.sums = sum_types.linear
