"""Special functions: error, gamma, beta, Bessel and zeta functions.

They are compiled together with the surrounding expression.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise.binary import add, mul, neg, sub
from mpijax.ops.elementwise.compare import gt
from mpijax.ops.elementwise.hosted import compiled, scipy_function
from mpijax.ops.elementwise.power import integer_pow, square
from mpijax.ops.elementwise.select import select
from mpijax.ops.elementwise.transcendental import exp, log, log1p
from mpijax.ops.elementwise.unary import abs, sign
from mpijax.ops.families import PerOperand
from mpijax.ops.rules import const_like, full_like

# ---------------------------------------------------------------- construction


def _of_one(name: str, derivative: Callable, cost: int, scipy_name: str | None = None) -> Primitive:
    reference = scipy_function(scipy_name or name.replace("_", ""))
    return compiled(name, 1, reference, PerOperand(derivative), cost)


# ---------------------------------------------------------------- error functions


def erf(x: Any) -> Any:
    """2 / sqrt(pi) times the integral of e ** -t ** 2 from 0 to x.

    Elementwise on floats; the result has the same shape and dtype. TypeError for others.

    >>> lax.erf(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.8427], dtype=float32)
    """
    return erf_p.bind(x)


def erfc(x: Any) -> Any:
    """1 - erf(x), accurate for large x.

    Elementwise on floats; the result has the same shape and dtype. TypeError for others.

    >>> lax.erfc(jnp.array([0.0, 1.0])).round(4)
    Array([1.    , 0.1573], dtype=float32)
    """
    return erfc_p.bind(x)


def erf_inv(x: Any) -> Any:
    """The y with erf(y) = x; infinite at -1 and 1.

    Elementwise on floats; the result has the same shape and dtype. TypeError for others.

    >>> lax.erf_inv(jnp.array([0.0, 0.5, 1.0])).round(4)
    Array([0.    , 0.4769,    inf], dtype=float32)
    """
    return erf_inv_p.bind(x)


_SLOPE = 2 / np.sqrt(np.pi)

erf_p = _of_one("erf", lambda g, ans, x: mul(const_like(x, _SLOPE), mul(g, exp(neg(square(x))))), 15)
erfc_p = _of_one("erfc", lambda g, ans, x: mul(const_like(x, -_SLOPE), mul(g, exp(neg(square(x))))), 20)
erf_inv_p = _of_one("erf_inv", lambda g, ans, x: mul(const_like(x, 1 / _SLOPE), mul(g, exp(square(ans)))), 15)

# ---------------------------------------------------------------- gamma functions


def lgamma(x: Any) -> Any:
    """The logarithm of |gamma(x)|.

    Elementwise on floats; the result has the same shape and dtype. TypeError for others.

    >>> lax.lgamma(jnp.array([1.0, 5.0])).round(4)
    Array([0.    , 3.1781], dtype=float32)
    """
    return lgamma_p.bind(x)


def digamma(x: Any) -> Any:
    """The derivative of log gamma(x).

    Elementwise on floats; the result has the same shape and dtype. TypeError for others.

    >>> lax.digamma(jnp.array([1.0, 2.0])).round(4)
    Array([-0.5772,  0.4228], dtype=float32)
    """
    return digamma_p.bind(x)


def polygamma(m: Any, x: Any) -> Any:
    """The m-th derivative of digamma at x; m is a float with an integer value.

    Elementwise on floats of one shape and dtype, or scalars; the result has the same shape and dtype. TypeError for
    others.

    >>> lax.polygamma(1.0, jnp.array([1.0])).round(4)
    Array([1.6449], dtype=float32)
    """
    return polygamma_p.bind(m, x)


def zeta(x: Any, q: Any) -> Any:
    """Hurwitz' zeta function: the sum over k >= 0 of (k + q) ** -x.

    Elementwise on floats of one shape and dtype, or scalars; the result has the same shape and dtype. TypeError for
    others.

    >>> lax.zeta(2.0, jnp.array([1.0])).round(4)
    Array([1.6449], dtype=float32)
    """
    return zeta_p.bind(x, q)


def _numpy_polygamma(m, x):
    """(-1) ** (m + 1) gamma(m + 1) zeta(m + 1, x); digamma for m = 0."""
    m, x = np.broadcast_arrays(np.asarray(m, np.float64), np.asarray(x, np.float64))
    signed = np.where(m % 2 == 0, -1.0, 1.0)
    higher = signed * scipy_function("gamma")(m + 1) * scipy_function("zeta")(m + 1, x)
    return np.where(m == 0, scipy_function("digamma")(x), np.where((m < 0) | (m % 1 != 0), np.nan, higher))


def _no_derivative_by_order(*_args):
    raise ValueError("polygamma gradient with respect to m is not supported")


def _digamma_tangent(g, ans, x):
    return mul(g, polygamma(const_like(x, 1), x))


lgamma_p = _of_one("lgamma", lambda g, ans, x: mul(g, digamma(x)), 40, "gammaln")
digamma_p = _of_one("digamma", _digamma_tangent, 40)
polygamma_p = compiled(
    "polygamma",
    2,
    _numpy_polygamma,
    PerOperand(_no_derivative_by_order, lambda g, ans, m, x: mul(g, polygamma(add(m, const_like(m, 1)), x))),
    700,
)
zeta_p = compiled(
    "zeta", 2, scipy_function("zeta"), Unsupported("Differentiation rule for 'zeta' not implemented"), 600
)


# ---------------------------------------------------------------- incomplete gamma and beta functions


def igamma(a: Any, x: Any) -> Any:
    """The regularized lower incomplete gamma function: the probability of gamma(a) variables below x.

    Elementwise on floats of one shape and dtype, or scalars; the result has the same shape and dtype. TypeError for
    others.

    >>> lax.igamma(2.0, jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.2642], dtype=float32)
    """
    return igamma_p.bind(a, x)


def igammac(a: Any, x: Any) -> Any:
    """1 - igamma(a, x), accurate for large x.

    Elementwise on floats of one shape and dtype, or scalars; the result has the same shape and dtype. TypeError for
    others.

    >>> lax.igammac(2.0, jnp.array([0.0, 1.0])).round(4)
    Array([1.    , 0.7358], dtype=float32)
    """
    return igammac_p.bind(a, x)


def igamma_grad_a(a: Any, x: Any) -> Any:
    """The derivative of igamma by a.

    Elementwise on floats of one shape and dtype, or scalars; the result has the same shape and dtype. TypeError for
    others.

    >>> lax.igamma_grad_a(2.0, jnp.array([1.0])).round(4)
    Array([-0.2762], dtype=float32)
    """
    return igamma_grad_a_p.bind(a, x)


def random_gamma_grad(a: Any, x: Any) -> Any:
    """The derivative by a of a sample x from gamma(a), at a fixed quantile.

    Elementwise on floats of one shape and dtype, or scalars; the result has the same shape and dtype. TypeError for
    others.

    >>> lax.random_gamma_grad(jnp.array([2.0]), jnp.array([1.0])).round(3)
    Array([0.751], dtype=float32)
    """
    return random_gamma_grad_p.bind(a, x)


def betainc(a: Any, b: Any, x: Any) -> Any:
    """The regularized incomplete beta function: the probability that a beta(a, b) variable is below x.

    Elementwise on floats of one shape and dtype, or scalars; the result has the same shape and dtype. TypeError for
    others.

    >>> lax.betainc(2.0, 2.0, jnp.array([0.0, 0.5, 1.0])).round(4)
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    return regularized_incomplete_beta_p.bind(a, b, x)


