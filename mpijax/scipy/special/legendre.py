"""Associated Legendre functions of all orders and degrees up to a bound."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core.types.typeof import typeof
from mpijax.transforms.derivatives import jvp


def lpmn(m: int, n: int, z: Any) -> tuple[Any, Any]:
    """Associated Legendre functions of the first kind, and their derivatives by `z`.

    Args:
      m, n: the largest order and the largest degree; must be equal.
      z: a float32 or float64 array of shape [k], with values in [-1, 1].

    Returns: two arrays of shape [m + 1, n + 1, k], at [order, degree, position].

    >>> values, derivatives = mpijax.scipy.special.lpmn(1, 1, jnp.array([0.6]))
    >>> values[1, 1], derivatives[1, 1]
    (Array([-0.8], dtype=float32), Array([0.75], dtype=float32))
    """
    z = _checked(m, n, z)
    order = np.arange(m + 1, dtype=z.dtype)[:, None, None]
    polynomials, slopes = jvp(partial(_polynomials, n, _factors(n)), (z,), (jnp.ones_like(z),))
    squared = (1 - z) * (1 + z)
    power = squared ** (order / 2)
    slope = -order * z * squared ** np.where(order > 0, order / 2 - 1, 0)  # of `power`; infinite at ±1 for order 1
    above = np.arange(n + 1)[:, None] < order
    return power * polynomials, jnp.where(above, 0, power * slopes + slope * polynomials)


def lpmn_values(m: int, n: int, z: Any, is_normalized: bool) -> Any:
    """Associated Legendre functions of the first kind.

    Args:
      m, n: the largest order and the largest degree; must be equal.
      z: a float32 or float64 array of shape [k], with values in [-1, 1].
      is_normalized: whether to scale them as in spherical harmonics, to sqrt((2l+1) (l-m)! / (4π (l+m)!)) times the
        function of degree l and order m.

    Returns: an array of shape [m + 1, n + 1, k], at [order, degree, position].

    >>> mpijax.scipy.special.lpmn_values(1, 1, jnp.array([0.6]), False)[:, 1]
    Array([[ 0.6],
           [-0.8]], dtype=float32)
    """
    z = _checked(m, n, z)
    factors = _normalized_factors(n) if is_normalized else _factors(n)
    order = np.arange(m + 1, dtype=z.dtype)[:, None, None]
    return ((1 - z) * (1 + z)) ** (order / 2) * _polynomials(n, factors, z)


def _checked(m: int, n: int, z: Any) -> Any:
    if typeof(z).dtype not in (np.float32, np.float64):
        raise TypeError(f"z.dtype={typeof(z).dtype} is not supported, see docstring for supported types.")
    if typeof(z).ndim != 1:
        raise ValueError("z must be a 1D array.")
    if m != n:
        raise NotImplementedError("Computations for m!=n are not yet supported.")
    return jnp.asarray(z)


def _polynomials(n: int, factors: tuple[np.ndarray, np.ndarray, np.ndarray], z: Any) -> Any:
    """The functions of degrees and orders up to n, each without its factor (1 - z²)^(order/2): [order, degree, k].

    The function of degree l is ``first[l] * z *`` that of degree l - 1, minus ``second[l] *`` that of degree l - 2; it
    begins at degree l = order with the constant ``start[l]``.
    """
    start, first, second = (f.astype(z.dtype) for f in factors)
    begins = np.diag(start)[..., None]

    def degree(last_two, factors):
        before, last = last_two
        begin, one, two = factors
        found = begin + one[:, None] * z * last - two[:, None] * before
        return (last, found), found

    none = jnp.zeros((n + 1, *z.shape), z.dtype)
    _, by_degree = lax.scan(degree, (none, none), (begins, first, second))
    return jnp.swapaxes(by_degree, 0, 1)


def _grid(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Degrees, orders, and whether the order is less than the degree: [degree, order]."""
    l, m = np.meshgrid(np.arange(n + 1.0), np.arange(n + 1.0), indexing="ij")
    return l, m, m < l


def _factors(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    l, m, inside = _grid(n)
    start = np.cumprod([1.0, *(1 - 2 * np.arange(1.0, n + 1))])
    distance = np.where(inside, l - m, 1)
    return start, np.where(inside, (2 * l - 1) / distance, 0), np.where(inside, (l + m - 1) / distance, 0)


def _normalized_factors(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    l, m, inside = _grid(n)
    orders = np.arange(1.0, n + 1)
    start = np.cumprod([np.sqrt(1 / (4 * np.pi)), *-np.sqrt((2 * orders + 1) / (2 * orders))])
    squares = np.where(inside, l**2 - m**2, 1)
    first = np.sqrt((4 * l**2 - 1).clip(0) / squares)
    below = np.where(m < l - 1, ((l - 1) ** 2 - m**2) / np.where(l > 1, 4 * (l - 1) ** 2 - 1, 1), 0)
    return start, np.where(inside, first, 0), np.where(inside, first * np.sqrt(below.clip(0)), 0)
