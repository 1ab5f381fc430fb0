"""Gamma and beta functions, their logarithms and derivatives, incomplete gamma and beta functions, factorials."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core.rules.primitive import Unsupported
from mpijax.numpy.util import dtype_of, is_complex, static, static_int
from mpijax.ops.elementwise.hosted import compiled, hosted, in_double, scipy_function
from mpijax.ops.families import PerOperand
from mpijax.scipy.special.arguments import inexact_args, real_args
from mpijax.transforms.custom_jvp import custom_jvp
from mpijax.transforms.derivatives import jvp

COMPLEX = (np.complexfloating,)


def gammaln(x: Any) -> Any:
    """log |Γ(x)|

    Elementwise; integers become floats. Raises TypeError for complex numbers.

    >>> mpijax.scipy.special.gammaln(jnp.array([5.0, 100.0])).round(4)
    Array([  3.1781, 359.1342], dtype=float32)
    """
    return lax.lgamma(*inexact_args("gammaln", x))


def gammasgn(x: Any) -> Any:
    """The sign of Γ(x): 1 or -1; NaN at its negative poles and for NaN.

    Elementwise; integers become floats. Raises ValueError for complex numbers.

    >>> mpijax.scipy.special.gammasgn(jnp.array([0.5, -0.5, -1.5]))
    Array([ 1., -1.,  1.], dtype=float32)
    """
    (x,) = real_args("gammasgn", x)
    below, whole = x < 0, lax.floor(x)
    odd = lax.floor(0.5 * whole) * 2 != whole
    pole = (below & (x == whole)) | jnp.isnan(x)
    negative = (below & odd) | ((x == 0) & jnp.signbit(x))
    return jnp.where(pole, np.nan, jnp.where(negative, -1.0, 1.0)).astype(x.dtype)


def gamma(x: Any) -> Any:
    """Γ(x), for real or complex x; NaN at its negative poles.

    Elementwise; integers become floats. Complex numbers are allowed.

    >>> mpijax.scipy.special.gamma(jnp.array([0.5, 5.0])).round(4)
    Array([ 1.7725, 24.    ], dtype=float32)
    """
    (x,) = inexact_args("gamma", x)
    if is_complex(dtype_of(x)):
        return complex_gamma_p.bind(x)
    return gammasgn(x) * lax.exp(lax.lgamma(x))


def loggamma(x: Any) -> Any:
    """log Γ(x). For complex x, the principal branch; for real x, NaN where Γ may be negative.

    Elementwise; integers become floats. Complex numbers are allowed.

    >>> mpijax.scipy.special.loggamma(jnp.array([5.0, -0.5])).round(4)
    Array([3.1781,    nan], dtype=float32)
    """
    (x,) = inexact_args("loggamma", x)
    if is_complex(dtype_of(x)):
        return complex_loggamma_p.bind(x)
    return jnp.where(x > 0, lax.lgamma(x), np.nan)


def digamma(x: Any) -> Any:
    """The derivative of log Γ(x).

    Elementwise; integers become floats. Raises TypeError for complex numbers.

    >>> mpijax.scipy.special.digamma(jnp.array([1.0, 2.0])).round(4)
    Array([-0.5772,  0.4228], dtype=float32)
    """
    return lax.digamma(*inexact_args("digamma", x))


def polygamma(n: Any, x: Any) -> Any:
    """The n-th derivative of `digamma`, for integers n >= 0.

    >>> mpijax.scipy.special.polygamma(1, jnp.array([1.0])).round(4)
    Array([1.6449], dtype=float32)
    """
    if not jnp.issubdtype(dtype_of(n), np.integer):
        raise ValueError(f"Argument `n` to polygamma must be of integer type. Got dtype {dtype_of(n)}.")
    return lax.polygamma(*real_args("polygamma", n, x))


def _nan_at_poles(function):
    """`function`, but NaN at the poles of Γ; SciPy's functions are infinite there."""

    def call(z):
        pole = (z.imag == 0) & (z.real <= 0) & (z.real == np.floor(z.real))
        return np.where(pole | np.isnan(z), complex(np.nan, np.nan), function(z))

    return call


