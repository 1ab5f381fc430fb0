"""Rules of betaln, poch, regularized_incomplete_beta: quotients of gamma functions, and the incomplete beta function.

For large arguments, Stirling's series subtracts logarithms of gamma functions before they lose digits (A. R. DiDonato
and A. H. Morris, "Algorithm 708", 1992). The incomplete function uses their continued fraction for the tail for which
it converges.

float32 is computed in float64 and rounded once: measured error 0.5 ulp. float64: betaln 2e-15 relative or absolute,
whichever is larger; poch 2e-14, but 1e-15 |z| for non-integer z below 0; the incomplete function 1e-15, and the
computed tail 2e-14 relative for moderate shapes, 1e-12 for large ones.
"""

from __future__ import annotations

import numpy as np

from mpijax.scalar.exponential import exp
from mpijax.scalar.expr import Real, elementary, in_double, is_single, polynomial, where
from mpijax.scalar.gamma import HALF_LOG_TWO_PI, STIRLING, lgamma, log_gamma_of_positive
from mpijax.scalar.guard import rarely
from mpijax.scalar.iteration import iterate
from mpijax.scalar.logarithm import log, log1p, log_of_mantissa

LARGE = 8.0
TURNS = 5000
PRECISION = {True: 2.0**-30, False: 2.0**-53}


def _stirling(x: Real) -> Real:
    """log Gamma(x) - (x - 1/2) log x + x - log(2 pi) / 2 for x >= 8."""
    inverse = 1.0 / x.at_least(LARGE)
    return inverse * polynomial(inverse * inverse, STIRLING)


def _log_gamma_ratio(x: Real, step: Real) -> Real:
    """log(Gamma(x + step) / Gamma(x)) if both arguments are at least 8."""
    end = x + step
    return (x - 0.5) * log1p(step / x) + step * (log(end) - 1.0) + (_stirling(end) - _stirling(x))


def _log_beta(a: Real, b: Real) -> Real:
    """log(Gamma(a) Gamma(b) / Gamma(a + b)) for positive a and b."""
    a, b = where(b < a, b, a), where(b < a, a, b)
    total, ratio = a + b, a / b
    small = log_gamma_of_positive(a) + (log_gamma_of_positive(b) - log_gamma_of_positive(total))
    one_large = log_gamma_of_positive(a) - _log_gamma_ratio(b, a)
    both_large = (
        (HALF_LOG_TWO_PI - 0.5 * log(b)) + (_stirling(a) + _stirling(b) - _stirling(total))
        + ((a - 0.5) * log(ratio / (1.0 + ratio)) - b * log1p(ratio))
    )
    return where(b < LARGE, small, where(a < LARGE, one_large, both_large))


def _betaln(a: Real, b: Real) -> Real:
    positive = (a > 0.0) & (b > 0.0) & (a < np.inf) & (b < np.inf)
    return rarely("betaln", ~positive, _log_beta(a, b), lambda a, b: lgamma(a) + lgamma(b) - lgamma(a + b), a, b)


# ---------------------------------------------------------------- Pochhammer's symbol


def _is_pole(x: Real) -> Real:
    return (x <= 0.0) & x.floor().eq(x)


def _odd_floor(x: Real) -> Real:
    half = x.floor() * 0.5
    return half.floor().ne(half)


def _poch(z: Real, m: Real) -> Real:
    """Gamma(z + m) / Gamma(z)."""
    end = z + m
    large = (z >= LARGE) & (end >= LARGE)
    power = where(large, _log_gamma_ratio(where(large, z, LARGE), where(large, m, 0.0)), lgamma(end) - lgamma(z))
    value = rarely("poch", (z < 0.0) | (end < 0.0), exp(power), _poch_below_zero, z, m)
    return where(m.eq(0.0), 1.0, value)


def _poch_below_zero(z: Real, m: Real) -> Real:
    """Uses the signs of both gamma functions; for two poles by reflection, for one pole the limit."""
    end = z + m
    pole, first, last = _is_pole(z), 1.0 - end, 1.0 - z
    both = pole & _is_pole(end)
    large = (first >= LARGE) & (last >= LARGE)
    ratio = _log_gamma_ratio(where(large, first, LARGE), where(large, m, 0.0))
    size = exp(where(both, where(large, ratio, lgamma(last) - lgamma(first)), lgamma(end) - lgamma(z)))
    negative = where(both, _odd_floor(m), ((z < 0.0) & _odd_floor(z)) ^ ((end < 0.0) & _odd_floor(end)))
    return where(negative & (both | ~pole), -size, size)


# ---------------------------------------------------------------- the incomplete beta function


