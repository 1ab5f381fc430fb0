"""Sorting: sort, sort_key_val."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core.rules.factors import whole_along
from mpijax.core.rules.lowering import Decompose
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.rules.registry import registry
from mpijax.core.shapes.dimensions import is_longer
from mpijax.core.types.axes import canonical_axis
from mpijax.core.types.typeof import typeof
from mpijax.ops.callbacks.ordering import permutation
from mpijax.ops.indexing.gather import GatherDimensionNumbers, GatherScatterMode, gather
from mpijax.ops.shapes.moves import numpy_ints, shape_of
from mpijax.ops.shapes.reshape import expand_dims
from mpijax.ops.sorting import over_ranks as sort_over_ranks
from mpijax.ops.sorting.rows import sort_rows_p
from mpijax.transforms.batching import batch_at, move_dim
from mpijax.transforms.zeros import Zero

# ---------------------------------------------------------------- sort


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """Sort an array along an axis, or several arrays of equal shape together.

    -0.0 and 0.0 are equal, NaN comes last, and complex numbers are ordered by real, then imaginary part.

    Args:
      num_keys: number of arrays to sort by, the first one being most significant; the others are permuted likewise.

    >>> lax.sort((jnp.array([2, 1, 2]), jnp.array([5, 6, 4])), num_keys=2)
    (Array([1, 2, 2], dtype=int32), Array([6, 4, 5], dtype=int32))
    """
    if isinstance(operand, (list, tuple)):
        if not operand:
            raise TypeError("Sort requires at least one operand")
        if not 1 <= num_keys <= len(operand):
            raise ValueError(f"{num_keys=} must be between 1 and {len(operand)=}")
        dimension = canonical_axis(dimension, typeof(operand[0]).ndim)
        return tuple(sort_p.bind(*operand, dimension=dimension, is_stable=is_stable, num_keys=num_keys))
    if num_keys != 1:
        raise ValueError(f"{num_keys=} must equal 1 for a single operand.")
    dimension = canonical_axis(dimension, typeof(operand).ndim)
    return sort_p.bind(operand, dimension=dimension, is_stable=is_stable, num_keys=num_keys)[0]


def sort_key_val(keys: Any, values: Any, dimension: int = -1, is_stable: bool = True) -> tuple[Any, Any]:
    """Sort `keys` along an axis, and permute `values` likewise.

    >>> lax.sort_key_val(jnp.array([2, 3, 1]), jnp.array([20, 30, 10]))
    (Array([1, 2, 3], dtype=int32), Array([10, 20, 30], dtype=int32))
    """
    dimension = canonical_axis(dimension, typeof(keys).ndim)
    k, v = sort_p.bind(keys, values, dimension=dimension, is_stable=is_stable, num_keys=1)
    return k, v


def _sort_type(*avals, dimension, is_stable, num_keys):
    if not 1 <= num_keys <= len(avals) or not 0 <= dimension < avals[0].ndim:
        raise ValueError(f"sort by {num_keys} of {len(avals)} operands, along axis {dimension} of {avals[0]}")
    if any(a.shape != avals[0].shape for a in avals):
        shapes = " ".join(str(a.shape) for a in avals)
        raise TypeError(f"Arguments to sort must have equal shapes, got: {shapes}")
    return list(avals)


def _sort_reference(*xs, dimension, is_stable, num_keys):
    order = permutation(xs[:num_keys], dimension)
    behind = [order.reshape(order.shape + (1,) * (x.ndim - order.ndim)) for x in xs]
    return [np.take_along_axis(x, at, dimension) for x, at in zip(xs, behind, strict=True)]


def _by_rows(*xs, dimension, is_stable, num_keys):
    """Moves the axis to the end and back. The sort is always stable, whatever `is_stable` says."""
    last = len(shape_of(xs[0])) - 1
    rows = sort_rows_p.bind(*(move_dim(x, dimension, last) for x in xs), num_keys=num_keys)
    return [move_dim(x, last, dimension) for x in rows]


def _sort_jvp(primals, tangents, *, dimension, is_stable, num_keys):
    """Sort positions together with the keys; gather tangents at them."""
    shape = shape_of(primals[0])
    kind = np.dtype(np.uint64 if any(is_longer(d, np.iinfo(np.uint32).max) for d in shape) else np.uint32)
    iota = registry["iota"].bind(dtype=kind, shape=shape, dimension=dimension, sharding=None)
    *outs, order = sort_p.bind(*primals, iota, dimension=dimension, is_stable=is_stable, num_keys=num_keys)
    others = numpy_ints(d for d in range(len(shape)) if d != dimension)
    numbers = GatherDimensionNumbers((), (dimension,), (dimension,), others, others)
    index = expand_dims(order, (len(shape),))
    mode = GatherScatterMode.PROMISE_IN_BOUNDS
    return outs, [
        Zero.of_primal(p) if type(t) is Zero else gather(t, index, numbers, (1,) * len(shape), mode=mode)
        for p, t in zip(primals, tangents, strict=True)
    ]


def _sort_batch(axis, args, dims, *, dimension, is_stable, num_keys):
    dim = next(d for d in dims if d is not None)
    args = [batch_at(x, d, dim, axis) for x, d in zip(args, dims, strict=True)]
    dimension += dim <= dimension
    outs = sort_p.bind(*args, dimension=dimension, is_stable=is_stable, num_keys=num_keys)
    return outs, [dim] * len(outs)


_NO_TRANSPOSE = Unsupported("sorting is not linear; its derivative is a gather, which is linear")

sort_p = Primitive(
    "sort",
    type_rule=_sort_type,
    reference=_sort_reference,
    lower=Decompose(_by_rows),
    jvp=_sort_jvp,
    transpose=_NO_TRANSPOSE,
    batch=_sort_batch,
    multiple_results=True,
    sharding=whole_along(
        "dimension", "Arguments to sort must be unsharded over the sorting dimension", better=sort_over_ranks.plan
    ),
)
