"""Products with logarithms, entropies, the logistic function, and the Box-Cox transformation."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.scipy.special.arguments import inexact_args, real_args
from mpijax.transforms.custom_jvp import custom_jvp


@custom_jvp
def logit(x: Any) -> Any:
    """log(x / (1 - x)), the inverse of `expit`.

    Elementwise; integers become floats. Complex numbers are allowed.

    >>> mpijax.scipy.special.logit(jnp.array([0.5, 0.75])).round(4)
    Array([0.    , 1.0986], dtype=float32)
    """
    (x,) = inexact_args("logit", x)
    return lax.log(x / (1 - x))


logit.defjvps(lambda g, ans, x: g / (x * (1 - x)))


def expit(x: Any) -> Any:
    """1 / (1 + e⁻ˣ)

    Elementwise; integers become floats. Complex numbers are allowed.

    >>> mpijax.scipy.special.expit(jnp.array([-100.0, 0.0, 2.0])).round(4)
    Array([0.    , 0.5   , 0.8808], dtype=float32)
    """
    return lax.logistic(*inexact_args("expit", x))


@custom_jvp
def xlogy(x: Any, y: Any) -> Any:
    """x log y, which is 0 at x = 0 for any y except NaN.

    Elementwise; the arguments broadcast, integers become floats. Complex numbers are allowed.

    >>> mpijax.scipy.special.xlogy(jnp.array([0.0, 2.0]), jnp.array([0.0, 2.0])).round(4)
    Array([0.    , 1.3863], dtype=float32)
    """
    x, y = inexact_args("xlogy", x, y)
    return jnp.where((x != 0) | jnp.isnan(y), x * lax.log(y), jnp.zeros_like(x))


@xlogy.defjvp
def _xlogy_jvp(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    ans = xlogy(x, y)
    return ans, (dx * jnp.log(y) + dy * x / y).astype(ans.dtype)


@custom_jvp
def xlog1py(x: Any, y: Any) -> Any:
    """x log(1 + y), which is 0 at x = 0 for any y except NaN.

    Elementwise; the arguments broadcast, integers become floats. Complex numbers are allowed.

    >>> mpijax.scipy.special.xlog1py(jnp.array([0.0, 2.0]), jnp.array([-1.0, 1.0])).round(4)
    Array([0.    , 1.3863], dtype=float32)
    """
    x, y = inexact_args("xlog1py", x, y)
    return jnp.where((x != 0) | jnp.isnan(y), x * lax.log1p(y), jnp.zeros_like(x))


@xlog1py.defjvp
def _xlog1py_jvp(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    ans = xlog1py(x, y)
    return ans, (dx * jnp.log1p(y) + dy * x / (1 + y)).astype(ans.dtype)


@custom_jvp
def _xlogx(x):
    return xlogy(x, x)


_xlogx.defjvps(lambda g, ans, x: g * (lax.log(x) + 1))


def entr(x: Any) -> Any:
    """-x log x; 0 at x = 0, and -inf for x < 0.

    Elementwise; integers become floats. Raises ValueError for complex numbers.

    >>> mpijax.scipy.special.entr(jnp.array([0.25, 0.5])).round(4)
    Array([0.3466, 0.3466], dtype=float32)
    """
    (x,) = real_args("entr", x)
    return jnp.where(x < 0, -np.inf, -_xlogx(x))


def rel_entr(p: Any, q: Any) -> Any:
    """p log(p / q) for p, q > 0; 0 for p = 0 and q >= 0; inf otherwise.

    Elementwise; the arguments broadcast, integers become floats. Raises ValueError for complex numbers.

    >>> mpijax.scipy.special.rel_entr(jnp.array([0.0, 1.0]), jnp.array([0.5, 2.0])).round(4)
    Array([ 0.    , -0.6931], dtype=float32)
    """
    p, q = real_args("rel_entr", p, q)
    positive = (p > 0) & (q > 0)
    inside_p, inside_q = jnp.where(positive, p, 1), jnp.where(positive, q, 1)
    inside = _xlogx(inside_p) - xlogy(inside_p, inside_q)
    return jnp.where(positive, inside, jnp.where((p == 0) & (q >= 0), 0.0, np.inf))


def kl_div(p: Any, q: Any) -> Any:
    """rel_entr(p, q) - p + q

    Elementwise; the arguments broadcast, integers become floats. Raises ValueError for complex numbers.

    >>> mpijax.scipy.special.kl_div(jnp.array([0.5, 1.0]), jnp.array([0.5, 2.0])).round(4)
    Array([0.    , 0.3069], dtype=float32)
    """
    p, q = real_args("kl_div", p, q)
    return rel_entr(p, q) - p + q


def _power_or_log(log, lmbda):
    """(e ** (lmbda log) - 1) / lmbda; its limit `log` at lmbda = 0."""
    zero = lmbda == 0
    nonzero = jnp.where(zero, jnp.ones_like(lmbda), lmbda)
    return jnp.where(zero, log, jnp.expm1(nonzero * log) / nonzero)


def boxcox(x: Any, lmbda: Any) -> Any:
    """(x ** lmbda - 1) / lmbda; log x for lmbda = 0.

    Elementwise; the arguments broadcast, integers become floats. Complex numbers are allowed.

    >>> mpijax.scipy.special.boxcox(jnp.array([1.0, 3.0]), 2.0)
    Array([0., 4.], dtype=float32)
    """
    x, lmbda = inexact_args("boxcox", x, lmbda)
    return _power_or_log(jnp.log(x), lmbda)


def boxcox1p(x: Any, lmbda: Any) -> Any:
    """boxcox(1 + x, lmbda), also accurate for small x.

    Elementwise; the arguments broadcast, integers become floats. Complex numbers are allowed.

    >>> mpijax.scipy.special.boxcox1p(jnp.array([0.0, 2.0]), 2.0)
    Array([0., 4.], dtype=float32)
    """
    x, lmbda = inexact_args("boxcox1p", x, lmbda)
    return _power_or_log(jnp.log1p(x), lmbda)
