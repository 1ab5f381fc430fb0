"""Rules of lgamma and digamma.

From 8 on they use Stirling's series. For smaller arguments, the recurrence moves lgamma to between 0.9 and 2.25, where
a polynomial has its zeros 1 and 2 as factors; it moves digamma up to 8. Negative arguments are reflected, except next
to the two zeros of lgamma between -3 and -2, where a Taylor series is used.

float32 is computed in float64 and rounded once: measured error 0.5 ulp. float64: lgamma 4 ulp for positive arguments,
0.8 ulp from 8 on (where its logarithm is a sum of two numbers), 2e-15 relative or absolute, whichever is larger, for
negative ones (below -3 it has zeros next to every integer); digamma 2e-15.
"""

from __future__ import annotations

import numpy as np

from mpijax.scalar.expr import Real, elementary, in_double, polynomial, where
from mpijax.scalar.guard import rarely
from mpijax.scalar.logarithm import LN2_F64, exponent_value, log, log_of_mantissa, split
from mpijax.scalar.trigonometric import cosine, sine

HALF_LOG_TWO_PI = 0.9189385332046727
TINY = 1e-18  # lgamma of a smaller number is minus its logarithm
SHIFT = 8
# Bernoulli numbers B_2k / (2k (2k - 1)) and B_2k / (2k)
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)
STIRLING_DERIVATIVE = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160)

# lgamma(x) / ((x - 1) (x - 2)) in x - 1.5, for x between 0.9 and 2.25
NEAR_ONE_AND_TWO = (0.4831289505409809, -0.14595989591430616, 0.06291140107456587, -0.03130848750099424,
                    0.016797098631073405, -0.009425622449570773, 0.005446457850072698, -0.003212074044421712,
                    0.0019229159992891062, -0.0011644150017493782, 0.0007115244027090996, -0.00043799015489295884,
                    0.0002712563512513951, -0.00016892191326245472, 0.0001057553352412978, -6.623192390213303e-05,
                    4.122611215617366e-05, -2.644865773275771e-05, 1.8208828204770412e-05, -1.1114819300534133e-05,
                    4.3959017487406716e-06, -2.654230945177412e-06, 4.551131742340948e-06, -3.878832531466294e-06,
                    1.1548673346800642e-06)
# The zeros between -3 and -2, each a sum of two numbers, and Taylor coefficients of lgamma(x) / (x - zero)
NEXT_TO_ROOT = 0.02
UPPER_ROOT = (-2.4570247382208006, -3.7075610815513266e-17)
AT_UPPER_ROOT = (1.5156034480216574, 4.8583209516339965, 1.41129114307798, 8.721782583815346, 5.800414566599873,
                 24.824942121894072, 24.038823062292956, 82.22915682704253, 100.6481235455116, 296.43641350761317,
                 425.17984568438214, 1130.457858177513, 1811.2054188018712, 4487.218453188998)
LOWER_ROOT = (-2.7476826467274127, 9.055340329338315e-17)
AT_LOWER_ROOT = (-1.9143501856115988, 9.575189475709667, -20.095134916842603, 62.627282713513715, -194.76615530344623,
                 646.9059997129283, -2193.112776480624, 7610.397986658329, -26804.57842061811, 95617.4516433497,
                 -344497.5934348329, 1251567.4465251002, -4578716.594581718, 16850484.270697366)


def _half_turns(x: Real) -> tuple[Real, Real, Real]:
    """(sin, cos, whether x is an integer) for pi times the distance of x to the nearest integer."""
    distance = abs(x - x.roundeven())
    # The polynomials are valid up to pi/4; beyond, swap sine and cosine.
    upper = distance > 0.25
    angle = where(upper, 0.5 - distance, distance) * np.pi
    s, c = sine(angle), cosine(angle)
    return where(upper, c, s), where(upper, s, c), distance.eq(0.0)


