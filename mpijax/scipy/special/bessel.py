"""Bessel functions and spherical harmonics."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.numpy.util import static_int
from mpijax.ops.elementwise.hosted import compiled, hosted, in_double, scipy_function
from mpijax.ops.families import PerOperand
from mpijax.scipy.special.arguments import inexact_args, real_args


def i0e(x: Any) -> Any:
    """e ** -|x| times the modified Bessel function of order 0.

    Elementwise; integers become floats. Raises TypeError for complex numbers.

    >>> mpijax.scipy.special.i0e(jnp.array([0.0, 1.0])).round(4)
    Array([1.    , 0.4658], dtype=float32)
    """
    return lax.bessel_i0e(*inexact_args("i0e", x))


def i0(x: Any) -> Any:
    """The modified Bessel function of order 0.

    Elementwise; integers become floats. Raises TypeError for complex numbers.

    >>> mpijax.scipy.special.i0(jnp.array([0.0, 1.0])).round(4)
    Array([1.    , 1.2661], dtype=float32)
    """
    (x,) = inexact_args("i0", x)
    return lax.exp(lax.abs(x)) * lax.bessel_i0e(x)


def i1e(x: Any) -> Any:
    """e ** -|x| times the modified Bessel function of order 1.

    Elementwise; integers become floats. Raises TypeError for complex numbers.

    >>> mpijax.scipy.special.i1e(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.2079], dtype=float32)
    """
    return lax.bessel_i1e(*inexact_args("i1e", x))


def i1(x: Any) -> Any:
    """The modified Bessel function of order 1.

    Elementwise; integers become floats. Raises TypeError for complex numbers.

    >>> mpijax.scipy.special.i1(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.5652], dtype=float32)
    """
    (x,) = inexact_args("i1", x)
    return lax.exp(lax.abs(x)) * lax.bessel_i1e(x)


def _no_derivative_by_order(*_args):
    raise ValueError("Bessel functions and spherical harmonics have no derivative with respect to their orders.")


# ---------------------------------------------------------------- Bessel functions of the first kind


def bessel_jn(z: Any, *, v: int, n_iter: int = 50) -> Any:
    """Bessel functions of the first kind of the orders 0 … v, stacked along the first axis: shape (v + 1, *z.shape).

    `n_iter` has no effect: it is the number of steps of JAX's recurrence. Values here are accurate without it.

    >>> mpijax.scipy.special.bessel_jn(jnp.array([0.0, 1.0]), v=1).round(4)
    Array([[1.    , 0.7652],
           [0.    , 0.4401]], dtype=float32)
    """
    (z,) = real_args("bessel_jn", z)
    v = static_int(v, "Argument v of bessel_jn.")
    static_int(n_iter, "Argument n_iter of bessel_jn.")
    orders = jnp.arange(v + 1, dtype=z.dtype).reshape(v + 1, *(1,) * jnp.ndim(z))
    return bessel_jv_p.bind(jnp.broadcast_to(orders, (v + 1, *jnp.shape(z))), jnp.expand_dims(z, 0))


def _bessel_jv_tangent(g, ans, v, z):
    return g * 0.5 * (bessel_jv_p.bind(v - 1, z) - bessel_jv_p.bind(v + 1, z))


bessel_jv_p = compiled(
    "bessel_jv", 2, in_double(scipy_function("jv")), PerOperand(_no_derivative_by_order, _bessel_jv_tangent), 1000
)

# ---------------------------------------------------------------- spherical harmonics


def sph_harm_y(n: Any, m: Any, theta: Any, phi: Any, diff_n: int | None = None, n_max: int | None = None) -> Any:
    """Spherical harmonics, complex.

    Args:
      n: degrees, ints >= 0.
      m: orders, ints with |m| <= n.
      theta: polar angles in [0, π].
      phi: azimuthal angles.
      diff_n: must be None; use transformations to differentiate by the angles.
      n_max: has no effect: the largest degree, which JAX needs under `jit`.

    >>> mpijax.scipy.special.sph_harm_y(jnp.array([0]), jnp.array([0]), jnp.array([1.0]), jnp.array([2.0])).round(4)
    Array([0.2821+0.j], dtype=complex64)
    """
    del n_max
    if diff_n is not None:
        raise NotImplementedError(
            "The 'diff_n' argument to sph_harm_y is not supported. Differentiate with grad, jvp or jacfwd."
        )
    theta, phi = inexact_args("sph_harm_y", theta, phi)
    theta = jnp.atleast_1d(theta)
    degree, order, theta, phi = jnp.broadcast_arrays(n, m, theta, phi)
    legendre = legendre_p.bind(degree.astype(theta.dtype), order.astype(theta.dtype), theta)
    angle = order * phi
    return lax.complex(legendre * jnp.cos(angle), legendre * jnp.sin(angle))


def _legendre(n, m, theta):
    """The harmonic of degree n and order m at azimuth 0; 0 where |m| > n."""
    n, m = n.astype(np.int64), m.astype(np.int64)
    inside = abs(m) <= n
    values = scipy_function("sph_harm_y")(n, np.where(inside, m, 0), theta, 0.0).real
    return np.where(inside, values, 0.0)


def _float_result(n, m, theta):
    return _legendre(n, m, np.asarray(theta, np.float64)).astype(theta.dtype)


def _legendre_tangent(g, ans, n, m, theta):
    """The derivative as half the weighted difference of the functions of the neighbouring orders, which is regular at
    the poles.

    Beyond the poles the function runs backwards: its sine is the positive root of 1 - cos². π, rounded, is the pole.
    """
    up = jnp.sqrt((n - m) * (n + m + 1)) * legendre_p.bind(n, m + 1, theta)
    down = jnp.sqrt((n + m) * (n - m + 1)) * legendre_p.bind(n, m - 1, theta)
    beyond = jnp.sin(theta) < -float(jnp.finfo(theta.dtype).eps)
    return g * jnp.where(beyond, -0.5, 0.5) * (up - down)


legendre_p = hosted(
    "spherical_legendre",
    3,
    _float_result,
    PerOperand(_no_derivative_by_order, _no_derivative_by_order, _legendre_tangent),
)