def _density(a: Real, b: Real, x: Real, y: Real) -> Real:
    """x^a y^b / B(a, b), where x + y = 1."""
    large = (a >= LARGE) & (b >= LARGE)
    # For x / y near a / b, the terms of size a and b vanish.
    away = x.fma(b, -(y * a))
    by_a, by_b = away / a, -(away / b)
    shift = a * _log_less_linear(by_a, x, a, b) + b * _log_less_linear(by_b, y, b, a)
    shift = shift + (_stirling(a + b) - _stirling(a) - _stirling(b))
    power = where(large, shift, a * log(x) + b * where(x < 0.5, log1p(-x), log(y)) - _log_beta(a, b))
    return exp(power) * where(large, (a / (a + b) * b * (0.5 / np.pi)).sqrt(), 1.0)


def _log_less_linear(u: Real, x: Real, a: Real, b: Real) -> Real:
    """log(1 + u) - u for u = x (a + b) / a - 1."""
    near = abs(u) < 0.29
    return where(near, log_of_mantissa(where(near, u, 0.0)), log(x * (1.0 + b / a)) - u)


def _fraction(a: Real, b: Real, x: Real, y: Real, single: bool) -> Real:
    """B(a, b) I / (x^a y^b) for x up to about a / (a + b), as 1 / (beta_0 + alpha_1 / (beta_1 + ...)).

    The state is the numerators and denominators of the last two convergents, divided by the last denominator.
    """
    precision = PRECISION[single]

    def step(p: Real, p_before: Real, q_before: Real, n: Real, inverse: Real,
             a: Real, b: Real, x: Real, slope: Real) -> tuple[list[Real], Real]:  # fmt: skip
        value = p
        product = n * (b - n) * x
        shape = a + (n - 1.0)
        alpha = shape * (shape + b) * inverse * (product * x * inverse)
        next_inverse = 1.0 / (a + n.fma(2.0, 1.0))
        beta = n + product * inverse + (a + n) * next_inverse * (slope + n * (2.0 - x))
        p, p_before = p.fma(beta, alpha * p_before), p
        scale = 1.0 / q_before.fma(alpha, beta)
        p = p * scale
        return [p, p_before * scale, scale, n + 1.0, next_inverse], abs(p - value) > abs(p) * precision

    one = a.const(1.0)
    slope = a * y - b * x + 1.0
    inverse = 1.0 / (a + 1.0)
    scale = 1.0 / (a * inverse * slope)
    start = [scale, a.const(0.0), scale, one, inverse]
    value, *_ = iterate(f"betainc.fraction.{single}", step, TURNS, (x > 0.0) & (slope < np.inf), start, a, b, x, slope)
    return value


def _incomplete_beta(a: Real, b: Real, x: Real, single: bool) -> Real:
    y = 1.0 - x
    inside = (a > 0.0) & (b > 0.0) & (a < np.inf) & (b < np.inf) & (x > 0.0) & (x < 1.0)
    upper = x * (a + b + 2.0) > a + 1.0
    near, far = where(inside, where(upper, b, a), 1.0), where(inside, where(upper, a, b), 1.0)
    below, above = where(inside, where(upper, y, x), 0.5), where(inside, where(upper, x, y), 0.5)
    tail = _density(near, far, below, above) * _fraction(near, far, below, above, single)
    # All weight is at 0 if a is 0 or b infinite, and at 1 if b is 0 or a infinite.
    at_zero, at_one = a.eq(0.0) | b.eq(np.inf), b.eq(0.0) | a.eq(np.inf)
    outside = where((at_zero & (x > 0.0)) | x.eq(1.0), x.const(1.0), 0.0)
    outside = where(at_one & (x < 1.0), 0.0, outside)
    possible = (a >= 0.0) & (b >= 0.0) & (x >= 0.0) & (x <= 1.0) & ~(at_zero & at_one)
    return where(inside, where(upper, 1.0 - tail, tail), where(possible, outside, np.nan))


@elementary
def betaln(a: Real, b: Real) -> Real:
    """log |Gamma(a) Gamma(b) / Gamma(a + b)|."""
    return in_double(_betaln, a, b)


@elementary
def poch(z: Real, m: Real) -> Real:
    """Gamma(z + m) / Gamma(z)."""
    return in_double(_poch, z, m)


@elementary
def regularized_incomplete_beta(a: Real, b: Real, x: Real) -> Real:
    """The probability that a variable with a beta distribution of shapes a and b is below x."""
    single = is_single(x)
    return in_double(lambda a, b, x: _incomplete_beta(a, b, x, single), a, b, x)
