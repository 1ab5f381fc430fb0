"""Shared parts of operations' rules: constants of a given type, broadcasting and its transpose, batch axes.

Operations of other modules are looked up in the registry by name, so modules of rules need not import each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core.rules.registry import registry
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops.sum_casts import cast_sums
from mpijax.transforms.batching import move_dim
from mpijax.transforms.transpose import UndefPrimal
from mpijax.transforms.zeros import scalar_of_type


def const_like(x: Any, value: Any) -> Any:
    """A scalar of x's dtype, weakly typed if x is."""
    return scalar_of_type(value, typeof(x))


def full_like(x: Any, value: Any, shape: tuple[int, ...] | None = None) -> Any:
    """An array of x's dtype and shape, or of another shape, filled with `value`.

    An array of x's shape is split over Explicit mesh axes like x. If a sum of x is pending, only zeros can be.
    """
    scalar, aval = const_like(x, value), typeof(x)
    if shape is None and aval.shape and aval.split is not None and (value == 0 or not aval.split.unreduced):
        whole = registry["broadcast_in_dim"].bind(
            scalar, shape=aval.shape, broadcast_dimensions=(), sharding=aval.said_sharding
        )
        return cast_sums(whole, aval)
    return broadcast_to(scalar, aval.shape if shape is None else shape)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of an elementwise result; scalars and axes of size 1 match any size."""
    ranked = [s for s in shapes if s]
    if not ranked:
        return ()
    return tuple(next((d for d in dims if d != 1), 1) for dims in zip(*ranked, strict=True))


def broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    """Broadcast x, a scalar or an array of equal rank, to `shape`; x itself if it has that shape."""
    own = typeof(x).shape
    if own == shape:
        return x
    dims = tuple(range(len(shape))) if own else ()
    return registry["broadcast_in_dim"].bind(x, shape=shape, broadcast_dimensions=dims, sharding=None)


def unbroadcast(aval: ShapedArray, ct: Any) -> Any:
    """Sum a cotangent over the axes along which the operand of type `aval` was broadcast."""
    shape = typeof(ct).shape
    if shape == aval.shape:
        return ct
    if not aval.shape:
        return registry["reduce_sum"].bind(ct, axes=tuple(range(len(shape))), out_sharding=None)
    axes = tuple(i for i, (d, own) in enumerate(zip(shape, aval.shape, strict=True)) if d != own)
    total = registry["reduce_sum"].bind(ct, axes=axes, out_sharding=None)
    return registry["reshape"].bind(total, new_sizes=aval.shape, dimensions=None, sharding=None)


def is_linear(x: Any) -> bool:
    """Whether an argument of a transpose rule is linear."""
    return type(x) is UndefPrimal


def complement(ndim: int, axes) -> tuple:
    """The axes not in `axes`, as NumPy integers, because JAX prints them so."""
    return tuple(np.delete(np.arange(ndim), axes))


def expand_front(x: Any, ndim: int) -> Any:
    """Prepend axes of size 1 until x has `ndim` axes."""
    shape = typeof(x).shape
    new = ndim - len(shape)
    dims = tuple(np.arange(new, ndim))
    return registry["broadcast_in_dim"].bind(
        x, shape=(1,) * new + shape, broadcast_dimensions=dims, sharding=None
    )


def at_front(x: Any, dim: int | None, size: int) -> Any:
    """x with its batch axis first, repeated for all examples if it has none.

    >>> mpijax.interpreters.batching.bdim_at_front(jnp.zeros((2, 5)), 1, 5).shape
    (5, 2)
    """
    return repeat_at(x, 0, size) if dim is None else move_dim(x, dim, 0)


def repeat_at(x: Any, axis: int, size: int) -> Any:
    """x repeated along a new axis."""
    shape = list(typeof(x).shape)
    shape.insert(axis, size)
    dims = complement(len(shape), axis)
    return registry["broadcast_in_dim"].bind(x, shape=tuple(shape), broadcast_dimensions=dims, sharding=None)


def expand_back(x: Any, ndim: int) -> Any:
    """Append axes of size 1 until x has `ndim` axes."""
    shape = typeof(x).shape
    dims = tuple(range(len(shape)))
    shape = shape + (1,) * (ndim - len(shape))
    return registry["broadcast_in_dim"].bind(x, shape=shape, broadcast_dimensions=dims, sharding=None)
