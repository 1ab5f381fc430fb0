"""Sorting: sort, sort_key_val, top_k."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.lowering import HostCall
from mpijax.core.primitive import Primitive, Unsupported, registry
from mpijax.core.trace import typeof
from mpijax.ops.indexing import GatherDimensionNumbers, GatherScatterMode, gather
from mpijax.ops.moves import canonical_axis, numpy_ints, shape_of
from mpijax.ops.ordering import largest, permutation, sorted_values
from mpijax.ops.shapes import broadcast_in_dim, expand_dims
from mpijax.transforms.batching import move_dim
from mpijax.transforms.zeros import Zero

# ---------------------------------------------------------------- sort


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """Sort an array along an axis, or several arrays of equal shape together.

    -0.0 and 0.0 are equal, NaN goes last, complex numbers go by their real, then by their imaginary parts.

    Args:
      num_keys: by how many of the arrays to sort, the first one first; the others are permuted along.
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
    """Sort `keys` along an axis and permute `values` along with them."""
    dimension = canonical_axis(dimension, typeof(keys).ndim)
    k, v = sort_p.bind(keys, values, dimension=dimension, is_stable=is_stable, num_keys=1)
    return k, v


def _sort_type(*avals, dimension, is_stable, num_keys):
    if any(a.shape != avals[0].shape for a in avals):
        shapes = " ".join(str(a.shape) for a in avals)
        raise TypeError(f"Arguments to sort must have equal shapes, got: {shapes}")
    return list(avals)


def _sort_reference(*xs, dimension, is_stable, num_keys):
    if len(xs) == 1:
        out = sorted_values(xs[0], dimension)
        if out is not None:
            return [out]
    order = permutation(xs[:num_keys], dimension)
    if any(x.ndim > order.ndim for x in xs):
        return [
            np.take_along_axis(x, order.reshape(order.shape + (1,) * (x.ndim - order.ndim)), dimension)
            for x in xs
        ]
    return [np.take_along_axis(x, order, dimension) for x in xs]


def _sort_jvp(primals, tangents, *, dimension, is_stable, num_keys):
    """Sort positions along; tangents are read at them."""
    shape = shape_of(primals[0])
    kind = np.dtype(np.uint64 if max(shape, default=0) > np.iinfo(np.uint32).max else np.uint32)
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
    whole, dim = next((shape_of(x), d) for x, d in zip(args, dims, strict=True) if d is not None)
    kept = tuple(d for d in range(len(whole)) if d != dim)
    args = [
        broadcast_in_dim(x, whole, kept) if d is None else move_dim(x, d, dim)
        for x, d in zip(args, dims, strict=True)
    ]
    dimension += dim <= dimension
    outs = sort_p.bind(*args, dimension=dimension, is_stable=is_stable, num_keys=num_keys)
    return outs, [dim] * len(outs)


_NO_TRANSPOSE = Unsupported("sorting is not linear; its derivative is a gather, which has a transpose")

sort_p = Primitive(
    "sort",
    type_rule=_sort_type,
    reference=_sort_reference,
    lower=HostCall(_sort_reference),
    jvp=_sort_jvp,
    transpose=_NO_TRANSPOSE,
    batch=_sort_batch,
    multiple_results=True,
)

# ---------------------------------------------------------------- top_k


def top_k(operand: Any, k: int, *, axis: int = -1) -> list[Any]:
    """The k largest values along an axis, in descending order, and their positions (int32).

    Of equal values the one that comes first is taken first; 0.0 is larger than -0.0, NaN the largest.
    """
    k = operator.index(k)
    if k < 0:
        raise ValueError(f"k argument to top_k must be nonnegative, got {k}")
    return top_k_p.bind(operand, k=k, axis=canonical_axis(axis, typeof(operand).ndim))


def _top_k_type(operand, *, k, axis):
    shape = operand.shape
    if dtypes.issubdtype(operand.dtype, np.complexfloating):
        raise ValueError("top_k is not compatible with complex inputs.")
    if not shape:
        raise TypeError(f"top_k operand must have >= 1 dimension, got {shape}")
    if shape[axis] < k:
        raise ValueError(
            f"k argument to top_k must be no larger than size along axis; got {k=} with shape={list(shape)} "
            f"and {axis=}"
        )
    shape = (*shape[:axis], k, *shape[axis + 1 :])
    return [
        operand.update(shape=shape),
        operand.update(shape=shape, dtype=np.dtype(np.int32), weak_type=False),
    ]


def _top_k_reference(x, *, k, axis):
    order = largest(x, k, axis)
    return [np.take_along_axis(x, order, axis), order.astype(np.int32)]


def gather_positions(x: Any, positions: Any, axis: int) -> Any:
    """The elements of x at positions along an axis."""
    shape = shape_of(positions)
    index = registry["reshape"].bind(positions, new_sizes=(*shape, 1), dimensions=None, sharding=None)
    others = tuple(d for d in range(len(shape)) if d != axis)
    numbers = GatherDimensionNumbers((), (axis,), (axis,), others, others)
    return gather(x, index, numbers, (1,) * len(shape))


def _top_k_jvp(primals, tangents, *, k, axis):
    values, positions = top_k_p.bind(*primals, k=k, axis=axis)
    return [values, positions], [gather_positions(tangents[0], positions, axis), Zero.of_primal(positions)]


def _top_k_batch(axis_data, args, dims, *, k, axis):
    (dim,) = dims
    return top_k_p.bind(*args, k=k, axis=axis + (dim <= axis)), [dim, dim]


top_k_p = Primitive(
    "top_k",
    type_rule=_top_k_type,
    reference=_top_k_reference,
    lower=HostCall(_top_k_reference),
    jvp=_top_k_jvp,
    transpose=_NO_TRANSPOSE,
    batch=_top_k_batch,
    multiple_results=True,
)