complex_digamma_p = hosted(
    "complex_digamma",
    1,
    in_double(scipy_function("digamma")),
    Unsupported("loggamma of complex numbers has a first derivative only"),
    COMPLEX,
)
complex_loggamma_p = hosted(
    "complex_loggamma",
    1,
    in_double(_nan_at_poles(scipy_function("loggamma"))),
    PerOperand(lambda g, ans, z: g * complex_digamma_p.bind(z)),
    COMPLEX,
    weak=False,
)
complex_gamma_p = hosted(
    "complex_gamma",
    1,
    in_double(_nan_at_poles(scipy_function("gamma"))),
    PerOperand(lambda g, ans, z: g * ans * complex_digamma_p.bind(z)),
    COMPLEX,
    weak=False,
)

# ---------------------------------------------------------------- beta, factorials


def betaln(a: Any, b: Any) -> Any:
    """log |B(a, b)|

    Elementwise; the arguments broadcast, integers become floats. Raises TypeError for complex numbers.

    >>> mpijax.scipy.special.betaln(2.0, jnp.array([1.0, 2.0])).round(4)
    Array([-0.6931, -1.7918], dtype=float32)
    """
    return betaln_p.bind(*inexact_args("betaln", a, b))


betaln_p = compiled(
    "betaln",
    2,
    in_double(scipy_function("betaln")),
    PerOperand(
        lambda g, ans, a, b: g * (lax.digamma(a) - lax.digamma(a + b)),
        lambda g, ans, a, b: g * (lax.digamma(b) - lax.digamma(a + b)),
    ),
    250,
)


def beta(a: Any, b: Any) -> Any:
    """Γ(a) Γ(b) / Γ(a + b)

    Elementwise; the arguments broadcast, integers become floats. Raises ValueError for complex numbers.

    >>> mpijax.scipy.special.beta(2.0, jnp.array([1.0, 2.0])).round(4)
    Array([0.5   , 0.1667], dtype=float32)
    """
    a, b = real_args("beta", a, b)
    sign = gammasgn(a) * gammasgn(b) * gammasgn(a + b)
    sign = jnp.where((a == 0) & (b == 0), jnp.ones_like(sign), sign)  # SciPy's; zeros of both signs have none
    return sign * lax.exp(betaln(a, b))


def factorial(n: Any, exact: bool = False) -> Any:
    """Γ(n + 1) as a float; 0 for n < 0. `exact` must be False.

    Elementwise; integers become floats. Raises TypeError for complex numbers.

    >>> mpijax.scipy.special.factorial(jnp.array([0, 3, 5])).round(2)
    Array([  1.,   6., 120.], dtype=float32)
    """
    if exact:
        raise NotImplementedError(
            "factorial does not support exact=True: arrays do not have integers of arbitrary size. Use math.factorial."
        )
    (n,) = inexact_args("factorial", n)
    return jnp.where(n < 0, 0, lax.exp(lax.lgamma(n + 1)))


def comb(N: Any, k: Any, *, repetition: bool = False) -> Any:
    """The number of ways to choose k of N, with or without repetition; 0 if there is none.

    >>> mpijax.scipy.special.comb(jnp.array([4, 5]), 2).round(4)
    Array([ 6., 10.], dtype=float32)
    """
    N, k = inexact_args("comb", N, k)
    if repetition:
        return jnp.where((k == 0) & (N >= 0), 1.0, comb(N + k - 1, k))
    possible = (k <= N) & (N >= 0) & (k >= 0)
    N, k = jnp.where(possible, N, 0.0), jnp.where(possible, k, 0.0)
    ways = lax.exp(gammaln(N + 1) - gammaln(k + 1) - gammaln(N + 1 - k))
    return jnp.where(possible, ways, 0.0)


def poch(z: Any, m: Any) -> Any:
    """Pochhammer's symbol Γ(z + m) / Γ(z). It has derivatives with respect to both arguments.

    Elementwise; the arguments broadcast, integers become floats. Raises ValueError for complex numbers.

    >>> mpijax.scipy.special.poch(jnp.array([3.0]), 2.0).round(4)
    Array([12.], dtype=float32)
    """
    return poch_p.bind(*real_args("poch", z, m))


poch_p = compiled(
    "poch",
    2,
    in_double(scipy_function("poch")),
    PerOperand(
        lambda g, ans, z, m: g * ans * (lax.digamma(z + m) - lax.digamma(z)),
        lambda g, ans, z, m: g * ans * lax.digamma(z + m),
    ),
    300,
    weak=False,
)


