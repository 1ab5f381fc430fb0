"""Density estimates: sums of normal densities around samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax, random
from mpijax.core.types.typeof import typeof
from mpijax.nn.normalize import logsumexp
from mpijax.numpy.util import as_array, check_arraylike, is_complex, promote_dtypes_inexact
from mpijax.scipy.special.errors import ndtr
from mpijax.tree_util import register_pytree_node_class

_FIELDS = ("neff", "dataset", "weights", "covariance", "inv_cov")


@register_pytree_node_class
class gaussian_kde:
    """A density that is estimated from samples.

    Args:
      dataset: samples, of shape (n,) for one variable or (d, n) for d variables.
      bw_method: the width of the kernels: "scott" (default), "silverman", a scalar factor, or a function of the
        estimate that returns a factor.
      weights: weights of the samples, of shape (n,).

    Attributes:
      neff: effective number of samples.
      dataset, weights: the arguments; the weights are normalised to the sum 1.
      covariance, inv_cov: the covariance of a kernel and its inverse, of shape (d, d).

    >>> mpijax.scipy.stats.gaussian_kde(jnp.array([-1.0, 0.0, 1.0]))(jnp.array([0.0])).round(4)
    Array([0.3182], dtype=float32)
    """

    __slots__ = _FIELDS
    neff: Any
    dataset: Any
    weights: Any
    covariance: Any
    inv_cov: Any

    def __init__(self, dataset: Any, bw_method: Any = None, weights: Any = None):
        check_arraylike("gaussian_kde", dataset)
        data = jnp.atleast_2d(dataset)
        if is_complex(data.dtype):
            raise NotImplementedError("gaussian_kde does not support complex data")
        if data.size <= 1:
            raise ValueError(f"`dataset` input should have multiple elements; got shape {data.shape}.")
        data, weights = _with_weights(data, weights)
        for name, value in zip(_FIELDS, (1 / jnp.sum(weights**2), data, weights), strict=False):
            object.__setattr__(self, name, value)
        covariance = jnp.atleast_2d(jnp.cov(data, rowvar=True, bias=False, aweights=weights))
        factor = self._bandwidth("scott" if bw_method is None else bw_method)
        object.__setattr__(self, "covariance", covariance * factor**2)
        object.__setattr__(self, "inv_cov", jnp.linalg.inv(covariance) / factor**2)

    def _bandwidth(self, method: Any) -> Any:
        if isinstance(method, str) and method in ("scott", "silverman"):
            count = self.neff if method == "scott" else self.neff * (self.d + 2) / 4
            return count ** (-1 / (self.d + 4))
        if callable(method):
            return method(self)
        if not isinstance(method, str) and jnp.ndim(method) == 0:
            return method
        raise ValueError(f"`bw_method` should be 'scott', 'silverman', a scalar, or a callable; got {method!r}.")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"gaussian_kde is immutable: cannot assign to {name!r}. Make a new one.")

    def tree_flatten(self) -> tuple:
        return tuple(getattr(self, name) for name in _FIELDS), None

    @classmethod
    def tree_unflatten(cls, _aux: Any, children: Any) -> gaussian_kde:
        self = cls.__new__(cls)
        for name, value in zip(_FIELDS, children, strict=True):
            object.__setattr__(self, name, value)
        return self

    @property
    def d(self) -> int:
        """Number of variables."""
        return self.dataset.shape[0]

    @property
    def n(self) -> int:
        """Number of samples."""
        return self.dataset.shape[1]

    # ------------------------------------------------------------ densities

    def evaluate(self, points: Any) -> Any:
        """The density at points of shape (m,) or (d, m). The result has the shape (m,)."""
        return self._evaluate("evaluate", points, lambda logs: jnp.exp(logs) @ self.weights)

    def logpdf(self, x: Any) -> Any:
        """The logarithm of the density at points of shape (m,) or (d, m). The result has the shape (m,)."""
        return self._evaluate("logpdf", x, lambda logs: logsumexp(logs + jnp.log(self.weights)[None], axis=-1))

    def pdf(self, x: Any) -> Any:
        """The density: `evaluate`."""
        return self.evaluate(x)

    __call__ = evaluate

    def _evaluate(self, name: str, points: Any, combine: Callable) -> Any:
        check_arraylike(name, points)
        points, data, precision = promote_dtypes_inexact(self._columns(points), self.dataset, self.inv_cov)
        whiten = lax.linalg.cholesky(as_array(precision))
        white_points, white_data = points.T @ whiten, data.T @ whiten
        squares = jnp.square(white_points[:, None, :] - white_data[None, :, :]).sum(-1)
        normalizer = jnp.log(jnp.diagonal(whiten)).sum() - 0.5 * self.d * float(np.log(2 * np.pi))
        return combine(normalizer - 0.5 * squares)

    def _columns(self, points: Any) -> Any:
        """Points as an array of shape (d, m). One point of d variables may have the shape (d,)."""
        points = jnp.atleast_2d(points)
        if is_complex(points.dtype):
            raise NotImplementedError("gaussian_kde does not support complex coordinates")
        d, m = points.shape
        if d == self.d:
            return points
        if d == 1 and m == self.d:
            return points.reshape(self.d, 1)
        raise ValueError(f"points have dimension {d}, dataset has dimension {self.d}")

    # ------------------------------------------------------------ integrals

    def integrate_gaussian(self, mean: Any, cov: Any) -> Any:
        """The integral of the density times a normal density with `mean`, of shape (d,), and `cov`, of shape (d, d)."""
        mean, cov = jnp.atleast_1d(jnp.squeeze(mean)), jnp.atleast_2d(cov)
        if mean.shape != (self.d,):
            raise ValueError(f"mean does not have dimension {self.d}; got shape {mean.shape}")
        if cov.shape != (self.d, self.d):
            raise ValueError(f"covariance does not have dimension {self.d}; got shape {cov.shape}")
        return self._overlaps(self.covariance + cov, mean[:, None])[0]

    def integrate_kde(self, other: gaussian_kde) -> Any:
        """The integral of the product of two densities."""
        if other.d != self.d:
            raise ValueError(f"KDEs are not the same dimensionality: {self.d} and {other.d}")
        small, large = (self, other) if self.n < other.n else (other, self)
        return large._overlaps(self.covariance + other.covariance, small.dataset) @ small.weights

    def _overlaps(self, covariance: Any, means: Any) -> Any:
        """For each column of `means`, the sum over samples of the normal densities around it. The result has the shape
        (m,)."""
        factor = lax.linalg.cholesky(covariance)
        size = means.shape[1]
        differences = (self.dataset[:, None, :] - means[:, :, None]).reshape(self.d, -1)
        white = lax.linalg.triangular_solve(factor, differences, left_side=True, lower=True)
        exponent = -0.5 * jnp.square(white).sum(0).reshape(size, self.n)
        normalizer = float(2 * np.pi) ** (self.d / 2) * jnp.prod(jnp.diagonal(factor))
        return jnp.exp(exponent) @ self.weights / normalizer

    def integrate_box_1d(self, low: Any, high: Any) -> Any:
        """The probability between two scalars, for one variable."""
        if self.d != 1:
            raise ValueError(f"integrate_box_1d() only handles 1D pdfs; this one has dimension {self.d}")
        if jnp.ndim(low) != 0 or jnp.ndim(high) != 0:
            raise ValueError("the limits of integration in integrate_box_1d must be scalars")
        sigma, samples = jnp.sqrt(self.covariance[0, 0]), self.dataset[0]
        return jnp.sum(self.weights * (ndtr((high - samples) / sigma) - ndtr((low - samples) / sigma)))

    def integrate_box(self, low_bounds: Any, high_bounds: Any, maxpts: Any = None) -> Any:
        """Not available: the integral over a box of several variables has no closed form."""
        raise NotImplementedError("only 1D box integrations are supported; use `integrate_box_1d`")

    def set_bandwidth(self, bw_method: Any = None) -> None:
        """Not available: make a new estimate instead."""
        raise NotImplementedError("the bandwidth cannot be changed. Make a new gaussian_kde(dataset, bw_method).")

    # ------------------------------------------------------------ samples

    def resample(self, key: Any, shape: tuple[int, ...] = ()) -> Any:
        """Random samples of the density, of shape (d, *shape)."""
        which_key, noise_key = random.split(key)
        which = random.choice(which_key, self.n, shape=shape, p=self.weights)
        center = jnp.zeros(self.d, typeof(self.covariance).dtype)
        noise = random.multivariate_normal(
            noise_key, center, self.covariance, shape=shape, dtype=typeof(self.dataset).dtype
        )
        return self.dataset[:, which] + noise.T


def _with_weights(data: Any, weights: Any) -> tuple[Any, Any]:
    """Samples as floats, and their weights, normalised to the sum 1."""
    count = data.shape[1]
    if weights is None:
        (data,) = promote_dtypes_inexact(data)
        return as_array(data), jnp.full(count, 1 / count, data.dtype)
    check_arraylike("gaussian_kde", weights)
    data, weights = map(as_array, promote_dtypes_inexact(data, weights))
    weights = jnp.atleast_1d(weights)
    if weights.ndim != 1:
        raise ValueError(f"`weights` input should be one-dimensional; got shape {weights.shape}.")
    if len(weights) != count:
        raise ValueError(f"`weights` input should be of length n = {count}; got {len(weights)}.")
    return data, weights / jnp.sum(weights)