def _log_gamma(x: Real) -> Real:
    """log |Gamma(x)|; positive normal numbers take the common path."""
    usual = log_gamma_of_positive(abs(x))
    return rarely("lgamma", ~(x >= 2.0**-1022), usual, _every_log_gamma, x, usual)


def log_gamma_of_positive(x: Real) -> Real:
    """log Gamma(x) for a positive normal x in float64."""
    low, large = x < 0.9, x > float(SHIFT)
    near, product = where(low, 1.0 + x, x), where(low, x, 1.0)
    for i in range(1, SHIFT - 1):
        less = x - float(i)
        shifts = less >= 1.25
        near, product = where(shifts, less, near), where(shifts, product * less, product)
    logarithm, rest = _log_in_two_parts(where(large, x, product))
    factors = (near - 1.0) * (near - 2.0)
    small = factors.fma(polynomial(near - 1.5, NEAR_ONE_AND_TWO), where(low, -logarithm, logarithm))
    factor, power = x - 0.5, logarithm - 1.0
    value = factor * power
    lost = factor.fma(power, -value) + factor * rest
    inverse = 1.0 / x
    series = inverse.fma(polynomial(inverse * inverse, STIRLING), HALF_LOG_TWO_PI - 0.5)
    return where(large, value + (where(value < np.inf, lost, 0.0) + series), small)


def _log_in_two_parts(x: Real) -> tuple[Real, Real]:
    """log x as a sum of two numbers, with error 3e-17, for positive normal x."""
    high, low = LN2_F64
    field, m = split(x)
    e, f = exponent_value(field, x), m - 1.0
    whole = e * high
    total = whole + f
    rest = e.fma(low, log_of_mantissa(f) + (f - (total - whole)))
    value = total + rest
    return value, rest - (value - total)


def _every_log_gamma(x: Real, of_size: Real) -> Real:
    """For negative numbers, denormals and NaN: Gamma(x) Gamma(-x) = -pi / (x sin(pi x)). `of_size` is for |x|."""
    a = abs(x)
    tiny = a < TINY
    s, _, whole = _half_turns(x)
    reflected = -log(where(tiny, a, a * s * (1.0 / np.pi))) - where(tiny, 0.0, of_size)
    upper, lower = ((x - high) - low for high, low in (UPPER_ROOT, LOWER_ROOT))
    reflected = where(abs(upper) < NEXT_TO_ROOT, upper * polynomial(upper, AT_UPPER_ROOT), reflected)
    reflected = where(abs(lower) < NEXT_TO_ROOT, lower * polynomial(lower, AT_LOWER_ROOT), reflected)
    return where((whole & ~tiny) | a.eq(np.inf), np.inf, reflected)


def digamma_of_double(x: Real) -> Real:
    """digamma in float64; NaN at 0 and the negative integers."""
    reflect = x < 0.5
    y = where(reflect, 1.0 - x, x)
    small = y < float(SHIFT)
    low = where(small, y, 1.0)
    # The sum of 1/(y + i) as one fraction.
    numerator, denominator = y.const(1.0), low
    for i in range(1, SHIFT):
        factor = low + float(i)
        numerator = numerator.fma(factor, denominator)
        denominator = denominator * factor
    up = where(small, y + float(SHIFT), y)
    inverse = 1.0 / up
    z = inverse * inverse
    value = log(up) - inverse.fma(0.5, z * polynomial(z, STIRLING_DERIVATIVE))
    value = value - where(small, numerator / denominator, 0.0)
    s, c, whole = _half_turns(x)
    # cot(pi x) has the sign of x minus the nearest integer.
    cotangent = (c / s).with_sign_of(x - x.roundeven())
    reflected = where(whole, x.const(np.nan), value - np.pi * cotangent)
    return where(reflect, reflected, value)


@elementary
def lgamma(x: Real) -> Real:
    """log |Gamma(x)|; infinite at 0, the negative integers and both infinities."""
    return in_double(_log_gamma, x)


@elementary
def digamma(x: Real) -> Real:
    """The derivative of log Gamma; NaN at 0 and the negative integers."""
    return in_double(digamma_of_double, x)
