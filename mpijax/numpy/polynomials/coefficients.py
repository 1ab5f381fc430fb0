"""Polynomials as arrays of coefficients, the highest power first."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes
from mpijax.numpy.shapes.trimming import trim_zeros, trim_zeros_tol
from mpijax.numpy.util import (
    _where,
    ensure_arraylike,
    promote_dtypes,
    promote_dtypes_inexact,
    scalar_like,
    static,
    static_int,
)
from mpijax.transforms.jit import jit


@jit(static_argnames=("N", "increasing"))
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """The Vandermonde matrix, of shape [n, N]: each row has the powers of an element of `x`, from N - 1 to 0. Default
    N: n.

    Raises:
      ValueError: x does not have one axis, or N is negative.

    >>> jnp.vander(jnp.array([2, 3]), 3)
    Array([[4, 2, 1],
           [9, 3, 1]], dtype=int32)
    """
    x = ensure_arraylike("vander", x)
    if x.ndim != 1:
        raise ValueError("x must be a one-dimensional array")
    N = x.shape[0] if N is None else static_int(N, "'N' argument of jnp.vander()")
    if N < 0:
        raise ValueError("N must be nonnegative")
    powers = lax.iota(x.dtype, N)
    if not increasing:
        powers = lax.sub(scalar_like(powers, N - 1), powers)
    return jnp.power(x[..., None], powers[None])


@jit(static_argnames=["unroll"])
def polyval(p: Any, x: Any, *, unroll: int = 16) -> Any:
    """The value of a polynomial at `x`, by Horner's rule.

    Args:
      p: coefficients, of shape [n] or [n, *shape].
      x: array.
      unroll: number of steps in one iteration of the loop.

    >>> jnp.polyval(jnp.array([1, 0, 2]), jnp.array([0, 3]))
    Array([ 2, 11], dtype=int32)
    """
    p, x = promote_dtypes(*ensure_arraylike("polyval", p, x))
    shape = lax.broadcast_shapes(p.shape[1:], x.shape)
    y, _ = lax.scan(lambda y, p: (y * x + p, None), lax.full_like(x, 0, shape=shape), p, unroll=unroll)
    return y


@jit
def polyadd(a1: Any, a2: Any) -> Any:
    """The sum of two polynomials.

    Coefficients, the highest power first.

    >>> jnp.polyadd(jnp.array([1, 0, 2]), jnp.array([3, 1]))
    Array([1, 3, 3], dtype=int32)
    """
    long, short = promote_dtypes(*ensure_arraylike("polyadd", a1, a2))
    if long.shape[0] < short.shape[0]:
        long, short = short, long
    return long.at[-short.shape[0] :].add(short)


@jit
def polysub(a1: Any, a2: Any) -> Any:
    """The difference of two polynomials.

    Coefficients, the highest power first.

    >>> jnp.polysub(jnp.array([1, 0, 2]), jnp.array([3, 1]))
    Array([ 1, -3,  1], dtype=int32)
    """
    a1, a2 = promote_dtypes(*ensure_arraylike("polysub", a1, a2))
    return polyadd(a1, -a2)


def polymul(a1: Any, a2: Any, *, trim_leading_zeros: bool = False) -> Any:
    """The product of two polynomials.

    Args:
      trim_leading_zeros: first remove zero coefficients of the highest powers; not possible under `jit`.

    >>> jnp.polymul(jnp.array([1, 1]), jnp.array([1, -1]))
    Array([ 1.,  0., -1.], dtype=float32)
    """
    a1, a2 = promote_dtypes_inexact(*ensure_arraylike("polymul", a1, a2))
    if trim_leading_zeros and (len(a1) > 1 or len(a2) > 1):
        a1, a2 = trim_zeros(a1, trim="f"), trim_zeros(a2, trim="f")
    a1, a2 = (a if len(a) else jnp.zeros(1, a1.dtype) for a in (a1, a2))
    return jnp.convolve(a1, a2, mode="full")


def polydiv(u: Any, v: Any, *, trim_leading_zeros: bool = False) -> tuple[Any, Any]:
    """Quotient and remainder of two polynomials.

    Args:
      trim_leading_zeros: remove coefficients of the remainder that are 0 up to rounding; not possible under `jit`.

    Returns:
      (quotient, remainder); the remainder has the size of `u`.

    >>> jnp.polydiv(jnp.array([1.0, 0.0, -1.0]), jnp.array([1.0, -1.0]))
    (Array([1., 1.], dtype=float32), Array([0., 0., 0.], dtype=float32))
    """
    u, v = promote_dtypes_inexact(*ensure_arraylike("polydiv", u, v))
    steps = len(u) - len(v) + 1
    scale = 1.0 / v[0]
    quotient = jnp.zeros(max(steps, 1), u.dtype)
    for k in range(steps):
        factor = scale * u[k]
        quotient = quotient.at[k].set(factor)
        u = u.at[k : k + len(v)].add(-factor * v)
    if trim_leading_zeros:
        u = trim_zeros_tol(u, tol=jnp.sqrt(dtypes.finfo(u.dtype).eps), trim="f")
    return quotient, u


def _falling(first: int, last: int, m: int, dtype: Any) -> Any:
    """n (n - 1) ... (n - m + 1) for n = first ... last - 1; factors below 1 count as 1."""
    grid = jnp.arange(first, last, dtype=dtype)[np.newaxis] - jnp.arange(m, dtype=dtype)[:, np.newaxis]
    return jnp.maximum(1, grid).prod(0)


@jit(static_argnames=("m",))
def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    """The `m`-th integral of a polynomial. `k`: the constant of integration, or one for each integration.

    Coefficients, the highest power first.

    >>> jnp.polyint(jnp.array([6.0, 2.0]), k=5.0)
    Array([3., 2., 5.], dtype=float32)
    """
    m = static_int(m, "'m' argument of jnp.polyint")
    p, k = promote_dtypes_inexact(*ensure_arraylike("polyint", p, 0 if k is None else k))
    if m < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    k = jnp.atleast_1d(k)
    if len(k) == 1:
        k = jnp.full((m,), k[0])
    if k.shape != (m,):
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or m.")
    if m == 0:
        return p
    return jnp.true_divide(jnp.concatenate((p, k)), _falling(0, len(p) + m, m, p.dtype)[::-1])


@jit(static_argnames=("m",))
def polyder(p: Any, m: int = 1) -> Any:
    """The `m`-th derivative of a polynomial.

    Coefficients, the highest power first.

    Raises:
      ValueError: `m` is negative.

    >>> jnp.polyder(jnp.array([1.0, 2.0, 3.0]))
    Array([2., 2.], dtype=float32)
    """
    p = ensure_arraylike("polyder", p)
    m = static_int(m, "'m' argument of jnp.polyder")
    (p,) = promote_dtypes_inexact(p)
    if m < 0:
        raise ValueError("Order of derivative must be positive")
    return p if m == 0 else p[:-m] * _falling(m, len(p), m, p.dtype)[::-1]


@jit
def poly(seq_of_zeros: Any) -> Any:
    """The polynomial with leading coefficient 1 that has the given roots, or the eigenvalues of a matrix as roots.

    Returns:
      Coefficients of shape [n + 1]; without roots, the number 1.

    >>> jnp.poly(jnp.array([1.0, 2.0]))
    Array([ 1., -3.,  2.], dtype=float32)
    """
    (roots_,) = promote_dtypes_inexact(ensure_arraylike("poly", seq_of_zeros))
    roots_ = jnp.atleast_1d(roots_)
    if roots_.ndim == 2 and roots_.shape[0] == roots_.shape[1] != 0:
        roots_ = jnp.linalg.eigvals(roots_)
    if roots_.ndim != 1:
        raise ValueError("input must be 1d or non-empty square 2d array.")
    dtype = roots_.dtype
    if len(roots_) == 0:
        return jnp.ones((), dtype=dtype)
    coefficients = jnp.ones((1,), dtype=dtype)
    for i in range(len(roots_)):
        coefficients = jnp.convolve(coefficients, jnp.array([1, -roots_[i]], dtype=dtype), mode="full")
    return coefficients


def roots(p: Any, *, strip_zeros: bool = True) -> Any:
    """The roots of a polynomial, as eigenvalues of its companion matrix: complex, of shape [n - 1].

    Args:
      p: coefficients of shape [n].
      strip_zeros: remove zero coefficients of the highest powers; not possible under `jit`. Otherwise, each such
        coefficient gives a root NaN.

    >>> jnp.sort(jnp.roots(jnp.array([1.0, -3.0, 2.0])).real)
    Array([1., 2.], dtype=float32)
    """
    (p,) = promote_dtypes_inexact(ensure_arraylike("roots", p))
    p = jnp.atleast_1d(p)
    if p.ndim != 1:
        raise ValueError("Input must be a rank-1 array.")
    if p.size < 2:
        return jnp.zeros(0, dtypes.to_complex_dtype(p.dtype))
    leading = _where(jnp.all(p == 0), len(p), jnp.argmin(p == 0))
    if not strip_zeros:
        return _roots_with_zeros(p, leading)
    leading = static(
        leading,
        "The error occurred in the jnp.roots() function. To use this within a JIT-compiled context, pass "
        "strip_zeros=False, but be aware that leading zeros will result in some returned roots being set to NaN.",
        int,
    )
    return _roots_no_zeros(p[leading:])


@jit
def _roots_no_zeros(p):
    if p.size < 2:
        return jnp.zeros(0, dtypes.to_complex_dtype(p.dtype))
    companion = jnp.diag(jnp.ones((p.size - 2,), p.dtype), -1)
    return jnp.linalg.eigvals(companion.at[0, :].set(-p[1:] / p[0]))


@jit
def _roots_with_zeros(p, num_leading_zeros):
    p = _where(len(p) == num_leading_zeros, 1.0, p)
    # Zeros moved from the front to the end add roots 0, which are sorted to the end and left out.
    found = _roots_no_zeros(jnp.roll(p, -num_leading_zeros))
    found = lax.sort_key_val(found == 0, found)[1]
    return _where(jnp.arange(found.size) < found.size - num_leading_zeros, found, complex(np.nan, np.nan))
