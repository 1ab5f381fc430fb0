"""Bitwise operations on integers, and logic on bools."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.ops.families import BITS, CONSTANT, INTEGER, elementwise


def bitwise_not(x: Any) -> Any:
    """Flips all bits; the negation for bool.

    Elementwise on bool or integers; the result has the same shape and dtype. TypeError for others.

    >>> lax.bitwise_not(jnp.array([0, 5]))
    Array([-1, -6], dtype=int32)
    """
    return not_p.bind(x)


def bitwise_and(x: Any, y: Any) -> Any:
    """Bits that are set in both operands.

    Elementwise on bool or integers of one shape and dtype, or scalars; the result has the same shape and dtype.
    TypeError for others.

    >>> lax.bitwise_and(jnp.array([12, 10]), 6)
    Array([4, 2], dtype=int32)
    """
    return and_p.bind(x, y)


def bitwise_or(x: Any, y: Any) -> Any:
    """Bits that are set in at least one operand.

    Elementwise on bool or integers of one shape and dtype, or scalars; the result has the same shape and dtype.
    TypeError for others.

    >>> lax.bitwise_or(jnp.array([12, 10]), 6)
    Array([14, 14], dtype=int32)
    """
    return or_p.bind(x, y)


def bitwise_xor(x: Any, y: Any) -> Any:
    """Bits that are set in exactly one operand.

    Elementwise on bool or integers of one shape and dtype, or scalars; the result has the same shape and dtype.
    TypeError for others.

    >>> lax.bitwise_xor(jnp.array([12, 10]), 6)
    Array([10, 12], dtype=int32)
    """
    return xor_p.bind(x, y)


def shift_left(x: Any, y: Any) -> Any:
    """x << y; 0 where y is negative or at least the number of bits.

    Elementwise on integers of one shape and dtype, or scalars; the result has the same shape and dtype. TypeError for
    others.

    >>> lax.shift_left(jnp.array([1, 3]), 2)
    Array([ 4, 12], dtype=int32)
    """
    return shift_left_p.bind(x, y)


def shift_right_logical(x: Any, y: Any) -> Any:
    """x >> y, filled with zeros; 0 where y is negative or at least the number of bits.

    Elementwise on integers of one shape and dtype, or scalars; the result has the same shape and dtype. TypeError for
    others.

    >>> lax.shift_right_logical(jnp.array([-8, 8]), 1)
    Array([2147483644,          4], dtype=int32)
    """
    return shift_right_logical_p.bind(x, y)


def shift_right_arithmetic(x: Any, y: Any) -> Any:
    """x >> y, filled with the sign; the sign in every bit where y is negative or at least the number of bits.

    Elementwise on integers of one shape and dtype, or scalars; the result has the same shape and dtype. TypeError for
    others.

    >>> lax.shift_right_arithmetic(jnp.array([-8, 8]), 1)
    Array([-4,  4], dtype=int32)
    """
    return shift_right_arithmetic_p.bind(x, y)


def population_count(x: Any) -> Any:
    """The number of set bits.

    Elementwise on integers; the result has the same shape and dtype. TypeError for others.

    >>> lax.population_count(jnp.array([0, 1, 255], dtype="uint8"))
    Array([0, 1, 8], dtype=uint8)
    """
    return population_count_p.bind(x)


def clz(x: Any) -> Any:
    """The number of leading zero bits.

    Elementwise on integers; the result has the same shape and dtype. TypeError for others.

    >>> lax.clz(jnp.array([0, 1, 255], dtype="uint8"))
    Array([8, 7, 0], dtype=uint8)
    """
    return clz_p.bind(x)


def _width(x) -> int:
    return 8 * x.dtype.itemsize


def _unsigned(x: np.ndarray) -> np.ndarray:
    return x.astype(np.dtype(f"u{x.dtype.itemsize}"), copy=False)


def _shift(x, y, shift, outside):
    """`shift` for valid counts; `outside` for others."""
    valid = _unsigned(y) < _width(x)
    safe = np.where(valid, _unsigned(y), 0).astype(x.dtype)
    return np.where(valid, shift(x, safe), outside).astype(x.dtype)


def _shift_right_logical(x, y):
    shifted = _shift(_unsigned(x), _unsigned(y), np.right_shift, 0)
    return shifted.astype(x.dtype)


def _shift_right_arithmetic(x, y):
    signed = x.astype(np.dtype(f"i{x.dtype.itemsize}"), copy=False)
    return _shift(signed, y, np.right_shift, np.where(signed < 0, -1, 0)).astype(x.dtype)


def _clz(x):
    bits, lengths = _unsigned(x), np.zeros(x.shape, x.dtype)
    for k in range(_width(x)):
        lengths = np.where(bits >> bits.dtype.type(k) != 0, k + 1, lengths)
    return _width(x) - lengths


def _bits2(name: str, reference, accepts=BITS):
    return elementwise(name, accepts, accepts, reference=reference, jvp=CONSTANT)


not_p = elementwise("not", BITS, reference=np.bitwise_not, jvp=CONSTANT)
and_p = _bits2("and", np.bitwise_and)
or_p = _bits2("or", np.bitwise_or)
xor_p = _bits2("xor", np.bitwise_xor)
shift_left_p = _bits2("shift_left", lambda x, y: _shift(x, y, np.left_shift, 0), INTEGER)
shift_right_logical_p = _bits2("shift_right_logical", _shift_right_logical, INTEGER)
shift_right_arithmetic_p = _bits2("shift_right_arithmetic", _shift_right_arithmetic, INTEGER)
population_count_p = elementwise(
    "population_count", INTEGER, reference=lambda x: np.bitwise_count(_unsigned(x)), cost=6, jvp=CONSTANT
)
clz_p = elementwise("clz", INTEGER, reference=_clz, cost=6, jvp=CONSTANT)
