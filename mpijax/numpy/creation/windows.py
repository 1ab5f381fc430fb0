"""Window functions: weights that decrease towards both ends of an interval; and the Bessel function of Kaiser's
window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes
from mpijax.numpy.util import promote_args_inexact, static
from mpijax.transforms.custom_jvp import custom_jvp
from mpijax.transforms.derivatives import jvp
from mpijax.transforms.jit import jit


def _window(name: str, M: Any, weights: Callable[[Any, int], Any]) -> Any:
    """`weights(n, M)` at n = 0 ... M - 1; 1 for a single point."""
    M = static(M, f"M argument of jnp.{name}", int)
    dtype = dtypes.default_float_dtype()
    return lax.full((M,), 1, dtype) if M <= 1 else weights(lax.iota(dtype, M), M)


def bartlett(M: int) -> Any:
    """Bartlett's window, a triangle from 0 to 1 and back to 0: floats of shape [M].

    >>> jnp.bartlett(5)
    Array([0. , 0.5, 1. , 0.5, 0. ], dtype=float32)
    """
    return _window("bartlett", M, lambda n, M: 1 - jnp.abs(2 * n + 1 - M) / (M - 1))


def blackman(M: int) -> Any:
    """Blackman's window, 0.42 - 0.5 cos(2πt) + 0.08 cos(4πt) for t in [0, 1]: floats of shape [M].

    >>> jnp.blackman(5).round(3) + 0.0
    Array([0.  , 0.34, 1.  , 0.34, 0.  ], dtype=float32)
    """

    def weights(n, M):
        return 0.42 - 0.5 * jnp.cos(2 * np.pi * n / (M - 1)) + 0.08 * jnp.cos(4 * np.pi * n / (M - 1))

    return _window("blackman", M, weights)


def hamming(M: int) -> Any:
    """Hamming's window, 0.54 - 0.46 cos(2πt) for t in [0, 1]: floats of shape [M].

    >>> jnp.hamming(5).round(3)
    Array([0.08, 0.54, 1.  , 0.54, 0.08], dtype=float32)
    """
    return _window("hamming", M, lambda n, M: 0.54 - 0.46 * jnp.cos(2 * np.pi * n / (M - 1)))


def hanning(M: int) -> Any:
    """Hann's window, 0.5 - 0.5 cos(2πt) for t in [0, 1]: floats of shape [M].

    >>> jnp.hanning(5)
    Array([0. , 0.5, 1. , 0.5, 0. ], dtype=float32)
    """
    return _window("hanning", M, lambda n, M: 0.5 * (1 - jnp.cos(2 * np.pi * n / (M - 1))))


def kaiser(M: int, beta: Any) -> Any:
    """Kaiser's window, i0(β √(1 - t²)) / i0(β) for t in [-1, 1]: floats of shape [M]. A larger β gives a narrower
    window.

    >>> jnp.kaiser(3, 2.0).round(3)
    Array([0.439, 1.   , 0.439], dtype=float32)
    """

    def weights(n, M):
        middle = 0.5 * (M - 1)
        return i0(beta * jnp.sqrt(1 - ((n - middle) / middle) ** 2)) / i0(beta)

    return _window("kaiser", M, weights)


@jit
def i0(x: Any) -> Any:
    """Modified Bessel function of the first kind, of order 0, elementwise.

    Raises:
      ValueError: x is complex.

    >>> jnp.i0(jnp.array([0.0, 1.0]))
    Array([1.       , 1.2660658], dtype=float32)
    """
    (x,) = promote_args_inexact("i0", x)
    if not dtypes.issubdtype(x.dtype, np.floating):
        raise ValueError(f"Unsupported input type to jax.numpy.i0: {x.dtype}")
    return _i0(x)


@custom_jvp
def _i0(x):
    size = lax.abs(x)
    return lax.mul(lax.exp(size), lax.bessel_i0e(size))


@_i0.defjvp
def _i0_jvp(primals, tangents):
    # At 0, the rules of abs and of bessel_i0e both give 0, which is the slope of the even function.
    out, tangent = jvp(_i0.fun, primals, tangents)
    return out, jnp.where(primals[0] == 0, 0.0, tangent)
