"""Rules of asin, acos, atan, atan2.

Measured maximum errors (in ulp): asin 1.2, acos 1.0, atan 1.9, atan2 1.9, in float32 and float64.
"""

from __future__ import annotations

from mpijax.scalar.expr import Real, elementary, is_single, polynomial, where

TAN_PI_8 = 0.4142135623730951
HALF_PI_F32 = (1.5707963705062866, -4.371138828673793e-08)
HALF_PI_F64 = (1.5707963267948966, 6.123233995736766e-17)
# pi/4 with trailing zeros in the first part, so that its multiples up to 4 are exact
QUARTER_PI_F32 = (0.785398006439209, 1.5695823932524066e-07)
QUARTER_PI_F64 = (0.7853981633974483, 3.061616997868383e-17)

# (atan x - x) / x^3 in x^2 for |x| <= tan(pi/8)
ATAN_F32 = (-0.33333316445350647, 0.19998528063297272, -0.14244391024112701, 0.1059916764497757,
            -0.06090046837925911)
ATAN_F64 = (-0.33333333333333326, 0.19999999999997098, -0.14285714285317022, 0.1111111108379888,
            -0.09090907988207587, 0.07692279261743835, -0.06666175665255301, 0.05876526697081728,
            -0.05215249758830207, 0.04490849133095233, -0.03318162948061429, 0.014900537107661793)
# (asin x - x) / x^3 in x^2 for |x| <= 1/2
ASIN_F32 = (0.16666752099990845, 0.07495306432247162, 0.045469772070646286, 0.02418077178299427,
            0.042166419327259064)
ASIN_F64 = (0.16666666666665403, 0.0750000000033854, 0.04464285682701137, 0.03038195919328876,
            0.02237175665700394, 0.01735972636671869, 0.01388501664817757, 0.012170682291482514,
            0.006521472922776545, 0.019546438957787248, -0.01625335443132881, 0.03193261023257381)


def _arc_parts(x: Real) -> tuple[Real, Real, Real]:
    """(far, arc, rest): far is |x| > 1/2; arc + rest is asin |x|, or asin sqrt((1 - |x|)/2) where far."""
    a = abs(x)
    far = a > 0.5
    z = where(far, (1.0 - a) * 0.5, a * a)
    root = z.sqrt()
    # The rounding error of the root. The final answer is a difference that would double it.
    lost = where(far & (root > 0.0), (-root).fma(root, z) / (root + root), 0.0)
    base = where(far, root, a)
    tail = (base * z).fma(polynomial(z, ASIN_F32 if is_single(x) else ASIN_F64), lost)
    return far, base, tail


@elementary
def asin(x: Real) -> Real:
    """Inverse sine; NaN outside [-1, 1]."""
    far, base, tail = _arc_parts(x)
    hi, lo = HALF_PI_F32 if is_single(x) else HALF_PI_F64
    y = where(far, hi - (2.0 * base + (2.0 * tail - lo)), base + tail)
    return y.with_sign_of(x)


@elementary
def acos(x: Real) -> Real:
    """Inverse cosine; NaN outside [-1, 1]."""
    far, base, tail = _arc_parts(x)
    hi, lo = HALF_PI_F32 if is_single(x) else HALF_PI_F64
    arc = 2.0 * (base + tail)
    near = hi - (x - (lo - where(x < 0.0, -tail, tail)))
    return where(far, where(x < 0.0, 2.0 * hi - (arc - 2.0 * lo), arc), near)


@elementary
def atan(x: Real) -> Real:
    """Inverse tangent."""
    a = abs(x)
    upper, middle = a > 1.0 / TAN_PI_8, a > TAN_PI_8
    numerator = where(upper, a.const(-1.0), where(middle, a - 1.0, a))
    denominator = where(upper, a, where(middle, a + 1.0, 1.0))
    quarters = where(upper, a.const(2.0), where(middle, a.const(1.0), 0.0))
    return _angle(numerator / denominator, quarters).with_sign_of(x)


def _angle(u: Real, quarters: Real) -> Real:
    """quarters * pi/4 + atan u for |u| <= tan(pi/8)."""
    z = u * u
    arc = u * z * polynomial(z, ATAN_F32 if is_single(u) else ATAN_F64)
    hi, lo = QUARTER_PI_F32 if is_single(u) else QUARTER_PI_F64
    return quarters.fma(hi, u + quarters.fma(lo, arc))


@elementary
def atan2(y: Real, x: Real) -> Real:
    """The angle of the point (x, y), from -pi to pi, with the signs of zeros and infinities as in C."""
    a, b = abs(y), abs(x)
    low, high = a.at_most(b), a.at_least(b)
    # Scale, so that the sum of large operands does not overflow and the difference of small ones is not denormal.
    large, up = (2.0**100, 2.0**24) if is_single(x) else (2.0**900, 2.0**53)
    factor = where(high > large, x.const(0.25), up)
    low, high = low * factor, high * factor
    same = low.eq(high)
    middle = (low > high * TAN_PI_8) | (same & (high > 0.0))
    numerator = where(same, x.const(0.0), where(middle, low - high, low))
    denominator = where(same, x.const(1.0), where(middle, low + high, high))
    u = numerator / denominator
    quarters = where(middle, x.const(1.0), 0.0)
    # Reflect at the diagonal, then at the vertical axis: the angle is n pi/4 + or - atan u.
    steep = a > b
    u, quarters = where(steep, -u, u), where(steep, 2.0 - quarters, quarters)
    left = x.bits() < 0
    u, quarters = where(left, -u, u), where(left, 4.0 - quarters, quarters)
    return _angle(u, quarters).with_sign_of(y)

