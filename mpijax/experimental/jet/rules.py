"""Operations whose power series have their own recurrences, and functions with which users add others.

The series of all other operations follow from their first derivatives (`derived`). That takes a number of steps that is
quadratic in the degree, times the steps for the operations of the derivative.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mpijax import lax
from mpijax.core.rules.registry import registry
from mpijax.experimental.jet import polynomials as poly
from mpijax.experimental.jet.calls import CALLS
from mpijax.experimental.jet.polynomials import Polynomial
from mpijax.experimental.jet.trace import RULES, jet
from mpijax.experimental.jet.user_rules import jet_rules, zero_series

# ---------------------------------------------------------------- recurrences


def _function(rule: Callable[..., Polynomial]) -> Callable:
    """A rule of polynomials; parameters, such as an accuracy, are not about series."""
    return lambda *operands, **_: [rule(*operands)]


def _bilinear(name: str) -> Callable:
    return lambda u, w, **params: [poly.product(partial(registry[name].bind, **params), u, w)]


def _elementwise_power(start: Callable, exponent: float) -> Callable:
    return _function(poly.power_by(start, exponent))


def _convert(u: Polynomial, **params) -> list[Polynomial]:
    """The series of numbers that a program reads as integers and then converts to floats."""
    return [[registry["convert_element_type"].bind(c, **params) for c in u]]


_circular = poly.circular(lax.sin, lax.cos, -1)
_hyperbolic = poly.circular(lax.sinh, lax.cosh, 1)

_RECURRENCES: dict[str, Callable[..., list[Polynomial]]] = {
    "convert_element_type": _convert,
    "mul": _bilinear("mul"),
    "dot_general": _bilinear("dot_general"),
    "conv_general_dilated": _bilinear("conv_general_dilated"),
    "square": _function(lambda u: poly.times(u, u)),
    "integer_pow": lambda u, *, y: [poly.integer_power(u, y)],
    "div": _function(poly.quotient),
    "pow": _function(poly.power),
    "sqrt": _elementwise_power(lax.sqrt, 0.5),
    "rsqrt": _elementwise_power(lax.rsqrt, -0.5),
    "exp": _function(lambda u: poly.exp(lax.exp(u[0]), u)),
    "log": _function(poly.log),
    "sin": _function(lambda u: _circular(u)[0]),
    "cos": _function(lambda u: _circular(u)[1]),
    "tan": _function(poly.riccati(lax.tan, 1, 0, 1)),
    "sinh": _function(lambda u: _hyperbolic(u)[0]),
    "cosh": _function(lambda u: _hyperbolic(u)[1]),
    "tanh": _function(poly.riccati(lax.tanh, 1, 0, -1)),
    "logistic": _function(poly.riccati(lax.logistic, 0, 1, -1)),
}
RULES.update(_RECURRENCES)
RULES.update(CALLS)


# ---------------------------------------------------------------- rules that users add


def deflinear(prim) -> None:
    """Declare that the results of `prim` are linear in all operands together.

    >>> twice = mpijax.extend.core.Primitive("twice")
    >>> _ = twice.def_impl(lambda x: 2 * x)
    >>> _ = twice.def_abstract_eval(lambda x: x)
    >>> mpijax.experimental.jet.deflinear(twice)
    >>> mpijax.experimental.jet.jet(twice.bind, (jnp.float32(2),), ((1.0, 0.0),))[1]
    [Array(2., dtype=float32, weak_type=True), Array(0., dtype=float32, weak_type=True)]
    """

    def rule(primals_in, series_in, **params):
        outs = prim.bind(*primals_in, **params)
        rows = [prim.bind(*terms, **params) for terms in zip(*series_in, strict=True)]
        return outs, list(map(list, zip(*rows, strict=True))) if prim.multiple_results else rows

    jet_rules[prim] = rule


def defzero(prim) -> None:
    """Declare that the result of `prim` is piecewise constant.

    >>> whole = mpijax.extend.core.Primitive("whole")
    >>> _ = whole.def_impl(lambda x: jnp.floor(x))
    >>> _ = whole.def_abstract_eval(lambda x: x)
    >>> mpijax.experimental.jet.defzero(whole)
    >>> mpijax.experimental.jet.jet(whole.bind, (jnp.float32(2),), ((1.0, 0.0),))[1]
    [Array(0., dtype=float32), Array(0., dtype=float32)]
    """

    def rule(primals_in, series_in, **params):
        outs = prim.bind(*primals_in, **params)
        return outs, [zero_series for _ in outs] if prim.multiple_results else zero_series

    jet_rules[prim] = rule


def def_comp(prim, comp: Callable, **kwargs) -> None:
    """Declare that `prim` equals `comp`, a function of operations that have rules.

    >>> squared = mpijax.extend.core.Primitive("squared")
    >>> _ = squared.def_impl(lambda x: x * x)
    >>> _ = squared.def_abstract_eval(lambda x: x)
    >>> mpijax.experimental.jet.def_comp(squared, lambda x: x * x)
    >>> mpijax.experimental.jet.jet(squared.bind, (jnp.float32(2),), ((1.0, 0.0),))[1]
    [Array(4., dtype=float32), Array(2., dtype=float32)]
    """
    jet_rules[prim] = partial(jet, comp, factorial_scaled=False, **kwargs)


def def_deriv(prim, deriv: Callable) -> None:
    """Declare that the derivative of `prim`, an elementwise function of one array, is `deriv`.

    >>> cubed = mpijax.extend.core.Primitive("cubed")
    >>> _ = cubed.def_impl(lambda x: x**3)
    >>> _ = cubed.def_abstract_eval(lambda x: x)
    >>> mpijax.experimental.jet.def_deriv(cubed, lambda x: 3 * x**2)
    >>> mpijax.experimental.jet.jet(cubed.bind, (jnp.float32(2),), ((1.0, 0.0),))[1]
    [Array(12., dtype=float32), Array(12., dtype=float32)]
    """
    def rule(primals_in, series_in, **params):
        [u] = ([x, *terms] for x, terms in zip(primals_in, series_in, strict=True))
        start, slopes = jet(deriv, primals_in, series_in, factorial_scaled=False)
        out = prim.bind(*primals_in, **params)
        return out, [poly.integral_term([start, *slopes], u, k) for k in range(1, len(u))]

    jet_rules[prim] = rule