# Terms of the series below. For x up to _SERIES_UP_TO it converges much earlier.
_SERIES_TERMS = 1000
_SERIES_UP_TO = 400.0


def _igamma_by_a(a, x):
    """The derivative of igamma by a, in float64.

    Up to moderate x, differentiates the series igamma = sum over n of x ** (a + n) e ** -x / gamma(a + n + 1)
    term by term. Beyond that, uses fourth-order differences.
    """
    a, x = (np.asarray(v, np.float64) for v in np.broadcast_arrays(a, x))
    gammaln, psi, gammainc = scipy_function("gammaln"), scipy_function("digamma"), scipy_function("gammainc")
    near = np.where(x <= _SERIES_UP_TO, x, 1.0)
    logx = np.log(np.where(near > 0, near, 1.0))
    total = np.zeros(x.shape)
    log_term, slope = a * logx - near - gammaln(a + 1), logx - psi(a + 1)
    for n in range(_SERIES_TERMS):
        contribution = np.exp(log_term) * slope
        total += contribution
        if n > _SERIES_UP_TO and np.all(np.abs(contribution) <= 1e-18 * np.abs(total)):
            break
        log_term += logx - np.log(a + n + 1)
        slope -= 1 / (a + n + 1)
    h = 1e-3 * np.maximum(a, 1.0)
    step = lambda k: gammainc(np.maximum(a + k * h, 1e-300), x)
    differences = (8 * (step(1) - step(-1)) - (step(2) - step(-2))) / (12 * h)
    out = np.where(x <= _SERIES_UP_TO, total, differences)
    return np.where(x == 0, 0.0, np.where((x < 0) | (a <= 0), np.nan, out))


