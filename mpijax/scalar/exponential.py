"""Rules of exp, exp2, expm1, logistic.

Reduction: x = k ln 2 + r with ln 2 split in two parts (Cody-Waite), and an exact remainder by fused
multiply-adds; a minimax polynomial in r; multiplication by 2^k. The low bits of x/ln 2 + 1.5 * 2^23 (2^52)
contain the integer k, so no conversion instruction is needed. 2^k is applied as two factors, because k
exceeds the exponent range where results are denormal or overflow.

Measured maximum errors over the whole range (in ulp): float32 exp 1.0, exp2 1.2, expm1 1.5, logistic 1.8;
float64 exp 1.0, exp2 1.5, expm1 1.8, logistic 2.0.
"""

from __future__ import annotations

import numpy as np

from mpijax.scalar.expr import Real, elementary, is_single, polynomial, where
from mpijax.scalar.guard import rarely

LN2 = 0.6931471805599453
LOG2E = 1.4426950408889634
# ln 2 as a sum of two numbers; the second is far below the last bit of the first.
LN2_F32 = (float(np.float32(LN2)), LN2 - float(np.float32(LN2)))
LN2_F64 = (LN2, 2.3190468138462996e-17)

# (e^r - 1 - r) / r^2 on |r| <= ln(2)/2
EXP_F32 = (0.4999999403953552, 0.16666516661643982, 0.04166810214519501, 0.00836919154971838,
           0.00138388411141932)
EXP_F64 = (0.5000000000000011, 0.1666666666666651, 0.04166666666652651, 0.008333333333423246,
           0.0013888888944570184, 0.0001984126967899542, 2.4801492098884877e-05, 2.755741800725466e-06,
           2.763062444238139e-07, 2.5057378501528074e-08)
# 2^r on |r| <= 1/2
EXP2_F32 = (1.0, 0.6931472420692444, 0.24022655189037323, 0.055502619594335556, 0.009617451578378677,
            0.0013423211639747024, 0.0001565866550663486)
EXP2_F64 = (1.0, 0.6931471805599457, 0.240226506959101, 0.05550410866478786, 0.009618129107605613,
            0.0013333558153972495, 0.00015403530443904405, 1.5252726931644273e-05, 1.321544125574664e-06,
            1.018081556380401e-07, 7.072853784496804e-09, 4.055628367079816e-10)
# (e^r - 1 - r) / r^2, with a small error relative to e^r - 1
EXPM1_F32 = (0.4999999701976776, 0.16666539013385773, 0.04166775196790695, 0.008367104455828667,
             0.0013836800353601575)
EXPM1_F64 = (0.5, 0.16666666666666677, 0.04166666666666669, 0.008333333333321787, 0.0013888888888889481,
             0.00019841269885273336, 2.4801587286835623e-05, 2.7557245296087254e-06, 2.755732449059476e-07,
             2.5108619366201067e-08, 2.0894928791257234e-09)


def scaled(x: Real, k: Real) -> Real:
    """x * 2^k in two factors; k is an integer with the bits that `nearest` returns."""
    mantissa = 23 if is_single(x) else 52
    half = Real(k.b, k.b.lshr(k.s, k.const(1).s))
    return x * (half << mantissa).as_float() * ((k - half) << mantissa).as_float()


def nearest(x: Real, factor: float) -> tuple[Real, Real]:
    """(n, bits) for n = x * factor rounded to an integer, as a float; the low end of bits is n + 2 * bias.

    These bits halved and shifted to the exponent field are 2^(n/2), including the bias.
    """
    mantissa, bias = (23, 127) if is_single(x) else (52, 1023)
    magic = 1.5 * 2.0**mantissa + 2 * bias
    shifted = x.fma(x.const(factor), magic)
    return shifted - magic, shifted.bits()


@elementary
def exp(x: Real) -> Real:
    """e^x."""
    if not is_single(x):
        return scaled(*exp_parts(x))
    # NaN takes the rare path. Masked scores are far below the others: there the result is 0.
    return rarely(
        "exp", ~(abs(x) < 87.0), ordinary_exp(x), lambda v: scaled(*exp_parts(v)), x, easy=lambda v: (v < -104.0, 0.0)
    )


def ordinary_exp(x: Real) -> Real:
    """e^x if it is a normal number: k is added to the exponent field."""
    mantissa, bias = (23, 127) if is_single(x) else (52, 1023)
    _, bits, r = _reduced(x)
    return (_exp_polynomial(r).bits() + ((bits - 2 * bias) << mantissa)).as_float()


def exp_parts(x: Real) -> tuple[Real, Real]:
    """(p, bits of k) with e^x = p 2^k, for e^x that would overflow or lose bits."""
    low, high = (-104.0, 90.0) if is_single(x) else (-746.0, 711.0)
    _, bits, r = _reduced(x.at_most(high).at_least(low))
    return _exp_polynomial(r), bits


def _exp_polynomial(r: Real) -> Real:
    """e^r for |r| <= ln(2)/2."""
    return 1.0 + (r * r).fma(polynomial(r, EXP_F32 if is_single(r) else EXP_F64), r)


def _reduced(x: Real) -> tuple[Real, Real, Real]:
    """(k, bits, r) with x = k ln 2 + r."""
    hi, lo = LN2_F32 if is_single(x) else LN2_F64
    k, bits = nearest(x, LOG2E)
    return k, bits, k.fma(-lo, k.fma(-hi, x))


@elementary
def exp2(x: Real) -> Real:
    """2^x; exact for integers."""
    low, high = (-151.0, 129.0) if is_single(x) else (-1076.0, 1025.0)
    x = x.at_most(high).at_least(low)
    k, bits = nearest(x, 1.0)
    return scaled(polynomial(x - k, EXP2_F32 if is_single(x) else EXP2_F64), bits)


@elementary
def expm1(x: Real) -> Real:
    """e^x - 1 without cancellation near 0."""
    low, high = (-18.0, 89.0) if is_single(x) else (-38.0, 710.0)
    mantissa, bias = (23, 127) if is_single(x) else (52, 1023)
    _, bits, r = _reduced(x.at_most(high).at_least(low))
    q = (r * r).fma(polynomial(r, EXPM1_F32 if is_single(x) else EXPM1_F64), r)
    # 2^(k-1) is finite even where 2^k is infinite.
    half = ((bits - (bias + 1)) << mantissa).as_float()
    # For tiny x return x: halving would lose the last bit of a denormal, and adding 0 the sign of -0.
    return where(abs(x) < (2.0**-30 if is_single(x) else 2.0**-60), x, 2.0 * half.fma(q, half - 0.5))


@elementary
def logistic(x: Real) -> Real:
    """1 / (1 + e^-x); for negative x as e^-|x| / (1 + e^-|x|), so that small results keep their precision."""
    negative = x < 0.0
    e = exp(-abs(x))
    below = 1.0 + e
    lost = e - (below - 1.0)  # the rounding error of the sum
    y = where(negative, e, 1.0) / below
    reciprocal = where(negative, 1.0 - y, y)
    return (y * lost).fma(-reciprocal, y)
