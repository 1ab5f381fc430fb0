"""Rules of arithmetic and rounding: add sub mul div rem max min neg abs sign and others, for every dtype."""

from __future__ import annotations

import numpy as np

from mpijax.scalar import complex as cx
from mpijax.scalar.builder import Builder
from mpijax.scalar.quotient import float_quotient, float_remainder
from mpijax.scalar.registry import named, rule
from mpijax.scalar.types import BOOL, FLOAT32, FLOAT64, INT32, UINT32, Scalar, info


@rule
def add(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    """x + y; bool: or."""
    if info(x.dtype).kind == "b":
        return b.or_(x, y)
    return cx.add(b, x, y) if x.imag else b.add(x, y)


named("add_any")(add)


@rule
def sub(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    return cx.sub(b, x, y) if x.imag else b.sub(x, y)


@rule
def mul(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    """x * y; bool: and."""
    if info(x.dtype).kind == "b":
        return b.and_(x, y)
    return cx.mul(b, x, y) if x.imag else b.mul(x, y)


@rule
def div(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    """x / y; integers truncate, x/0 is -1 (all bits set), the smallest integer / -1 is itself."""
    if x.imag:
        return cx.div(b, x, y)
    if info(x.dtype).is_float:
        return float_quotient(b, x, y)
    return _integer_division(b, x, y)[0]


@rule
def rem(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    """Remainder with the sign of x; integers: x % 0 is x, the smallest integer % -1 is 0."""
    if info(x.dtype).is_float:
        return float_remainder(b, x, y)
    return _integer_division(b, x, y)[1]


def _integer_division(b: Builder, x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    """(quotient, remainder)."""
    i = info(x.dtype)
    zero, one = b.const(0, x.dtype), b.const(1, x.dtype)
    by_zero = b.compare("eq", y, zero)
    unsafe = by_zero
    if i.kind == "i":
        lowest = b.const(-1 << (i.bits - 1), x.dtype)
        unsafe = b.or_(by_zero, b.and_(b.compare("eq", x, lowest), b.compare("eq", y, b.const(-1, x.dtype))))
    if y.is_constant and not y.ir.endswith((" 0)", " -1)")) and y.ir not in ("0", "-1"):
        quotient = _safe_quotient(b, x, y)
        return quotient, b.sub(x, b.mul(quotient, y))
    quotient = _safe_quotient(b, x, b.select(unsafe, one, y))
    quotient = b.select(by_zero, b.const(-1, x.dtype), quotient)
    # With y = 0 the product is 0 and the remainder is x; with lowest / -1 the product wraps to lowest.
    return quotient, b.sub(x, b.mul(quotient, y))


def _safe_quotient(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    i = info(x.dtype)
    if y.is_constant or i.bits == 64:
        return b.sdiv(x, y) if i.kind == "i" else b.udiv(x, y)
    # Vector units do not divide integers, but quotients of up to 32 bits are exact in double after truncation:
    # x / y differs from an integer by at least 1/|y|, relative 2^-32, far above the rounding error of the division.
    wide = FLOAT64 if i.bits == 32 else FLOAT32
    signed = i.kind == "i"
    to, back = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
    q = b.div(b.cast(to, x, wide), b.cast(to, y, wide))
    if i.bits == 32:
        return b.cast(back, q, x.dtype)
    return b.cast("trunc", b.cast(back, q, INT32 if signed else UINT32), x.dtype)


@rule
def mulhi(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    """The high half of the product of two integers."""
    i = info(x.dtype)
    own, double = b.vector(i.compute), b.vector(f"i{2 * i.bits}")
    extend = "sext" if i.kind == "i" else "zext"
    wide = [b.emit(f"{extend} {own} {v.ir} to {double}") for v in (x, y)]
    product = b.emit(f"mul {double} {wide[0]}, {wide[1]}")
    bits = str(i.bits) if b.lanes == 1 else f"splat (i{2 * i.bits} {i.bits})"
    high = b.emit(f"lshr {double} {product}, {bits}")
    return Scalar(x.dtype, b.emit(f"trunc {double} {high} to {own}"))


@rule
def max_(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    """The larger, NaN if either is NaN; bool: or; complex: by (real, imaginary)."""
    if x.imag:
        return b.select(cx.ordered(b, "gt", x, y), x, y)
    return b.maximum(x, y)


@rule
def min_(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    """The smaller, NaN if either is NaN; bool: and; complex: by (real, imaginary)."""
    if x.imag:
        return b.select(cx.ordered(b, "lt", x, y), x, y)
    return b.minimum(x, y)


@rule
def neg(b: Builder, x: Scalar) -> Scalar:
    if x.imag:
        return Scalar(x.dtype, b.neg(cx.real_part(x)).ir, b.neg(x.imag))
    return b.neg(x)


@rule
def abs_(b: Builder, x: Scalar) -> Scalar:
    """|x|; complex gives a real."""
    return cx.abs_(b, x) if x.imag else b.abs(x)


@rule
def sign(b: Builder, x: Scalar) -> Scalar:
    """-1, 0 or 1; zeros and NaN unchanged; complex: x / |x|."""
    if x.imag:
        return cx.sign(b, x)
    i = info(x.dtype)
    zero, one = b.const(0, x.dtype), b.const(1, x.dtype)
    if i.is_float:
        moved = b.compare("ne", b.abs(x), zero)
        return b.select(b.is_nan(x), x, b.copysign(b.select(moved, one, zero), x))
    positive = b.select(b.compare("gt", x, zero), one, zero)
    if i.kind == "u":
        return positive
    return b.select(b.compare("lt", x, zero), b.const(-1, x.dtype), positive)


@rule
def floor(b: Builder, x: Scalar) -> Scalar:
    return b.floor(x)


@rule
def ceil(b: Builder, x: Scalar) -> Scalar:
    return b.ceil(x)


@rule
def round_(b: Builder, x: Scalar, *, rounding_method=0) -> Scalar:
    """Rounds to an integer: method 0 halves away from zero, 1 halves to even."""
    if int(rounding_method) == 1:
        return b.roundeven(x)
    # The largest number below one half: adding a true half would carry 0.49999997 up to 1.
    below_half = np.nextafter(*(np.asarray(v, _compute(x)) for v in (0.5, 0)))
    moved = b.op("fadd", x, b.copysign(b.const(below_half, x.dtype), x))
    return b.trunc(_unrounded(b, x, below_half) if info(x.dtype).kind == "n" else moved)


def _compute(x: Scalar):
    return FLOAT64 if x.dtype == FLOAT64 else FLOAT32


def _unrounded(b: Builder, x: Scalar, below_half) -> Scalar:
    value = Scalar(FLOAT32, x.ir)
    return Scalar(x.dtype, b.add(value, b.copysign(b.const(below_half, FLOAT32), value)).ir)


@rule
def is_finite(b: Builder, x: Scalar) -> Scalar:
    return b.compare("lt", b.abs(x), b.const(np.inf, x.dtype))


@rule
def square(b: Builder, x: Scalar) -> Scalar:
    """x * x. The real part of a complex result is exact even if the squares of the parts overflow."""
    return cx.square(b, x) if x.imag else mul(b, x, x)


@rule
def integer_pow(b: Builder, x: Scalar, *, y: int) -> Scalar:
    """x ** y for a constant integer y, by repeated squaring."""
    if y == 0:
        return b.const(1, x.dtype)
    power, result, n = x, None, abs(y)
    while True:
        if n & 1:
            result = power if result is None else mul(b, result, power)
        n >>= 1
        if not n:
            break
        power = mul(b, power, power)
    return result if y > 0 else div(b, b.const(1, x.dtype), result)  # type: ignore[return-value]


@rule
def clamp(b: Builder, low: Scalar, x: Scalar, high: Scalar) -> Scalar:
    """min(max(x, low), high)."""
    return min_(b, max_(b, x, low), high)


@rule
def select_n(b: Builder, which: Scalar, *cases: Scalar) -> Scalar:
    """cases[which]; `which` is a bool for two cases, else an int32 within range."""
    if which.dtype == BOOL:
        return cases[0] if len(cases) == 1 else b.select(which, cases[1], cases[0])
    result = cases[-1]
    for number in range(len(cases) - 2, -1, -1):
        result = b.select(b.compare("le", which, b.const(number, which.dtype)), cases[number], result)
    return result


@rule
def nextafter(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    """The next representable value after x towards y; y if x == y; NaN if either is NaN."""
    i = info(x.dtype)
    integer = np.dtype(f"i{i.bits // 8}")
    bits, one = b.bitcast(x, integer), b.const(1, integer)
    zero = b.const(0, x.dtype)
    # Away from zero the bit pattern grows, for both signs.
    away = b.xor(b.compare("lt", x, zero), b.compare("gt", y, x))
    step = b.select(away, b.add(bits, one), b.sub(bits, one))
    least = b.or_(one, b.and_(b.bitcast(y, integer), b.const(-1 << (i.bits - 1), integer)))
    result = b.bitcast(b.select(b.compare("eq", x, zero), least, step), x.dtype)
    result = b.select(b.compare("eq", x, y), y, result)
    return b.select(b.or_(b.is_nan(x), b.is_nan(y)), b.const(np.nan, x.dtype), result)