def _sample_by_a(a, x):
    """-(d igamma / d a) / (d igamma / d x)."""
    a, x = (np.asarray(v, np.float64) for v in np.broadcast_arrays(a, x))
    density = np.exp((a - 1) * np.log(x) - x - scipy_function("gammaln")(a))
    return -_igamma_by_a(a, x) / density


def _density(a, x):
    """The derivative of igamma by x: e ** (-x + (a - 1) log x - lgamma a)."""
    return exp(sub(add(neg(x), mul(sub(a, full_like(a, 1)), log(x))), lgamma(a)))


igamma_grad_a_p = compiled(
    "igamma_grad_a", 2, _igamma_by_a, Unsupported("Differentiation rule for 'igamma_grad_a' not implemented"), 1000
)
random_gamma_grad_p = compiled(
    "random_gamma_grad",
    2,
    _sample_by_a,
    Unsupported("Differentiation rule for 'random_gamma_grad' not implemented"),
    1000,
)
igamma_p = compiled(
    "igamma",
    2,
    scipy_function("gammainc"),
    PerOperand(lambda g, ans, a, x: mul(g, igamma_grad_a(a, x)), lambda g, ans, a, x: mul(g, _density(a, x))),
    1000,
)
igammac_p = compiled(
    "igammac",
    2,
    scipy_function("gammaincc"),
    PerOperand(
        lambda g, ans, a, x: neg(mul(g, igamma_grad_a(a, x))),
        lambda g, ans, a, x: neg(mul(g, _density(a, x))),
    ),
    1000,
)


def _no_derivative_by_shape(*_args):
    raise ValueError("Betainc gradient with respect to a and b not supported.")


def _beta_tangent(g, ans, a, b, x):
    """The density x ** (a - 1) (1 - x) ** (b - 1) / beta(a, b), times g."""
    log_beta = sub(add(lgamma(a), lgamma(b)), lgamma(add(a, b)))
    upper = mul(sub(b, const_like(b, 1)), log1p(neg(x)))
    lower = mul(sub(a, const_like(a, 1)), log(x))
    return mul(exp(sub(add(upper, lower), log_beta)), g)


regularized_incomplete_beta_p = compiled(
    "regularized_incomplete_beta",
    3,
    scipy_function("betainc"),
    PerOperand(_no_derivative_by_shape, _no_derivative_by_shape, _beta_tangent),
    1000,
)

# ---------------------------------------------------------------- Bessel functions


def bessel_i0e(x: Any) -> Any:
    """e ** -|x| times the modified Bessel function of order 0.

    Elementwise on floats; the result has the same shape and dtype. TypeError for others.

    >>> lax.bessel_i0e(jnp.array([0.0, 1.0])).round(4)
    Array([1.    , 0.4658], dtype=float32)
    """
    return bessel_i0e_p.bind(x)


def bessel_i1e(x: Any) -> Any:
    """e ** -|x| times the modified Bessel function of order 1.

    Elementwise on floats; the result has the same shape and dtype. TypeError for others.

    >>> lax.bessel_i1e(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.2079], dtype=float32)
    """
    return bessel_i1e_p.bind(x)


def _bessel_i1e_tangent(g, ans, x):
    """i0e - ans (sign x + 1 / x); its limit 1/2 near 0."""
    eps = dtypes.finfo(typeof(x).dtype).eps
    away = gt(abs(x), const_like(x, eps))
    safe = select(away, x, full_like(x, eps))
    slope = sub(bessel_i0e(safe), mul(ans, add(sign(safe), integer_pow(safe, -1))))
    return mul(g, select(away, slope, full_like(x, 0.5)))


bessel_i0e_p = _of_one("bessel_i0e", lambda g, ans, x: mul(g, sub(bessel_i1e(x), mul(sign(x), ans))), 30, "i0e")
bessel_i1e_p = _of_one("bessel_i1e", _bessel_i1e_tangent, 30, "i1e")
