"""Rules of comparisons, logic, shifts, bit counts, type changes, and parts of complex numbers."""

from __future__ import annotations

import numpy as np

from mpijax.scalar import complex as cx
from mpijax.scalar import narrow
from mpijax.scalar.builder import Builder
from mpijax.scalar.registry import named, rule
from mpijax.scalar.types import FLOAT32, UINT32, Scalar, imag_part, info


def _comparison(name: str):
    def compare(b: Builder, x: Scalar, y: Scalar) -> Scalar:
        """Elementwise comparison, bool; with NaN only `ne` is true; complex numbers compare by (real, imaginary)."""
        if x.imag is None:
            return b.compare(name, x, y)
        if name in ("eq", "ne"):
            parts = b.compare(name, cx.real_part(x), cx.real_part(y)), b.compare(name, x.imag, imag_part(y))
            return b.and_(*parts) if name == "eq" else b.or_(*parts)
        return cx.ordered(b, name, x, y)

    compare.__name__ = name
    return rule(compare)


eq, ne, lt, le, gt, ge = (_comparison(name) for name in ("eq", "ne", "lt", "le", "gt", "ge"))


def _total_order(name: str, predicate: str):
    def compare(b: Builder, x: Scalar, y: Scalar) -> Scalar:
        """Comparison in the total order -NaN < -inf < ... < -0 < +0 < ... < inf < NaN."""
        return b.compare(predicate, _order_key(b, x), _order_key(b, y))

    return named(name)(compare)


def _order_key(b: Builder, x: Scalar) -> Scalar:
    """An integer that sorts like the float in the total order."""
    i = info(x.dtype)
    if not i.is_float:
        return x
    integer = np.dtype(f"i{i.itemsize}")
    bits = b.bitcast(x, integer)
    flipped = b.xor(bits, b.const((1 << (i.bits - 1)) - 1, integer))
    return b.select(b.compare("lt", bits, b.const(0, integer)), flipped, bits)


eq_to, le_to, lt_to = (_total_order(f"{name}_to", name) for name in ("eq", "le", "lt"))


@rule
def and_(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    return b.and_(x, y)


@rule
def or_(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    return b.or_(x, y)


@rule
def xor(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    return b.xor(x, y)


@rule
def not_(b: Builder, x: Scalar) -> Scalar:
    return b.not_(x)


def _in_range(b: Builder, count: Scalar) -> Scalar:
    """Whether a shift count is below the width; as an unsigned number, a negative count is huge."""
    return b.icmp("ult", count, b.const(info(count.dtype).bits, count.dtype))


@rule
def shift_left(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    """x << y; counts of the width or more give 0."""
    zero = b.const(0, x.dtype)
    return b.select(_in_range(b, y), b.shl(x, y), zero)


@rule
def shift_right_logical(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    """x >> y filled with zeros; counts of the width or more give 0."""
    return b.select(_in_range(b, y), b.lshr(x, y), b.const(0, x.dtype))


@rule
def shift_right_arithmetic(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    """x >> y filled with the sign bit; counts of the width or more give the sign in every bit."""
    top = b.const(info(x.dtype).bits - 1, x.dtype)
    return b.ashr(x, b.select(_in_range(b, y), y, top))


@rule
def population_count(b: Builder, x: Scalar) -> Scalar:
    return b.intrinsic("ctpop", x)


@rule
def clz(b: Builder, x: Scalar) -> Scalar:
    """Leading zeros; the width for 0."""
    return b.intrinsic("ctlz", x, extra=(("i1", "false"),))


@rule
def convert_element_type(b: Builder, x: Scalar, *, new_dtype, weak_type=False, sharding=None) -> Scalar:
    return b.convert(x, new_dtype)


@rule
def bitcast_convert_type(b: Builder, x: Scalar, *, new_dtype) -> Scalar:
    """The same bits as a type of equal width."""
    return b.bitcast(x, new_dtype)


@rule
def real(b: Builder, x: Scalar) -> Scalar:
    return cx.real_part(x)


@rule
def imag(b: Builder, x: Scalar) -> Scalar:
    return x.imag if x.imag else b.const(0, x.dtype)


@rule
def conj(b: Builder, x: Scalar, *, input_dtype=None) -> Scalar:
    """Complex conjugate; a real operand becomes complex."""
    if x.imag is None:
        return cx.pair(x, b.const(0.0, x.dtype))
    return Scalar(x.dtype, x.ir, b.neg(x.imag))


@rule
def complex_(b: Builder, re: Scalar, im: Scalar) -> Scalar:
    return cx.pair(re, im)


@rule
def copy(b: Builder, x: Scalar) -> Scalar:
    return x


@rule
def reduce_precision(b: Builder, x: Scalar, *, exponent_bits: int, mantissa_bits: int) -> Scalar:
    """Round to a float of the given exponent and mantissa widths, held in x's dtype.

    Overflow gives infinity; values below the target's smallest normal number give a signed zero.
    """
    i = info(x.dtype)
    wide = FLOAT32 if i.kind == "n" else x.dtype
    value = Scalar(wide, x.ir)
    own_mantissa, own_bias, u = (23, 127, UINT32) if wide == FLOAT32 else (52, 1023, np.dtype("u8"))
    bits = b.bitcast(value, u)
    drop = own_mantissa - mantissa_bits
    if drop > 0:
        odd = b.and_(b.lshr(bits, b.const(drop, u)), b.const(1, u))
        bits = b.add(b.add(bits, b.const((1 << (drop - 1)) - 1, u)), odd)
        bits = b.and_(bits, b.const(-1 << drop, u))
    rounded = b.bitcast(bits, wide)
    bias = (1 << (exponent_bits - 1)) - 1
    if bias < own_bias:
        size = b.abs(rounded)
        over = b.compare("ge", size, b.const(2.0 ** (bias + 1), wide))
        under = b.compare("lt", size, b.const(2.0 ** (1 - bias), wide))
        rounded = b.select(over, b.copysign(b.const(np.inf, wide), value), rounded)
        rounded = b.select(under, b.copysign(b.const(0, wide), value), rounded)
    result = Scalar(x.dtype, b.select(b.is_nan(value), value, rounded).ir)
    return narrow.round_to(b, result) if i.kind == "n" else result
