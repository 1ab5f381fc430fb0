"""Interpolation between values on a rectangular grid."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.numpy.util import as_array, check_arraylike, promote_dtypes_inexact
from mpijax.tree_util import register_pytree_node_class

_METHODS = ("linear", "nearest")


def _check_method(method: str) -> None:
    if method not in _METHODS:
        raise ValueError(f"method {method!r} is not defined. The methods are {', '.join(_METHODS)}")


@register_pytree_node_class
class RegularGridInterpolator:
    """Interpolates between the points of a grid: call it with positions. It is a pytree, so it can be an argument of
    `jit`.

    Args:
      points: the coordinates along each axis of the grid, in ascending order.
      values: array of shape (m1, …, mn, …): the shape of the grid, and optionally further axes.
      method: "linear" or "nearest".
      bounds_error: must be False: values are not known while tracing.
      fill_value: result outside of the grid; None extrapolates.

    >>> points, values = jnp.array([0.0, 1.0, 3.0]), jnp.array([0.0, 10.0, 20.0])
    >>> f = mpijax.scipy.interpolate.RegularGridInterpolator((points,), values)
    >>> f(jnp.array([[0.5], [2.0]]))
    Array([ 5., 15.], dtype=float32)
    """

    def __init__(
        self,
        points: Any,
        values: Any,
        method: str = "linear",
        bounds_error: bool = False,
        fill_value: Any = np.nan,
    ):
        _check_method(method)
        if bounds_error:
            raise NotImplementedError("`bounds_error` takes no effect under JIT. Leave it False and use `fill_value`")
        check_arraylike("RegularGridInterpolator", values, *points)
        if len(points) > np.ndim(values):
            raise ValueError(f"there are {len(points)} point arrays, but values has {np.ndim(values)} dimensions")
        self.values = as_array(*promote_dtypes_inexact(values))
        if fill_value is not None:
            check_arraylike("RegularGridInterpolator", fill_value)
            fill_value = jnp.asarray(fill_value)
            if not jnp.can_cast(fill_value.dtype, self.values.dtype, casting="same_kind"):
                raise ValueError(
                    "fill_value must be either 'None' or of a type compatible with values; "
                    f"got {fill_value.dtype} and {self.values.dtype}"
                )
        self.method, self.bounds_error, self.fill_value = method, bounds_error, fill_value
        self.grid = tuple(jnp.asarray(p) for p in points)

    def tree_flatten(self) -> tuple:
        return (self.grid, self.values, self.fill_value), (self.method, self.bounds_error)

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> RegularGridInterpolator:
        self = cls.__new__(cls)
        self.grid, self.values, self.fill_value = children
        self.method, self.bounds_error = aux
        return self

    def __call__(self, xi: Any, method: str | None = None) -> Any:
        """Values at positions of shape (..., n), or at a tuple of n coordinate arrays that broadcast."""
        method = self.method if method is None else method
        _check_method(method)
        positions = self._positions(xi)
        flat = positions.reshape(-1, len(self.grid))
        cells = [self._cell(flat[:, axis], points) for axis, points in enumerate(self.grid)]
        out = self._linear(cells) if method == "linear" else self._nearest(cells)
        if self.fill_value is not None:
            outside = sum((beyond for _, _, beyond in cells), jnp.zeros(flat.shape[0], bool))
            out = jnp.where(outside.reshape(-1, *(1,) * (out.ndim - 1)), self.fill_value, out)
        return out.reshape(positions.shape[:-1] + self.values.shape[len(self.grid) :])

    def _positions(self, xi: Any) -> Any:
        count = len(self.grid)
        if isinstance(xi, tuple):
            xi = xi[0] if len(xi) == 1 else jnp.stack(jnp.broadcast_arrays(*xi), axis=-1)
        check_arraylike("RegularGridInterpolator", xi)
        xi = jnp.asarray(xi)
        if xi.ndim == 1:
            xi = xi.reshape(-1, count)
        if xi.shape[-1] != count:
            raise ValueError(
                f"the requested sample points xi have dimension {xi.shape[-1]}, but this RegularGridInterpolator "
                f"has dimension {count}"
            )
        return xi

    @staticmethod
    def _cell(x: Any, points: Any) -> tuple[Any, Any, Any]:
        """(index of the cell of x, position of x in the cell from 0 to 1, whether x is outside of the grid)."""
        index = jnp.clip(jnp.searchsorted(points, x) - 1, 0, points.size - 2)
        low, high = points[index], points[index + 1]
        return index, (x - low) / (high - low), (x < points[0]) | (x > points[-1])

    def _linear(self, cells: list) -> Any:
        total: Any = 0.0
        trailing = (slice(None), *(None,) * (self.values.ndim - len(cells)))
        for corner in itertools.product((0, 1), repeat=len(cells)):
            weight = math.prod(
                (part if side else 1 - part for side, (_, part, _) in zip(corner, cells, strict=True)),
                start=jnp.ones((), self.values.dtype),
            )
            at = tuple(index + side for side, (index, _, _) in zip(corner, cells, strict=True))
            total = total + self.values[at] * weight[trailing]
        return total

    def _nearest(self, cells: list) -> Any:
        return self.values[tuple(jnp.where(part <= 0.5, index, index + 1) for index, part, _ in cells)]
