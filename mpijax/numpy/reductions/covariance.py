"""Covariance and correlation of variables."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes
from mpijax.numpy.util import check_arraylike, ensure_arraylike, is_complex, is_integer, promote_args_inexact
from mpijax.transforms.jit import jit


def _check_dtype(name: str, dtype: Any) -> None:
    if dtype is not None and not dtypes.issubdtype(dtype, np.inexact):
        raise ValueError(f"{name}: dtype must be a subclass of float or complex; got dtype={dtype!r}")


@jit(static_argnames=("rowvar", "bias", "ddof", "dtype"))
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    dtype: Any = None,
) -> Any:
    """Covariance matrix of variables.

    Args:
      m: observations, of shape [variables, n], or [n] for a single variable.
      y: observations of more variables, in the same form.
      rowvar: True if rows are variables, False if columns are.
      bias: divide by n instead of n - 1.
      ddof: divide by n - ddof; overrides `bias`.
      fweights: how often each observation occurs: integers, of shape [n].
      aweights: weight of each observation, of shape [n].
      dtype: dtype of the computation and the result.

    Returns:
      Array of shape [variables, variables], without axes of size 1.

    >>> jnp.cov(jnp.array([[1.0, 2.0, 3.0], [6.0, 4.0, 2.0]]))
    Array([[ 1., -2.],
           [-2.,  4.]], dtype=float32)
    """
    _check_dtype("cov", dtype)
    x = _observations(m, y, rowvar)
    if x.shape[0] == 0:
        return jnp.zeros((0, 0))
    if x.shape[1] == 0:
        return jnp.full(() if x.shape[0] == 1 else (x.shape[0],) * 2, np.nan, dtype=x.dtype)
    if ddof is None:
        ddof = 1 if bias == 0 else 0
    weights, aweights = _weights(fweights, aweights, x.shape[1])
    if dtype is not None:
        x = x.astype(dtype)
        weights = weights if weights is None else weights.astype(dtype)
    mean, total = jnp.average(x, axis=1, weights=weights, returned=True)
    total = total[0]
    if weights is None:
        divisor = x.shape[1] - ddof
    elif ddof == 0:
        divisor = total
    elif aweights is None:
        divisor = total - ddof
    else:
        divisor = total - ddof * jnp.sum(weights * aweights) / total
    x = x - mean[:, None]
    weighted = x if weights is None else x * lax.broadcast_to_rank(weights, x.ndim)
    return jnp.true_divide(jnp.dot(x, weighted.T.conj()), divisor).squeeze()


def _observations(m: Any, y: Any, rowvar: bool) -> Any:
    """All variables as rows."""
    arrays = promote_args_inexact("cov", m) if y is None else promote_args_inexact("cov", m, y)
    for name, a in zip("my", arrays, strict=False):
        if a.ndim > 2:
            raise ValueError(f"{name} has more than 2 dimensions")
    x = jnp.atleast_2d(arrays[0])
    if not rowvar and arrays[0].ndim != 1:
        x = x.T
    if y is None or x.shape[0] == 0:
        return x
    more = jnp.atleast_2d(arrays[1])
    return jnp.concatenate((x, more.T if not rowvar and more.shape[0] != 1 else more), axis=0)


def _weights(fweights: Any, aweights: Any, n: int) -> tuple[Any, Any]:
    """(all weights of the observations or None, `aweights` or None)."""
    weights = None
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is None:
            continue
        given = ensure_arraylike("cov", given)
        if given.ndim > 1:
            raise RuntimeError(f"cannot handle multidimensional {name}")
        if given.shape[0] != n:
            raise RuntimeError(f"incompatible numbers of samples and {name}")
        if name == "fweights" and not is_integer(given.dtype):
            raise TypeError("fweights must be integer.")
        size = jnp.abs(given)
        if name == "aweights":
            aweights = size
        weights = size if weights is None else weights * size
    return weights, aweights


@jit(static_argnames=("rowvar", "dtype"))
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, dtype: Any = None) -> Any:
    """Correlation coefficients of variables: `cov` divided by the standard deviations, in [-1, 1].

    Arguments and shapes are those of `cov`.

    >>> x = jnp.array([1.0, 2.0, 3.0])
    >>> jnp.corrcoef(x, -2 * x)
    Array([[ 1., -1.],
           [-1.,  1.]], dtype=float32)
    """
    check_arraylike("corrcoef", x)
    _check_dtype("corrcoef", dtype)
    c = cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return jnp.divide(c, c)
    deviations = jnp.sqrt(jnp.real(jnp.diag(c))).astype(c.dtype)
    c = c / deviations[:, None] / deviations[None, :]
    real = jnp.clip(jnp.real(c), -1, 1)
    return lax.complex(real, jnp.clip(jnp.imag(c), -1, 1)) if is_complex(c.dtype) else real
