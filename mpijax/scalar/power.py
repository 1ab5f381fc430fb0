"""Rules of pow, sqrt, rsqrt, cbrt.

x^y = 2^(y log2 x), with the logarithm as a pair of numbers (including its rounding error), so that the error is small
for results of any size.

Measured maximum errors (in ulp): float32 pow 1.3, rsqrt 1.5, cbrt 1.0; float64 pow 1.6, rsqrt 1.5, cbrt 1.0.
"""

from __future__ import annotations

import numpy as np

from mpijax.scalar.exponential import EXP2_F32, EXP2_F64, nearest, scaled
from mpijax.scalar.expr import Real, elementary, is_single, on_floats, polynomial, where
from mpijax.scalar.guard import rarely
from mpijax.scalar.logarithm import exponent_value, split
from mpijax.scalar.registry import COMPLEX_RULES, RULES, rule
from mpijax.scalar.types import FLOAT32, FLOAT64, Scalar, info

# log2(1 + f) / f for 1 + f between sqrt(1/2) and sqrt(2), with error 2^-36
LOG2_FOR_F32 = (1.4426950408687007, -0.7213475208687976, 0.4808983613932524, -0.36067367481436513,
                0.28853729370277126, -0.24045316682127743, 0.20617535272310006, -0.1803005628581599,
                0.1587698645533032, -0.14315695340791698, 0.144748524255247, -0.1428370966670488,
                0.0773678205320324)
# 2 / ln 2 and a third of it, in two parts each; the terms of the logarithm's series from s^5 on
TWO_OVER_LN2_F32 = (2.885390043258667, 3.851925982253235e-08)
TWO_OVER_LN2_F64 = (2.8853900817779268, 4.0710547481862064e-17)
THIRD_F32 = (0.9617967009544373, -7.028461650952758e-09)
THIRD_F64 = (0.9617966939259756, 5.0577616648125906e-17)
LOG2_TAIL_F32 = (0.5770779848098755, 0.41220593452453613, 0.32001179456710815, 0.28171196579933167)
LOG2_TAIL_F64 = (0.5770780163524145, 0.41219858456492264, 0.3205986495570483, 0.2623289840571418,
                 0.22103916062717255, 0.21248582230252483)
# initial approximation of the cube root between sqrt(1/2) and sqrt(2)
CBRT = (0.49250975251197815, 0.7397174835205078, -0.2903788387775421, 0.058220844715833664)


@elementary
def sqrt(x: Real) -> Real:
    """Square root, correctly rounded."""
    return x.sqrt()


@elementary
def rsqrt(x: Real) -> Real:
    """1 / sqrt(x)."""
    return 1.0 / x.sqrt()


@elementary
def cbrt(x: Real) -> Real:
    """Cube root with the sign of x."""
    mantissa, bias, least = (23, 127, 2.0**-126) if is_single(x) else (52, 1023, 2.0**-1022)
    a = abs(x)
    tiny = a < least
    field, m = split(where(tiny, a * 2.0**54, a))
    e = exponent_value(field, x) - where(tiny, x.const(54.0), 0.0)
    # e = 3 k + j, j in 0 1 2
    k = ((e - 1.0) * (1.0 / 3.0)).roundeven()
    j = e - k * 3.0
    one, two = j > 0.5, j > 1.5
    m = m * where(two, x.const(4.0), where(one, x.const(2.0), 1.0))
    start = polynomial(m * where(two, x.const(0.25), where(one, x.const(0.5), 1.0)), CBRT)
    t = start * where(two, x.const(4.0 ** (1 / 3)), where(one, x.const(2.0 ** (1 / 3)), 1.0))
    for _ in range(1 if is_single(x) else 2):  # Halley: each step triples the digits
        cube = t * t * t
        t = t - t * ((cube - m) / (cube + cube + m))
    bits = (k + (1.5 * 2.0**mantissa + bias)).bits() << mantissa
    y = (t * bits.as_float()).with_sign_of(x)
    return where((a > 0.0) & (a < np.inf), y, x)


@rule
def pow_(b, x: Scalar, y: Scalar, **_) -> Scalar:
    """x ** y; y has x's dtype or is an integer; special cases as in C's pow."""
    if x.imag is not None or y.imag is not None:
        return COMPLEX_RULES["pow"](b, x, y)
    i = info(x.dtype)
    if i.is_integer:
        return _integer_power(b, x, y)
    if not info(y.dtype).is_float:
        y = b.convert(y, FLOAT64)
        wide = Scalar(FLOAT32, x.ir) if i.kind == "n" else x
        return b.convert(power_of_floats(Real(b, wide), Real(b, y)).s, x.dtype)
    return on_floats(b, power_of_floats, x, y)


def _integer_power(b, x: Scalar, y: Scalar) -> Scalar:
    """By repeated squaring over all bits of y; a negative y is read as an unsigned number."""
    result, multiply = b.const(1, x.dtype), RULES["mul"]
    one = b.const(1, y.dtype)
    for bit in range(info(y.dtype).bits):
        odd = b.and_(b.lshr(y, b.const(bit, y.dtype)), one)
        result = b.select(b.compare("ne", odd, b.const(0, y.dtype)), multiply(b, result, x), result)
        x = multiply(b, x, x)
    return result


