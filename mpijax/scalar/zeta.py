"""Rules of zeta and polygamma: Hurwitz' zeta function, and the derivatives of digamma, which are zeta functions.

Uses the Euler-Maclaurin formula (DLMF 25.11.7): the first terms of the sum one by one, the others as their integral
with Bernoulli number corrections. float32 is computed in float64 and rounded once. float64: relative error 1e-15 for
zeta, 1e-14 for polygamma.
"""

from __future__ import annotations

import math

import numpy as np

from mpijax.scalar.exponential import exp
from mpijax.scalar.expr import Real, elementary, in_double, where
from mpijax.scalar.gamma import digamma_of_double, log_gamma_of_positive
from mpijax.scalar.guard import rarely
from mpijax.scalar.iteration import iterate
from mpijax.scalar.power import power_of_floats

TERMS = 9
MOST_TERMS = 10_000  # for q below 0
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)
CORRECTIONS = [b / math.factorial(2 * k) for k, b in enumerate(_BERNOULLI, 1)]


def _zeta_of_positive(x: Real, q: Real) -> Real:
    """The sum over k >= 0 of (q + k)^-x, for x > 1 and q > 0."""
    total = power_of_floats(q, -x)
    for k in range(1, TERMS):
        total = total + power_of_floats(q + float(k), -x)
    end = q + float(TERMS)
    inverse = 1.0 / end
    last = power_of_floats(end, -x)
    rest = last.fma(end / (x - 1.0), last * 0.5)
    factor = last * (x * inverse)
    for k, c in enumerate(CORRECTIONS):
        rest = factor.fma(c, rest)
        if k + 1 < len(CORRECTIONS):
            factor = factor * ((x + (2 * k + 1.0)) * inverse) * ((x + (2 * k + 2.0)) * inverse)
    return total + rest


def _terms_below_zero(x: Real, q: Real) -> Real:
    """The sum for a non-integer q < 0 and an integer x: includes the terms up to 0."""

    def step(total: Real, q: Real, x: Real) -> tuple[list[Real], Real]:
        q_next = q + 1.0
        return [total + power_of_floats(q, -x), q_next], q_next < 0.0

    total, positive = iterate("zeta.below", step, MOST_TERMS, q < 0.0, [x.const(0.0), q], x)
    return total + _zeta_of_positive(x, positive)


def _zeta(x: Real, q: Real) -> Real:
    """zeta with its poles: at x = 1, and at q = 0, -1, ... if all powers are even."""
    value = rarely("zeta", ~(q > 0.0), _zeta_of_positive(x, q), _terms_below_zero, x, q)
    pole, whole, half = q.floor().eq(q) & (q <= 0.0), x.floor().eq(x), x * 0.5
    even = half.floor().eq(half)
    value = where((x < 1.0) | ((q < 0.0) & ~whole), np.nan, value)
    value = where(pole, where(even, q.const(np.inf), np.nan), value)
    return where(x.eq(1.0), np.inf, value)


def _polygamma(n: Real, x: Real) -> Real:
    """(-1)^(n + 1) n! zeta(n + 1, x); digamma for n = 0."""
    half = n * 0.5
    sign = where(half.floor().eq(half), n.const(-1.0), 1.0)
    order = where(n > 0.0, n, 1.0)
    value = sign * exp(log_gamma_of_positive(order + 1.0)) * _zeta(order + 1.0, x)
    value = rarely("polygamma", n.eq(0.0), value, digamma_of_double, x)
    return where((n >= 0.0) & n.floor().eq(n), value, np.nan)


@elementary
def zeta(x: Real, q: Real) -> Real:
    """The sum over k >= 0 of (q + k)^-x."""
    return in_double(_zeta, x, q)


@elementary
def polygamma(n: Real, x: Real) -> Real:
    """The n-th derivative of digamma."""
    return in_double(_polygamma, n, x)