def multigammaln(a: Any, d: Any) -> Any:
    """The logarithm of the gamma function of `d` variables, as in the Wishart distribution.

    Args:
      a: array of values above (d - 1) / 2.
      d: a number, known while tracing; `int` truncates it.

    >>> mpijax.scipy.special.multigammaln(jnp.array([3.0]), 2).round(4)
    Array([1.5502], dtype=float32)
    """
    d = static(d, "d argument of multigammaln", int)
    (a,) = inexact_args("multigammaln", a)
    halves = jnp.arange(d, dtype=a.dtype) / 2
    halves = lax.expand_dims(halves, range(a.ndim))
    return gammaln(jnp.expand_dims(a, -1) - halves).sum(-1) + d * (d - 1) / 4 * float(np.log(np.pi))


# ---------------------------------------------------------------- incomplete functions


def gammainc(a: Any, x: Any) -> Any:
    """The regularized lower incomplete gamma function.

    Elementwise; the arguments broadcast, integers become floats. Raises TypeError for complex numbers.

    >>> mpijax.scipy.special.gammainc(2.0, jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.2642], dtype=float32)
    """
    return lax.igamma(*inexact_args("gammainc", a, x))


def gammaincc(a: Any, x: Any) -> Any:
    """The regularized upper incomplete gamma function, 1 - gammainc(a, x).

    Elementwise; the arguments broadcast, integers become floats. Raises TypeError for complex numbers.

    >>> mpijax.scipy.special.gammaincc(2.0, jnp.array([0.0, 1.0])).round(4)
    Array([1.    , 0.7358], dtype=float32)
    """
    return lax.igammac(*inexact_args("gammaincc", a, x))


def betainc(a: Any, b: Any, x: Any) -> Any:
    """The regularized incomplete beta function. It has a derivative with respect to x.

    Elementwise; the arguments broadcast, integers become floats. Raises ValueError for complex numbers.

    >>> mpijax.scipy.special.betainc(2.0, 2.0, jnp.array([0.0, 0.5, 1.0])).round(4)
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    return lax.betainc(*real_args("betainc", a, b, x))


# ---------------------------------------------------------------- zeta, Bernoulli numbers

# B(2j) / (2j)! for j = 1, 2, …
_EULER_MACLAURIN = np.cumprod([1 / (k * (k + 1)) for k in range(1, 21, 2)]) * np.array(
    [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330]
)
_TERMS = 16


@custom_jvp
def zeta(x: Any, q: Any = None) -> Any:
    """Hurwitz' zeta function: the sum over k >= 0 of (k + q) ** -x, for x > 1. `q` is required; 1 gives Riemann's
    function.

    Elementwise; the arguments broadcast, integers become floats. Raises TypeError for complex numbers.

    >>> mpijax.scipy.special.zeta(2.0, jnp.array([1.0])).round(4)
    Array([1.6449], dtype=float32)
    """
    return lax.zeta(*_zeta_args(x, q))


def _zeta_args(x, q):
    if q is None:
        raise NotImplementedError(
            "zeta needs its second argument. zeta(x, 1) is Riemann's zeta function."
        )
    return inexact_args("zeta", x, q)


def _zeta_expansion(x, q):
    """Zeta by the formula of Euler and Maclaurin, which is differentiable."""
    x, q = _zeta_args(x, q)
    first = sum((q + k) ** -x for k in range(_TERMS))
    end = q + _TERMS
    total = first + end ** (1 - x) / (x - 1) + 0.5 * end**-x
    factor = x * end ** (-x - 1)
    for j, coefficient in enumerate(_EULER_MACLAURIN):
        total = total + float(coefficient) * factor
        factor = factor * (x + 2 * j + 1) * (x + 2 * j + 2) / (end * end)
    return total


@zeta.defjvp
def _zeta_jvp(primals, tangents):
    _, slope = jvp(_zeta_expansion, primals, tangents)
    return zeta(*primals), slope


def bernoulli(n: int) -> Any:
    """The Bernoulli numbers B(0) … B(n), float32 or float64 by the default dtype; n is known while tracing.

    >>> mpijax.scipy.special.bernoulli(4).round(4)
    Array([ 1.    , -0.5   ,  0.1667,  0.    , -0.0333], dtype=float32)
    """
    n = static_int(n, "Argument n of bernoulli")
    if n < 0:
        raise ValueError(f"n must be a non-negative integer; got {n}.")
    return jnp.asarray(scipy_function("bernoulli")(max(n, 2))[: n + 1], dtype=float)
