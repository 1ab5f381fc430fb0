"""Confluent and Gaussian hypergeometric functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.ops.elementwise.hosted import hosted, in_double, scipy_function
from mpijax.ops.families import PerOperand
from mpijax.scipy.special.arguments import real_args

_MOST_TERMS = 2000


def hyp1f1(a: Any, b: Any, x: Any) -> Any:
    """Kummer's function: the sum over k of (a)ₖ / (b)ₖ xᵏ / k!. It has derivatives with respect to all arguments.

    Elementwise; the arguments broadcast, integers become floats. Raises ValueError for complex numbers.

    >>> mpijax.scipy.special.hyp1f1(1.0, 1.0, jnp.array([0.0, 1.0])).round(4)
    Array([1.    , 2.7183], dtype=float32)
    """
    return hyp1f1_p.bind(*real_args("hyp1f1", a, b, x))


def hyp2f1(a: Any, b: Any, c: Any, x: Any) -> Any:
    """Gauss' function: the sum over k of (a)ₖ (b)ₖ / (c)ₖ xᵏ / k!, continued beyond |x| = 1.

    It has a derivative with respect to x everywhere, and with respect to a, b and c for |x| < 1.

    Elementwise; the arguments broadcast, integers become floats. Raises ValueError for complex numbers.

    >>> mpijax.scipy.special.hyp2f1(1.0, 1.0, 1.0, jnp.array([0.0, 0.5])).round(4)
    Array([1., 2.], dtype=float32)
    """
    return hyp2f1_p.bind(*real_args("hyp2f1", a, b, c, x))


def _by_parameter(upper: int, which: int):
    """The derivative of the series by one of its parameters, whose first `upper` ones are numerators'.

    The ratio of a term to the one before is a product of (a + k) for numerators and 1 / (a + k) for denominators;
    the derivative of a term follows the product rule, which holds where factors vanish too.
    """

    def derivative(*args):
        *parameters, x = np.broadcast_arrays(*args)
        term, slope, total = np.ones(x.shape), np.zeros(x.shape), np.zeros(x.shape)
        for k in range(_MOST_TERMS):
            factors = [p + k if i < upper else 1 / (p + k) for i, p in enumerate(parameters)]
            others = x / (k + 1) * np.prod([f for i, f in enumerate(factors) if i != which], axis=0)
            own = 1.0 if which < upper else -(factors[which] ** 2)
            term, slope = term * others * factors[which], slope * others * factors[which] + term * others * own
            total = total + slope
            if k > 2 and not np.any(abs(slope) > 1e-17 * abs(total)):
                break
        radius = np.inf if upper == len(parameters) - upper else 1.0
        return np.where(abs(x) < radius, total, np.nan)

    return derivative


def _derivatives(name: str, upper: int, lower: int) -> list[Primitive]:
    """The primitives of the derivatives by each parameter."""
    once = Unsupported(
        f"{name} has first derivatives with respect to its parameters, and all derivatives with respect to x"
    )
    count = upper + lower
    return [
        hosted(f"{name}_by_{'abc'[i]}", count + 1, in_double(_by_parameter(upper, i)), once) for i in range(count)
    ]


def _rules(derivatives: list[Primitive], by_x: Any) -> PerOperand:
    rule_of = lambda primitive: lambda g, ans, *args: g * primitive.bind(*args)
    return PerOperand(*map(rule_of, derivatives), by_x)


hyp1f1_p: Primitive = hosted(
    "hyp1f1",
    3,
    in_double(scipy_function("hyp1f1")),
    _rules(_derivatives("hyp1f1", 1, 1), lambda g, ans, a, b, x: g * a / b * hyp1f1_p.bind(a + 1, b + 1, x)),
    weak=False,
)
hyp2f1_p: Primitive = hosted(
    "hyp2f1",
    4,
    in_double(scipy_function("hyp2f1")),
    _rules(
        _derivatives("hyp2f1", 2, 1),
        lambda g, ans, a, b, c, x: g * a * b / c * hyp2f1_p.bind(a + 1, b + 1, c + 1, x),
    ),
    weak=False,
)
