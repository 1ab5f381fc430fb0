"""Pytrees of arrays as one vector, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.trees import tree
from mpijax.core.types.array_api import Array

__all__ = ["ravel_pytree"]


def ravel_pytree(pytree: Any) -> tuple[Array, Callable[[Array], Any]]:
    """All elements of a pytree as a vector, leaf after leaf, and the function that makes such a pytree of a
    vector.

    The vector has the dtype to which the leaves' dtypes promote; an empty pytree gives float32[0]. When all
    leaves have one dtype, the returned function takes vectors of any dtype, else of that dtype only.

    >>> vector, unravel = mpijax.flatten_util.ravel_pytree({"a": jnp.array([1.0, 2.0]), "b": 3.0})
    >>> vector, unravel(10 * vector)
    (Array([1., 2., 3.], dtype=float32), {'a': Array([10., 20.], dtype=float32), 'b': Array(30., dtype=float32)})
    """
    leaves, structure = tree.tree_flatten(pytree)
    if not leaves:
        return lax.full([0], 0, "float32"), _Unravel(structure, (), None, None)
    kinds = [dtypes.dtype(x) for x in leaves]
    to = dtypes.result_type(*kinds)
    shapes = tuple(np.shape(x) for x in leaves)
    mixed = any(kind != to for kind in kinds)
    if mixed:
        leaves = [lax.convert_element_type(x, to) for x in leaves]
    vector = lax.concatenate([lax.reshape(x, (np.size(x),)) for x in leaves], dimension=0)
    return vector, _Unravel(structure, shapes, tuple(kinds) if mixed else None, to)


class _Unravel:
    """From a vector to a pytree. Compares by what it does, so that `jit` may take it as a static argument."""

    def __init__(self, structure, shapes, kinds, to):
        self._key = structure, shapes, kinds, to

    def __call__(self, vector: Array) -> Any:
        structure, shapes, kinds, to = self._key
        if not shapes:
            return tree.tree_unflatten(structure, [])
        if kinds is not None and dtypes.dtype(vector) != to:
            raise TypeError(
                f"unravel function given array of dtype {dtypes.dtype(vector)}, but expected dtype {to}"
            )
        sizes = tuple(int(np.prod(shape)) for shape in shapes)
        if np.shape(vector) != (sum(sizes),):  # type: ignore[call-overload]
            raise ValueError(
                f"unravel function given array of shape {np.shape(vector)}, but expected shape "  # type: ignore[call-overload]
                f"{(sum(sizes),)}"
            )
        pieces = [x.reshape(shape) for x, shape in zip(lax.split(vector, sizes), shapes, strict=True)]
        if kinds is not None:
            pieces = [lax.convert_element_type(x, kind) for x, kind in zip(pieces, kinds, strict=True)]
        return tree.tree_unflatten(structure, pieces)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unravel) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)