def power_of_floats(x: Real, y: Real) -> Real:
    """x^y of two floats; positive normal numbers with a normal result take the common path."""
    if x.dtype != y.dtype:
        return _every_power(x, y)
    single = is_single(x)
    field, m = split(x)
    product, low = _log2_times(y, exponent_value(field, x), m)
    k, bits = nearest(product, 1.0)
    p = polynomial((product - k) + low, EXP2_F32 if single else EXP2_F64)
    mantissa, bias = (23, 127) if single else (52, 1023)
    usual = (p.bits() + ((bits - 2 * bias) << mantissa)).as_float()
    normal = (x >= (2.0**-126 if single else 2.0**-1022)) & (x < np.inf)
    return rarely("pow", ~(normal & (abs(product) < bias - 2.0)), usual, _every_power, x, y)


def _every_power(x: Real, y: Real) -> Real:
    """x^y with all special cases; y may be float64 with x float32 (an integer exponent)."""
    size = _in_pairs(abs(x), y) if x.dtype == y.dtype else _in_double(abs(x), y)
    whole = y.trunc().eq(y)
    half = y * 0.5
    odd = whole & half.trunc().ne(half)
    flip = odd & (x.bits() < 0)
    result = where(flip, -size, size)
    result = where((x < 0.0) & (x > -np.inf) & ~whole, x.const(np.nan), result)
    return where(x.eq(1.0) | y.eq(0.0), 1.0, result)


def _logarithm_at_the_edges(a: Real, log2: Real) -> Real:
    return where(a < np.inf, where(a.eq(0.0), a.const(-np.inf), log2), a)


def _exponent_product(y: Real, log2: Real) -> Real:
    """y log2; 0 if the logarithm is 0, so that 1 ** inf is 1."""
    return where(log2.eq(0.0) & ~y.is_nan(), 0.0, y * log2)


def _in_double(a: Real, y: Real) -> Real:
    """a^y for float32 a and float64 y: an integer exponent may have more bits than float32."""
    wide = a.cast("fpext", FLOAT64)
    field, m = split(wide)
    f = m - 1.0
    log2 = f.fma(polynomial(f, LOG2_FOR_F32), exponent_value(field, wide))
    log2 = _logarithm_at_the_edges(wide, log2)
    z = _exponent_product(y, log2).at_most(200.0).at_least(-200.0)
    k = (z + 1.5 * 2.0**52) - 1.5 * 2.0**52
    r = (z - k).cast("fptrunc", FLOAT32)
    _, bits = nearest(k.cast("fptrunc", FLOAT32), 1.0)
    return scaled(polynomial(r, EXP2_F32), bits)


def _in_pairs(a: Real, y: Real) -> Real:
    """a^y for any a >= 0."""
    single = is_single(a)
    least, lift = (2.0**-126, 25.0) if single else (2.0**-1022, 54.0)
    tiny = a < least
    field, m = split(where(tiny, a * 2.0**lift, a))
    e = exponent_value(field, a) - where(tiny, a.const(lift), 0.0)
    product, low = _log2_times(y, e, m)
    product = where(a.eq(0.0), y * -np.inf, where(a < np.inf, product, y * a))
    # 1 ** inf is 1
    product = where(a.eq(1.0) & ~y.is_nan(), 0.0, product)
    low = where(abs(product) < 2000.0, low, 0.0)
    product = product.at_most(200.0 if single else 1100.0).at_least(-200.0 if single else -1200.0)
    k, bits = nearest(product, 1.0)
    low = where(a.eq(1.0), 0.0, low)
    return scaled(polynomial((product - k) + low, EXP2_F32 if single else EXP2_F64), bits)


def _log2_times(y: Real, e: Real, m: Real) -> tuple[Real, Real]:
    """y (e + log2 m) as a sum of two numbers."""
    single = is_single(m)
    factor_high, factor_rest = TWO_OVER_LN2_F32 if single else TWO_OVER_LN2_F64
    third_high, third_rest = THIRD_F32 if single else THIRD_F64
    # s = (m - 1) / (m + 1) as s + rest
    numerator, denominator = m - 1.0, m + 1.0
    dropped = m - (denominator - 1.0)
    inverse = 1.0 / denominator
    s = numerator * inverse
    rest = (-s).fma(dropped, (-s).fma(denominator, numerator)) * inverse
    # log2 m = C s + (C/3) s^3 + s^5 T(s^2); the first two in pairs
    z = s * s
    z_low = s.fma(s, -z) + 2.0 * s * rest
    third = z * third_high
    third_low = z.fma(third_high, -third) + z.fma(third_rest, z_low * third_high)
    third_low = (z * z).fma(polynomial(z, LOG2_TAIL_F32 if single else LOG2_TAIL_F64), third_low)
    factor = third + factor_high
    factor_low = (third - (factor - factor_high)) + (third_low + factor_rest)
    high = s * factor
    low = s.fma(factor, -high) + s.fma(factor_low, rest * factor)
    # The exponent is 0 or at least as large as log2 m.
    log2 = e + high
    log2_low = (high - (log2 - e)) + low
    product = y * log2
    return product, y.fma(log2, -product) + y * log2_low
