"""Images with any number of axes, with SciPy's names."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes
from mpijax.transforms.jit import jit

__all__ = [
    "map_coordinates",
]  # fmt: skip


def _mirrored(index: Any, size: int) -> Any:
    last = size - 1
    return jnp.abs((index + last) % (2 * last) - last)


def _reflected(index: Any, size: int) -> Any:
    return jnp.floor_divide(_mirrored(2 * index + 1, 2 * size + 1) - 1, 2)


# The position inside the axis for an index outside of it.
_PLACES: dict[str, Callable[[Any, int], Any]] = {
    "constant": lambda index, size: index,
    "nearest": lambda index, size: jnp.clip(index, 0, size - 1),
    "wrap": lambda index, size: index % size,
    "mirror": _mirrored,
    "reflect": _reflected,
}


def _rounded(a: Any) -> Any:
    return a if dtypes.issubdtype(a.dtype, np.integer) else lax.round(a)


def _nearest(coordinate: Any) -> list[tuple[Any, Any]]:
    return [(_rounded(coordinate).astype(np.int32), coordinate.dtype.type(1))]


def _linear(coordinate: Any) -> list[tuple[Any, Any]]:
    lower = jnp.floor(coordinate)
    above = coordinate - lower
    index = lower.astype(np.int32)
    return [(index, 1 - above), (index + 1, above)]


def map_coordinates(
    input: Any, coordinates: Sequence[Any], order: int, mode: str = "constant", cval: Any = 0.0
) -> Any:
    """Interpolates an array at positions between its elements.

    Args:
      coordinates: an array of positions for each axis of `input`; all have the same shape.
      order: 0 for the nearest element, 1 for linear interpolation.
      mode: values outside of the array: `cval` ("constant"), the nearest element ("nearest"), or copies of the array
        that are wrapped ("wrap"), mirrored at the centre of the last element ("mirror"), or at its edge ("reflect").

    Returns:
      Array with the shape of a coordinate and the dtype of `input`.

    Raises:
      ValueError: the numbers of coordinates and of axes differ. NotImplementedError: an unknown mode or order.

    >>> mpijax.scipy.ndimage.map_coordinates(jnp.array([0.0, 10.0, 20.0]), [jnp.array([0.5, 1.25])], order=1)
    Array([ 5. , 12.5], dtype=float32)
    """
    return _map_coordinates(input, coordinates, order, mode, cval)


@jit(static_argnums=(2, 3, 4))
def _map_coordinates(input: Any, coordinates: Sequence[Any], order: int, mode: str, cval: Any) -> Any:
    x = jnp.asarray(input)
    if len(coordinates) != x.ndim:
        raise ValueError(f"coordinates must be a sequence of length input.ndim, but {len(coordinates)} != {x.ndim}")
    if mode not in _PLACES:
        raise NotImplementedError(
            f"jax.scipy.ndimage.map_coordinates does not yet support mode {mode}. Currently supported modes are "
            f"{set(_PLACES)}."
        )
    if order not in (0, 1):
        raise NotImplementedError(f"jax.scipy.ndimage.map_coordinates currently requires order<=1, got {order}")
    outside = jnp.asarray(cval, x.dtype)
    axes = []
    for coordinate, size in zip(map(jnp.asarray, coordinates), x.shape, strict=True):
        nodes = (_linear if order else _nearest)(coordinate)
        axes.append([(_PLACES[mode](i, size), (0 <= i) & (i < size), weight) for i, weight in nodes])
    parts = []
    for corner in itertools.product(*axes):
        indices, inside, weights = zip(*corner, strict=True)
        part = x[indices]
        if mode == "constant":
            part = jnp.where(functools.reduce(operator.and_, inside), part, outside)
        parts.append(functools.reduce(operator.mul, weights) * part)
    out = sum(parts[1:], parts[0])
    return (_rounded(out) if dtypes.issubdtype(x.dtype, np.integer) else out).astype(x.dtype)
