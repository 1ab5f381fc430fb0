"""Least-squares fits of a polynomial to points."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.core import dtypes
from mpijax.numpy.util import ensure_arraylike, promote_dtypes_inexact, static
from mpijax.transforms.jit import jit


def _check_points(x: Any, y: Any, deg: int) -> None:
    if deg < 0:
        raise ValueError("expected deg >= 0")
    if x.ndim != 1:
        raise TypeError("expected 1D vector for x")
    if x.size == 0:
        raise TypeError("expected non-empty vector for x")
    if y.ndim not in (1, 2):
        raise TypeError("expected 1D or 2D array for y")
    if x.shape[0] != y.shape[0]:
        raise TypeError("expected x and y to have same length")


def _weighted(a: Any, w: Any) -> Any:
    return a * w[:, np.newaxis] if a.ndim == 2 else a * w


@jit(static_argnames=("deg", "rcond", "full", "cov"))
def polyfit(
    x: Any,
    y: Any,
    deg: int,
    rcond: float | None = None,
    full: bool = False,
    w: Any = None,
    cov: bool | str = False,
) -> Any:
    """Coefficients of the polynomial of degree `deg` that fits points best, the highest power first.

    Args:
      x, y: the points. x has the shape [n], and y the shape [n], or [n, k] for k polynomials.
      rcond: singular values below this fraction of the largest one are 0; default n times the eps of the dtype.
      w: weights of the points, of shape [n].
      full: also return (residuals, rank, singular values, rcond).
      cov: also return the covariance matrix of the coefficients, scaled by the residuals unless "unscaled".

    >>> x = jnp.array([0.0, 1.0, 2.0, 3.0])
    >>> jnp.polyfit(x, 2 * x + 1, 1).round(3)
    Array([2., 1.], dtype=float32)
    """
    x, y = ensure_arraylike("polyfit", x, y)
    deg = static(deg, "deg must be int", int)
    _check_points(x, y, deg)
    if rcond is None:
        rcond = len(x) * float(dtypes.finfo(x.dtype).eps)
    rcond = static(rcond, "rcond must be float", float)
    left, right = jnp.vander(x, deg + 1), y
    if w is not None:
        (w,) = promote_dtypes_inexact(ensure_arraylike("polyfit", w))
        if w.ndim != 1:
            raise TypeError("expected a 1-d array for weights")
        if w.shape[0] != y.shape[0]:
            raise TypeError("expected w and y to have the same length")
        left, right = _weighted(left, w), _weighted(right, w)
    # Columns of length 1 make the problem better conditioned.
    scale = jnp.sqrt((left * left).sum(axis=0))
    left = left / scale[np.newaxis, :]
    c, residuals, rank, singular = jnp.linalg.lstsq(left, right, rcond)
    c = c / (scale if c.ndim == 1 else scale[:, np.newaxis])
    if full:
        return c, residuals, rank, singular, jnp.asarray(rcond)
    return (c, _covariance(left, scale, residuals, len(x), cov, y.ndim)) if cov else c


def _covariance(left: Any, scale: Any, residuals: Any, n: int, cov: bool | str, ndim: int) -> Any:
    base = jnp.linalg.inv(jnp.dot(left.T, left)) / jnp.outer(scale, scale)
    order = left.shape[1]
    if cov == "unscaled":
        factor = jnp.array(1.0)
    elif n <= order:
        raise ValueError("the number of data points must exceed order to scale the covariance matrix")
    else:
        factor = residuals / (n - order)
    factor = jnp.atleast_2d(factor)
    return base * factor if ndim == 1 else base[:, :, np.newaxis] * factor[np.newaxis]
