"""Static slices: slice, slice_in_dim, index_in_dim, split, and its inverse concatenate."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax.core.programs.jaxpr import Eqn
from mpijax.core.rules import shape_rules, sum_types
from mpijax.core.rules import sharding_types as types
from mpijax.core.rules.index_maps import Elements, Index
from mpijax.core.rules.lowering import Decompose, Structural, ViewKind, Writes
from mpijax.core.rules.primitive import Primitive
from mpijax.core.shapes.dimensions import dimension
from mpijax.core.types.array_api import Array
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.axes import canonical_axis
from mpijax.core.types.typeof import typeof
from mpijax.ops.families import check_same_dtypes
from mpijax.ops.rules import const_like, is_linear
from mpijax.ops.shapes.moves import NumpyInt, check_shapelike, movement, shape_of, without
from mpijax.ops.shapes.padding import pad
from mpijax.ops.shapes.reshape import squeeze
from mpijax.transforms import key_reuse
from mpijax.transforms.batching import batch_at
from mpijax.transforms.zeros import Zero, instantiate

# ---------------------------------------------------------------- slice


def slice(
    operand: Any,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> Any:
    """`operand[start:limit:stride, ...]` with one start, limit and stride (1 by default) for each axis.

    >>> lax.slice(jnp.arange(10), (1,), (8,), (3,))
    Array([1, 4, 7], dtype=int32)
    """
    return slice_p.bind(
        operand,
        start_indices=tuple(start_indices),
        limit_indices=tuple(limit_indices),
        strides=None if strides is None else tuple(strides),
    )


def slice_in_dim(
    operand: Any, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0
) -> Any:
    """`operand[start:limit:stride]` along one axis; negative indices count from its end.

    >>> lax.slice_in_dim(jnp.arange(10), 1, -2, 3)
    Array([1, 4, 7], dtype=int32)
    """
    shape = shape_of(operand)
    size = shape[axis]
    start = 0 if start_index is None else dimension(start_index)
    limit = size if limit_index is None else dimension(limit_index)
    starts, limits, strides = [0] * len(shape), list(shape), [1] * len(shape)
    starts[axis] = start + size if start < 0 else start
    limits[axis] = limit + size if limit < 0 else limit
    strides[axis] = dimension(stride)
    return slice(operand, starts, limits, strides)


def index_in_dim(operand: Any, index: int, axis: int = 0, keepdims: bool = True) -> Any:
    """`operand[index]` along one axis; the axis stays with size 1 if `keepdims`.

    >>> lax.index_in_dim(jnp.array([[1, 2], [3, 4]]), -1, axis=1, keepdims=False)
    Array([2, 4], dtype=int32)
    """
    index, axis = dimension(index), int(axis)
    size = shape_of(operand)[axis]
    wrapped = index + size if index < 0 else index
    if not 0 <= wrapped < size:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {size}")
    result = slice_in_dim(operand, wrapped, wrapped + 1, 1, axis)
    return result if keepdims else squeeze(result, (axis,))


def _slice_shape(operand, *, start_indices, limit_indices, strides):
    shape = operand.shape
    check_shapelike("slice", "start_indices", start_indices)
    check_shapelike("slice", "limit_indices", limit_indices)
    if operand.ndim != len(start_indices):
        raise TypeError(
            "slice start_indices must have length equal to the number of dimensions of the operand, got "
            "indices "
            f"{start_indices} for operand shape {shape}."
        )
    if len(start_indices) != len(limit_indices):
        raise TypeError(
            "slice limit_indices must have the same length as start_indices, got start_indices "
            f"{start_indices} and limit_indices {limit_indices}."
        )
    if any(limit > d for limit, d in zip(limit_indices, shape, strict=True)):
        raise TypeError(
            "slice limit_indices must be less than or equal to operand shape, got limit_indices "
            f"{limit_indices} for operand shape {shape}."
        )
    if any(limit < start for limit, start in zip(limit_indices, start_indices, strict=True)):
        raise TypeError(
            "slice limit_indices must be greater than or equal to start_indices, got start_indices "
            f"{start_indices} and limit_indices {limit_indices}."
        )
    extent = tuple(limit - start for limit, start in zip(limit_indices, start_indices, strict=True))
    if strides is None:
        return extent
    check_shapelike("slice", "strides", strides)
    if len(strides) != operand.ndim:
        raise TypeError(
            "slice strides must have length equal to the number of dimensions of the operand, got strides "
            f"{strides} for operand shape {shape}."
        )
    if any(s <= 0 for s in strides):
        raise TypeError(f"slice strides must be positive, got {strides}")
    return tuple((d + s - 1) // s for d, s in zip(extent, strides, strict=True))


def _slice_reference(x, *, start_indices, limit_indices, strides):
    steps = strides or (1,) * len(start_indices)
    return x[tuple(map(builtins.slice, start_indices, limit_indices, steps))].copy()


def _slice_transpose(ct, operand, *, start_indices, limit_indices, strides):
    """Pads the cotangent with zeros to the operand's shape."""
    full = operand.aval.shape
    dense = strides is None or all(s == 1 for s in strides)
    config = []
    for d, (start, limit, size) in enumerate(zip(start_indices, limit_indices, full, strict=True)):
        stride = 1 if dense else strides[d]
        length = shape_of(ct)[d]
        end = limit if dense else start + (1 + (length - 1) * stride if length else 0)
        config.append((start, NumpyInt(size - end), 0 if dense else NumpyInt(stride - 1)))
    return [pad(ct, const_like(ct, 0), config)]


