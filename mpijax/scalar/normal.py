"""Rules of ndtri, log_ndtr, erfcx: quantiles of the normal distribution, and erfc scaled for large arguments.

ndtri(p) is sqrt(2) erf_inv(2 p - 1), whose w is -log(4 p (1 - p)). Far in the tails, where erf_inv's argument rounds to
1, it uses a polynomial in 1 / (sqrt(w) + c). erfcx is the factor of e^(-x^2) in erfc; where erfc underflows, its
asymptotic series (Abramowitz and Stegun, 7.1.23).

Measured maximum errors (in ulp): float32 ndtri 3.3, erfcx 2.0, log_ndtr 3.8; float64 ndtri 4.4, erfcx 1.8,
log_ndtr 3.3.
"""

from __future__ import annotations

import numpy as np

from mpijax.scalar.exponential import exp_parts, scaled
from mpijax.scalar.expr import Real, elementary, is_single, polynomial, where
from mpijax.scalar.guard import rarely
from mpijax.scalar.logarithm import log, log_of_sum
from mpijax.scalar.special import erf_inv_over_x, erfc_near_zero, erfc_ratio

# erf_inv(x) / (x (r + c)) in 1 / (r + c) minus the middle of its range, r = sqrt(-log(1 - x^2)), c = 2 (8)
TAIL_OFFSET_F32, TAIL_MIDDLE_F32 = 2.0, 0.125
TAIL_OFFSET_F64, TAIL_MIDDLE_F64 = 8.0, 0.05
TAIL_F32 = (0.7324891686439514, -2.2169275283813477, -0.24207964539527893, 3.3420722484588623, 7.225583076477051,
            27.801523208618164, 10.556049346923828)
TAIL_F64 = (0.5950643583716376, -8.194152907940554, -2.035094842131585, -1.7648606798279354, 100.20487058897113,
            2946.260653761229, 50164.44121079882, 812908.1269856489, 11458655.485641202, 161835894.29749835,
            2070859060.537417, 27026955255.560886, 315976639103.1146, 3859760972264.1064, 39545148465651.516,
            455441929448836.2, 3826612857084926.0, 3.5346836286317964e+16, -3.4713860933412e+17)
# (-1)^k (2 k - 1)!! / 2^k, coefficients of erfcx(x) x sqrt(pi) in 1 / x^2
ASYMPTOTIC = (1.0, -0.5, 0.75, -1.875, 6.5625, -29.53125, 162.421875, -1055.7421875)
ROOT_HALF = 0.7071067811865476


@elementary
def ndtri(p: Real) -> Real:
    """The quantile of the standard normal distribution; NaN outside [0, 1]."""
    x = p.fma(2.0, -1.0)
    w = -log(4.0 * p * (1.0 - p))
    y = x * np.sqrt(2.0) * rarely("ndtri", w > (16.0 if is_single(p) else 36.0), erf_inv_over_x(w), _tail_of_erf_inv, w)
    return where(abs(x).eq(1.0), where(p.eq(0.0) | p.eq(1.0), x * np.inf, y), y)


def _tail_of_erf_inv(w: Real) -> Real:
    single = is_single(w)
    root = w.sqrt() + (TAIL_OFFSET_F32 if single else TAIL_OFFSET_F64)
    z = 1.0 / root - (TAIL_MIDDLE_F32 if single else TAIL_MIDDLE_F64)
    return root * polynomial(z, TAIL_F32 if single else TAIL_F64)


def _product(x: Real, y: Real) -> tuple[Real, Real]:
    """x y as a sum of two numbers."""
    product = x * y
    return product, where(product < np.inf, x.fma(y, -product), 0.0)


def erfcx_of_large(a: Real) -> Real:
    """erfcx(a) for a >= 1/2."""
    limit = 10.0 if is_single(a) else 27.0
    inverse = 1.0 / a
    far = inverse * np.pi**-0.5 * polynomial(inverse * inverse, ASYMPTOTIC)
    return where(a < limit, erfc_ratio(a), far)


@elementary
def erfcx(x: Real) -> Real:
    """e^(x^2) erfc(x), which is finite even where a factor overflows or underflows."""
    a = abs(x)
    square, lost = _product(x, x)
    p, bits = exp_parts(square)
    growth = scaled(lost.fma(p, p), bits)
    tail = erfcx_of_large(a)
    return where(a < 0.5, growth * erfc_near_zero(x), where(x < 0.0, 2.0 * growth - tail, tail))


@elementary
def log_ndtr(x: Real) -> Real:
    """The logarithm of the probability that a standard normal variable is below x."""
    a = abs(x) * ROOT_HALF
    half, lost = _product(0.5 * x, x)
    ratio, near, close = erfcx_of_large(a), erfc_near_zero(a), a < 0.5
    p, bits = exp_parts(-half)
    upper = where(close, near, scaled(p * (-lost).fma(ratio, ratio), bits))
    # Only one logarithm: above 0 of 1 - erfc / 2, below 0 of the factor of e^(-x^2 / 2).
    above = x > 0.0
    least = 0.5 * where(above, upper, where(close, near, ratio))
    rest = 1.0 - least
    lost = where(above, (1.0 - rest) - least, 0.0)
    y = log_of_sum(where(above, rest, least), lost)
    return where(above, where(rest.eq(1.0), -least, y), where(close, y, y - half))
