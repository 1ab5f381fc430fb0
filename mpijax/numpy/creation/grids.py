"""Objects that make arrays when they are indexed: `mgrid[0:3, 0:2]`, `r_[1:4, 7]`; and `ix_`, open meshes of
indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core.base.config import numpy_dtype_promotion
from mpijax.numpy.util import ensure_arraylike_tuple, promote_dtypes, static

s_ = np.s_
index_exp = np.index_exp


def _points(name: str, piece: slice) -> Any:
    """The numbers of a slice. With an imaginary step n·j, n numbers, including both ends."""
    start = static(piece.start, f"slice start of jnp.{name}") or 0
    stop = static(piece.stop, f"slice stop of jnp.{name}")
    step = static(piece.step, f"slice step of jnp.{name}") or 1
    if np.iscomplex(step):
        return jnp.linspace(start, stop, int(abs(step)))
    return jnp.arange(start, stop, step)


class _Grid:
    """Coordinates of the points of a grid, which is given by a slice for each axis."""

    def __init__(self, name: str, sparse: bool, doc: str):
        self._name, self._sparse, self.__doc__ = name, sparse, doc

    def __repr__(self) -> str:
        return f"<mpijax.numpy.{self._name}>"

    def __getitem__(self, key: slice | tuple[slice, ...]) -> Any:
        if isinstance(key, slice):
            return _points(self._name, key)
        axes: Sequence[Any] = [_points(self._name, piece) for piece in key]
        with numpy_dtype_promotion("standard"):
            axes = promote_dtypes(*axes)
        grids = jnp.meshgrid(*axes, indexing="ij", sparse=self._sparse)
        if self._sparse:
            return grids
        return jnp.stack(grids, 0) if grids else jnp.arange(0)


mgrid = _Grid(
    "mgrid",
    sparse=False,
    doc="""Coordinates of the points of a grid, as an array [axes, n, m, ...]. A slice for each axis defines the grid.

    A slice has the start, stop and step of `arange`. An imaginary step n * 1j makes n points that include both ends.

    >>> jnp.mgrid[0:2, 5:8]
    Array([[[0, 0, 0],
            [1, 1, 1]],
    <BLANKLINE>
           [[5, 6, 7],
            [5, 6, 7]]], dtype=int32)
    """,
)
ogrid = _Grid(
    "ogrid",
    sparse=True,
    doc="""Coordinates along each axis of a grid: one array for each axis, of size 1 along the other axes.

    The slices have the same meaning as those of `mgrid`.

    >>> jnp.ogrid[0:2, 5:8]
    [Array([[0],
           [1]], dtype=int32), Array([[5, 6, 7]], dtype=int32)]
    """,
)


class _Concatenator:
    """Concatenates the entries of its index: slices as ranges, arrays and numbers unchanged.

    A string as the first entry is a directive: "r" or "c" for a matrix of one row or column, or up to three integers:
    the axis, the least number of axes, and the position of the axis of a one-dimensional entry.
    """

    def __init__(self, name: str, axis: int, ndmin: int, place: int, example: str):
        self._name, self._defaults = name, (axis, ndmin, place)
        self.__doc__ = f"{type(self).__doc__}{example}"

    def __repr__(self) -> str:
        return f"<mpijax.numpy.{self._name}>"

    def __len__(self) -> int:
        return 0

    def __getitem__(self, key: Any) -> Any:
        entries = key if isinstance(key, tuple) else (key,)
        axis, ndmin, place = self._defaults
        matrix = -1
        if isinstance(entries[0], str):
            (axis, ndmin, place), matrix = self._directive(entries[0])
            entries = entries[1:]
        joined = jnp.concatenate([self._entry(entry, ndmin, place) for entry in entries], axis=axis)
        return jnp.expand_dims(joined, matrix) if matrix != -1 and joined.ndim == 1 else joined

    def _directive(self, text: str) -> tuple[Any, int]:
        if text in ("r", "c"):
            return self._defaults, "rc".index(text)
        try:
            given = [int(part) for part in text.split(",")[:3]]
        except ValueError as error:
            raise ValueError(f"could not understand directive {text!r}") from error
        return (*given, *self._defaults[len(given) :]), -1

    def _entry(self, entry: Any, ndmin: int, place: int) -> Any:
        if isinstance(entry, str):
            raise ValueError("string directive must be placed at the beginning")
        if isinstance(entry, slice):
            array, ndim = _points(self._name, entry), 0
        else:
            array = jnp.array(entry, copy=False)
            ndim = array.ndim
        array = jnp.array(array, copy=False, ndmin=ndmin)
        if place == -1 or ndmin <= ndim:
            return array
        # The new axes of size 1 are in front; `place` is the axis at which the old axes begin.
        shift = ndmin - abs(ndmin + place + 1) % ndmin
        axes = tuple(range(ndmin))
        return jnp.transpose(array, axes[shift:] + axes[:shift])


r_ = _Concatenator(
    "r_",
    axis=0,
    ndmin=1,
    place=-1,
    example="""
    >>> jnp.r_[1:4, 7, jnp.array([8, 9])]
    Array([1, 2, 3, 7, 8, 9], dtype=int32)
    """,
)
c_ = _Concatenator(
    "c_",
    axis=-1,
    ndmin=2,
    place=0,
    example="""
    >>> jnp.c_[1:4, jnp.array([7, 8, 9])]
    Array([[1, 7],
           [2, 8],
           [3, 9]], dtype=int32)
    """,
)


def ix_(*args: Any) -> tuple[Any, ...]:
    """Arrays that index the points of a grid: the k-th argument along axis k, with the other axes of size 1.

    Raises:
      ValueError: an argument does not have one axis.

    >>> rows, columns = jnp.ix_(jnp.array([0, 2]), jnp.array([1, 3]))
    >>> jnp.arange(12).reshape(3, 4)[rows, columns]
    Array([[ 1,  3],
           [ 9, 11]], dtype=int32)
    """
    arrays = ensure_arraylike_tuple("ix", args)
    meshes = []
    for i, a in enumerate(arrays):
        if a.ndim != 1:
            raise ValueError(f"Arguments to jax.numpy.ix_ must be 1-dimensional, got shape {a.shape}")
        if a.dtype == np.bool_:
            raise NotImplementedError("Boolean arguments to jax.numpy.ix_ are not implemented")
        shape = [1] * len(arrays)
        shape[i] = a.size
        meshes.append(lax.broadcast_in_dim(a, shape, (i,)) if a.size else jnp.zeros(shape, int))
    return tuple(meshes)
