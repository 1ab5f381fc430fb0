"""Rules of igamma_grad_a and random_gamma_grad: derivatives of P(a, x), and of a gamma variable, by the shape a.

Both use the slope s = -(dP/da) / (dP/dx), at which x moves with a at constant P. The sums of `incomplete_gamma` are
differentiated term by term: up to x = a the series of P, beyond it Legendre's continued fraction of Q. The terms of
each have one sign. For a above 10,000, s is that of the normal distribution of the cube root (E. B. Wilson and M. M.
Hilferty, "The distribution of chi-square", 1931).

float32 is computed in float64 and rounded once. float64: s has a relative error of 1e-13; 1e-6 for a above 10,000 and x
within five standard deviations of it.
"""

from __future__ import annotations

import numpy as np

from mpijax.scalar.exponential import exp
from mpijax.scalar.expr import Real, elementary, in_double, is_single, where
from mpijax.scalar.gamma import digamma_of_double
from mpijax.scalar.guard import rarely
from mpijax.scalar.incomplete_gamma import factor_of
from mpijax.scalar.iteration import iterate
from mpijax.scalar.logarithm import log

TURNS = 2000
PRECISION = {True: 2.0**-30, False: 2.0**-50}
NORMAL_FROM = 1e4
FAR = 1e20  # beyond this, the fraction is 1 / x


def _name(method: str, single: bool) -> str:
    return f"igamma.slope.{method}.{'single' if single else 'double'}"


def _by_series(a: Real, x: Real, single: bool) -> Real:
    """P = F (1 + x / (a + 1) + x^2 / ((a + 1) (a + 2)) + ...), where dF/da is (log x - digamma(a + 1)) F and dP/dx is
    F a / x."""
    precision = PRECISION[single]

    def step(total: Real, slope: Real, term: Real, term_slope: Real, n: Real, x: Real) -> tuple[list[Real], Real]:
        n = n + 1.0
        inverse = 1.0 / n
        scale = x * inverse
        term, term_slope = term * scale, (term_slope - term * inverse) * scale
        total, slope = total + term, slope + term_slope
        more = (term > total * precision) | (term_slope < slope * precision)
        return [total, slope, term, term_slope, n], more

    one, zero = a.const(1.0), a.const(0.0)
    start = [one, zero, one, zero, a]
    total, slope, *_ = iterate(_name("series", single), step, TURNS, x > 0.0, start, x)
    growth = log(x) - digamma_of_double(a + 1.0)
    return -(x / a) * (growth * total + slope)


def _by_fraction(a: Real, x: Real, single: bool) -> Real:
    """Q = F a / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / ...)), two steps with one division.

    The state is the numerators and denominators of the last two convergents with their derivatives by a, all divided by
    the last denominator.
    """
    precision = PRECISION[single]

    def step(p: Real, p_dot: Real, q_dot: Real, p_before: Real, p_dot_before: Real, q_before: Real, q_dot_before: Real,
             n: Real, b: Real, a: Real) -> tuple[list[Real], Real]:
        value, slope, q = p, p_dot - p * q_dot, p.const(1.0)
        for _ in range(2):
            n, b = n + 1.0, b + 2.0
            weight = n * (a - n)
            p_dot, p_dot_before = p_dot * b - p + weight * p_dot_before + n * p_before, p_dot
            q_dot, q_dot_before = q_dot * b - q + weight * q_dot_before + n * q_before, q_dot
            p, p_before = p.fma(b, weight * p_before), p
            q, q_before = q.fma(b, weight * q_before), q
        scale = 1.0 / q
        p, p_dot, q_dot = p * scale, p_dot * scale, q_dot * scale
        new_slope = p_dot - p * q_dot
        more = (abs(p - value) > p * precision) | (abs(new_slope - slope) > abs(new_slope) * precision)
        before = [v * scale for v in (p_before, p_dot_before, q_before, q_dot_before)]
        return [p, p_dot, q_dot, *before, n, b], more

    b = x + (1.0 - a)
    first, zero = 1.0 / b, a.const(0.0)
    start = [first, zero, -first, zero, zero, first, zero, zero, b]
    value, value_dot, q_dot, *_ = iterate(_name("fraction", single), step, TURNS, x < FAR, start, a)
    growth = log(x) - digamma_of_double(a)
    near = growth * value + (value_dot - value * q_dot)
    return where(x < FAR, x * near, growth)


def _by_normal(a: Real, x: Real) -> Real:
    """From (x / a)^(1/3) = 1 - 1 / (9 a) + z / (3 sqrt a) with constant z."""
    root = exp(log(x / a) * (1.0 / 3.0))
    ninth = (1.0 / 9.0) / a
    moved = 0.5 * ninth - 0.5 * (root - 1.0)
    return root * root * (root + 3.0 * moved)


def _slope(a: Real, x: Real, single: bool) -> Real:
    ordinary = (a > 0.0) & (x > 0.0) & (a < np.inf)
    normal = (a > NORMAL_FROM) & ordinary
    upper = (x > 1.0) & (x > a)
    apart = ordinary & ~normal
    value = a.const(0.0)
    for method, lanes in ((_by_series, apart & ~upper), (_by_fraction, apart & upper)):
        value = rarely(f"igamma{method.__name__}.{single}", lanes, value,
                       lambda a, x, method=method: method(a, x, single), where(lanes, a, 1.0), where(lanes, x, 1.0))
    value = rarely("igamma.slope.normal", normal, value, _by_normal, a, x)
    possible = (a > 0.0) & (x >= 0.0) & (a < np.inf)
    return where(possible, value, np.nan)


def _by_shape(a: Real, x: Real, single: bool) -> Real:
    """-s F a / x; 0 at both ends."""
    slope = _slope(a, x, single)
    inside = (x > 0.0) & (x < np.inf)
    density = where(inside, factor_of(a, x) * a / x, 0.0)
    return where(inside | slope.ne(slope), -slope * density, 0.0)


@elementary
def igamma_grad_a(a: Real, x: Real) -> Real:
    """dP/da."""
    single = is_single(x)
    return in_double(lambda a, x: _by_shape(a, x, single), a, x)


@elementary
def random_gamma_grad(a: Real, x: Real) -> Real:
    """dx/da of a gamma variable x with shape a, at a fixed quantile."""
    single = is_single(x)
    return in_double(lambda a, x: _slope(a, x, single), a, x)