def _slice_batch(axis, x, dim, *, start_indices, limit_indices, strides):
    starts, limits = list(start_indices), list(limit_indices)
    starts.insert(dim, 0)
    limits.insert(dim, axis.size)
    if strides is not None:
        strides = list(strides)
        strides.insert(dim, 1)
    return slice(x, starts, limits, strides), dim


def _slice_keys(eqn: Eqn) -> key_reuse.Signature:
    """The slice is a new key, and its part of the operand is consumed."""
    params, mask = eqn.params, np.zeros(eqn.invars[0].aval.shape, bool)
    strides = params["strides"] or (1,) * mask.ndim
    mask[tuple(map(builtins.slice, params["start_indices"], params["limit_indices"], strides))] = True
    return key_reuse.Signature({0: True if mask.all() else mask}, frozenset({0}))


def _slice_element(r: Elements, index: Index, avals: Sequence[Any], params: dict[str, Any]) -> Any:
    strides = params["strides"] or (1,) * len(index)
    return r.read(0, tuple(i * s + b for i, s, b in zip(index, strides, params["start_indices"], strict=True)))


def _slice_start(params: dict[str, Any]) -> Sequence[int] | None:
    return None if any(k != 1 for k in params["strides"] or ()) else params["start_indices"]


slice_p = movement(
    "slice",
    shape=_slice_shape,
    reference=_slice_reference,
    lower=Structural(_slice_element, ViewKind.STRIDED, start=_slice_start),
    transpose=_slice_transpose,
    batch=_slice_batch,
    sharding=shape_rules.slice_,
    keys=_slice_keys,
)

# ---------------------------------------------------------------- concatenate


def concatenate(operands: Any, dimension: int) -> Any:
    """Concatenate arrays of equal dtype along an axis; their other axes have equal sizes.

    >>> lax.concatenate([jnp.array([1, 2]), jnp.array([3])], dimension=0)
    Array([1, 2, 3], dtype=int32)
    """
    if len(operands) == 0:
        raise ValueError("concatenate requires a non-empty sequences of arrays")
    if len(operands) == 1 and isinstance(operands[0], Array):
        return operands[0]
    return concatenate_p.bind(*operands, dimension=dimension)


def _concatenate_type(*operands, dimension):
    shapes = [x.shape for x in operands]
    listed = ", ".join(map(str, shapes))
    if len({len(s) for s in shapes}) != 1:
        raise TypeError(f"Cannot concatenate arrays with different numbers of dimensions: got {listed}.")
    if not 0 <= dimension < len(shapes[0]):
        raise TypeError(f"concatenate dimension out of bounds: dimension {dimension} for shapes {listed}.")
    if len({without(s, dimension) for s in shapes}) != 1:
        raise TypeError(
            "Cannot concatenate arrays with shapes that differ in dimensions other than the one being "
            "concatenated: "
            f"concatenating along dimension {dimension} for shapes {listed}."
        )
    check_same_dtypes("concatenate", operands)
    shape = list(shapes[0])
    shape[dimension] = sum(s[dimension] for s in shapes)
    return ShapedArray(tuple(shape), operands[0].dtype, all(x.weak_type for x in operands))


def _concatenate_jvp(primals, tangents, *, dimension):
    out = concatenate_p.bind(*primals, dimension=dimension)
    return out, concatenate_p.bind(*map(instantiate, tangents), dimension=dimension)


