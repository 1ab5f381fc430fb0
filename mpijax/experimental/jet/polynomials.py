"""Arithmetic on truncated power series: the coefficients of results from the coefficients of operands.

A polynomial is a list of coefficients, arrays of the same shape and dtype, with the constant coefficient first. A list
of one coefficient is a constant: its higher coefficients are zero, and are left out of computations. All other
polynomials of a computation have the same length. Sources: Griewank and Walther, Evaluating Derivatives, 2nd ed.,
section 13.2.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from mpijax import lax
from mpijax.core.types.typeof import typeof
from mpijax.ops.rules import const_like

Polynomial = list[Any]


def degree(*operands: Polynomial) -> int:
    """The degree to which operands are known; 0 if all are constant."""
    return max(map(len, operands)) - 1


def total(terms: Sequence[Any]) -> Any:
    return reduce(operator.add, terms)


def product_term(multiply: Callable, u: Polynomial, w: Polynomial, k: int) -> Any:
    """The coefficient of degree k of a product, of the known coefficients of its factors."""
    low, high = max(0, k - len(w) + 1), min(k, len(u) - 1)
    return total([multiply(u[j], w[k - j]) for j in range(low, high + 1)])


def product(multiply: Callable, u: Polynomial, w: Polynomial) -> Polynomial:
    """A product, where `multiply` may be any bilinear operation."""
    return [product_term(multiply, u, w, k) for k in range(degree(u, w) + 1)]


def times(u: Polynomial, w: Polynomial) -> Polynomial:
    return product(lax.mul, u, w)


def scaled(u: Polynomial, factor: float) -> Polynomial:
    return [c * factor for c in u]


def quotient(u: Polynomial, w: Polynomial) -> Polynomial:
    """u / w, by u = w v."""
    v = [lax.div(u[0], w[0])]
    for k in range(1, degree(u, w) + 1):
        known = [lax.mul(v[j], w[k - j]) for j in range(max(0, k - len(w) + 1), k)]
        terms = [u[k]] if k < len(u) else []
        if known:
            terms.append(-total(known))
        v.append(lax.div(total(terms), w[0]))
    return v


def integral_term(c: Polynomial, u: Polynomial, k: int) -> Any:
    """The coefficient of degree k of the v with v' = c u'."""
    return total([j * lax.mul(c[k - j], u[j]) for j in range(1, k + 1)]) / k


def riccati(start: Callable, constant: float, linear: float, square: float) -> Callable[[Polynomial], Polynomial]:
    """A function v with v' = (constant + linear v + square v²) u', and v = start(u) at 0: tanh, logistic, tan."""

    def rule(u: Polynomial) -> Polynomial:
        v = [start(u[0])]
        slopes: Polynomial = []
        for k in range(1, len(u)):
            terms = [v[k - 1] * linear] if linear else []
            if square:
                terms.append(product_term(lax.mul, v, v, k - 1) * square)
            slope = total(terms)
            slopes.append(slope + constant if k == 1 and constant else slope)
            v.append(integral_term(slopes, u, k))
        return v

    return rule


def exp(start: Any, u: Polynomial) -> Polynomial:
    """exp(u), which is `start` at 0; by v' = v u'."""
    v = [start]
    for k in range(1, len(u)):
        v.append(integral_term(v, u, k))
    return v


def log(u: Polynomial) -> Polynomial:
    """By u v' = u'."""
    v = [lax.log(u[0])]
    for k in range(1, len(u)):
        known = [j * lax.mul(v[j], u[k - j]) for j in range(1, k)]
        v.append(lax.div(u[k] - total(known) / k if known else u[k], u[0]))
    return v


def circular(sine: Callable, cosine: Callable, sign: int) -> Callable[[Polynomial], tuple[Polynomial, Polynomial]]:
    """The pair s' = c u', c' = sign s u': sine and cosine, circular (-1) or hyperbolic (1)."""

    def rule(u: Polynomial) -> tuple[Polynomial, Polynomial]:
        s, c = [sine(u[0])], [cosine(u[0])]
        for k in range(1, len(u)):
            following = integral_term(c, u, k), integral_term(s, u, k) * sign
            s.append(following[0])
            c.append(following[1])
        return s, c

    return rule


def power_by(start: Callable, exponent: Any) -> Callable[[Polynomial], Polynomial]:
    """u to a constant power, by u v' = exponent u' v; start(u) is the value at 0."""

    def rule(u: Polynomial) -> Polynomial:
        v = [start(u[0])]
        for k in range(1, len(u)):
            terms = [(exponent * j + (j - k)) * lax.mul(u[j], v[k - j]) for j in range(1, k + 1)]
            v.append(lax.div(total(terms) / k, u[0]))
        return v

    return rule


def power(u: Polynomial, exponent: Polynomial) -> Polynomial:
    """u to any power. With a constant exponent, the sign is right for negative u."""
    if len(exponent) == 1:
        r = lax.convert_element_type(exponent[0], typeof(u[0]).dtype)
        return power_by(lambda x: lax.pow(x, exponent[0]), r)(u)
    return exp(lax.pow(u[0], exponent[0]), times(exponent, log(u)))


def integer_power(u: Polynomial, y: int) -> Polynomial:
    """u to an integer power by repeated squares, which is right at u = 0, too."""
    if y < 0:
        return quotient([const_like(u[0], 1)], integer_power(u, -y))
    result: Polynomial = [lax.full_like(u[0], 1)]
    base, first = u, True
    while y:
        if y & 1:
            result, first = base if first else times(result, base), False
        y >>= 1
        if y:
            base = times(base, base)
    return result
