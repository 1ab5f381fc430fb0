"""Operations that lower layers apply: tracing and transformations use these functions instead of primitives.

`mpijax/wiring.py` hands down this module as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpijax.core.types.avals import ShapedArray
from mpijax.ops.ad_ops import add_any_p, copy_p, stop_gradient_p
from mpijax.ops.collectives.pending_sums import reduced_vary_cast
from mpijax.ops.collectives.varying import pvary, pvary_p
from mpijax.ops.elementwise.convert import convert_element_type_p
from mpijax.ops.indexing.slicing import slice_p, split_p
from mpijax.ops.reductions.standard import reduce_sum_p
from mpijax.ops.shapes.reshape import broadcast_in_dim_p, reshape_p, squeeze_p, transpose_p
from mpijax.ops.sum_casts import cast_sums

__all__ = [
    "add_tangents", "broadcast", "cast_sums", "constant", "converted", "copied", "first_along", "pvary",
    "reduced_vary_cast", "reshaped", "split", "summed", "transposed", "varying",
]  # fmt: skip

# Called as often as there are operations, so without a call in between.
add_tangents = add_any_p.bind
"""The sum of two tangents or cotangents of one value."""

constant = stop_gradient_p.bind
"""An array with derivative zero."""

copied = copy_p.bind
"""An array in memory of its own."""


def converted(x: Any, aval: ShapedArray) -> Any:
    """A value converted to dtype and weak type of `aval`."""
    return convert_element_type_p.bind(x, new_dtype=aval.dtype, weak_type=aval.weak_type, sharding=None)


def broadcast(x: Any, shape: tuple[int, ...], axes: tuple[int, ...], sharding: Any) -> Any:
    """`x` in a shape; its axis i becomes axis `axes[i]`. sharding: of the result over Explicit mesh axes, or None."""
    return broadcast_in_dim_p.bind(x, shape=shape, broadcast_dimensions=axes, sharding=sharding)


def reshaped(x: Any, shape: tuple[int, ...]) -> Any:
    """The elements of `x`, in row-major order, in a shape."""
    return reshape_p.bind(x, new_sizes=shape, dimensions=None, sharding=None)


def transposed(x: Any, order: Sequence[int]) -> Any:
    """Axis `order[i]` of `x` as axis i."""
    return transpose_p.bind(x, permutation=tuple(order))


def first_along(x: Any, axis: int, shape: tuple[int, ...]) -> Any:
    """The first slice along an axis, without that axis. shape: of `x`."""
    limits = (*shape[:axis], 1, *shape[axis + 1 :])
    first = slice_p.bind(x, start_indices=(0,) * len(shape), limit_indices=limits, strides=None)
    return squeeze_p.bind(first, dimensions=(axis,))


def split(x: Any, sizes: Sequence[int], axis: int) -> Any:
    """The parts of `x`, of these sizes along an axis."""
    return split_p.bind(x, sizes=tuple(sizes), axis=axis)


def summed(x: Any, axis: int) -> Any:
    """The sum of `x` along an axis."""
    return reduce_sum_p.bind(x, axes=(axis,), out_sharding=None)


def varying(x: Any, axes: tuple[Any, ...]) -> Any:
    """`x`, typed as varying over mesh axes."""
    return pvary_p.bind(x, axes=axes)