def _concatenate_transpose(ct, *operands, dimension):
    sizes = tuple((x.aval if is_linear(x) else typeof(x)).shape[dimension] for x in operands)
    parts = split(ct, sizes, dimension)
    return [part if is_linear(x) else None for part, x in zip(parts, operands, strict=True)]


def _concatenate_batch(axis, args, dims, *, dimension):
    args = [batch_at(x, d, 0, axis) for x, d in zip(args, dims, strict=True)]
    return concatenate(args, dimension + 1), 0


def _concatenate_element(r: Elements, index: Index, avals: Sequence[Any], params: dict[str, Any]) -> Any:
    axis = params["dimension"]
    ends = list(itertools.accumulate(a.shape[axis] for a in avals))

    def part(k: int) -> Callable[[], Any]:
        at = ends[k] - avals[k].shape[axis]
        return lambda: r.read(k, tuple(i - at if d == axis else i for d, i in enumerate(index)))

    return r.choice(index[axis], tuple(ends[:-1]), tuple(map(part, range(len(ends)))))


concatenate_p = Primitive(
    "concatenate",
    type_rule=_concatenate_type,
    reference=lambda *xs, dimension: np.concatenate(xs, dimension),
    lower=Structural(_concatenate_element, writes=Writes.CONCATENATE),
    jvp=_concatenate_jvp,
    transpose=_concatenate_transpose,
    batch=_concatenate_batch,
    sharding=shape_rules.concatenate,
    keys=key_reuse.parts,
)

# ---------------------------------------------------------------- split


def split(operand: Any, sizes: Sequence[int], axis: int = 0) -> list[Any]:
    """Split an array along an axis into parts of the given sizes.

    >>> lax.split(jnp.arange(5), (2, 3))
    [Array([0, 1], dtype=int32), Array([2, 3, 4], dtype=int32)]
    """
    ndim = typeof(operand).ndim
    return split_p.bind(operand, sizes=tuple(sizes), axis=canonical_axis(axis, ndim))


def _split_type(operand, *, sizes, axis):
    if not 0 <= axis < operand.ndim:
        raise ValueError(f"split along axis {axis} of {operand.str_short(True)}")
    if any(s < 0 for s in sizes):
        raise ValueError(f"Sizes passed to split must be nonnegative, got {list(sizes)}")
    if operand.shape[axis] != sum(sizes):
        raise ValueError(
            f"Sum of sizes {sum(sizes)} must be equal to dimension {axis} of the operand shape "
            f"{list(operand.shape)}"
        )
    return [operand.update(shape=(*operand.shape[:axis], size, *operand.shape[axis + 1 :])) for size in sizes]


def _bounds(sizes):
    ends = np.cumsum(sizes).tolist()
    return [(end - size, end) for size, end in zip(sizes, ends, strict=True)]


def _split_reference(x, *, sizes, axis):
    before = (builtins.slice(None),) * axis
    return [x[(*before, builtins.slice(start, stop))].copy() for start, stop in _bounds(sizes)]


def _split_into_slices(x, *, sizes, axis):
    shape = shape_of(x)
    parts = []
    for start, stop in _bounds(sizes):
        starts = [start if d == axis else 0 for d in range(len(shape))]
        limits = [stop if d == axis else size for d, size in enumerate(shape)]
        parts.append(slice_p.bind(x, start_indices=tuple(starts), limit_indices=tuple(limits), strides=None))
    return parts


def _split_transpose(cts, operand, *, sizes, axis):
    if all(type(ct) is Zero for ct in cts):
        return [Zero(operand.aval)]
    return [concatenate([instantiate(ct) for ct in cts], axis)]


def _split_batch(axis_data, args, dims, *, sizes, axis):
    (x,), (dim,) = args, dims
    return split(x, sizes, axis + 1 if axis >= dim else axis), [dim] * len(sizes)


def _split_jvp(primals, tangents, **params):
    return split_p.bind(*primals, **params), split_p.bind(*tangents, **params)


split_p = Primitive(
    "split",
    type_rule=_split_type,
    reference=_split_reference,
    lower=Decompose(_split_into_slices),
    jvp=_split_jvp,
    transpose=_split_transpose,
    batch=_split_batch,
    multiple_results=True,
    sharding_type=types.by_factors(shape_rules.split),
    sums=sum_types.linear,
    keys=key_reuse.parts,
)
