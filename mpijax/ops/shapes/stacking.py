"""Defines stack, its inverse unstack, and tile, which are single equations in JAX's Jaxprs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax.core.base.errors import ShardingTypeError
from mpijax.core.rules import sharding_rules as rules
from mpijax.core.rules import sharding_types as types
from mpijax.core.rules.lowering import Decompose
from mpijax.core.rules.primitive import Primitive
from mpijax.core.sharding.cuts import without as without_axes
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.axes import canonical_axis
from mpijax.ops.elementwise.convert import stage
from mpijax.ops.families import check_same_dtypes
from mpijax.ops.indexing.slicing import concatenate, slice_in_dim
from mpijax.ops.reductions.standard import reduce_sum
from mpijax.ops.rules import is_linear
from mpijax.ops.shapes.moves import movement, shape_of, without
from mpijax.ops.shapes.reshape import broadcast, broadcast_in_dim, expand_dims, reshape, squeeze
from mpijax.transforms import key_reuse
from mpijax.transforms.batching import move_dim
from mpijax.transforms.zeros import Zero, instantiate

# ---------------------------------------------------------------- stack


def stack(operands: Sequence[Any], axis: int = 0) -> Any:
    """Join arrays of equal shape and dtype along a new axis.

    >>> lax.stack([jnp.array([1, 2]), jnp.array([3, 4])], axis=1)
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    if not len(operands):
        raise ValueError("stack expects at least one operand, got 0.")
    operands = [stage(x) for x in operands]
    return stack_p.bind(*operands, axis=canonical_axis(axis, operands[0].ndim + 1))


def _stack_type(*operands, axis):
    shapes = [x.shape for x in operands]
    if len(set(shapes)) != 1:
        raise ValueError(f"All input arrays must have the same shape. Got {', '.join(map(str, shapes))}.")
    check_same_dtypes("stack", operands)
    if not 0 <= axis <= len(shapes[0]):
        raise ValueError(f"stack along axis {axis} of arrays of shape {shapes[0]}")
    shape = (*shapes[0][:axis], len(operands), *shapes[0][axis:])
    return ShapedArray(shape, operands[0].dtype, all(x.weak_type for x in operands))


def _stack_by_concatenation(*operands, axis):
    return concatenate([expand_dims(x, (axis,)) for x in operands], axis)


def _stack_jvp(primals, tangents, *, axis):
    return stack_p.bind(*primals, axis=axis), stack_p.bind(*map(instantiate, tangents), axis=axis)


def _stack_transpose(ct, *operands, axis):
    parts = unstack(ct, axis)
    return [part if is_linear(x) else None for part, x in zip(parts, operands, strict=True)]


def _stack_batch(axis_data, args, dims, *, axis):
    first = dims[0]
    if first is not None and all(dim == first for dim in dims):
        if axis <= first:
            return stack(args, axis), first + 1
        return stack(args, axis + 1), first
    args = [
        broadcast(x, (axis_data.size,)) if dim is None else move_dim(x, dim, 0)
        for x, dim in zip(args, dims, strict=True)
    ]
    return stack(args, axis + 1), 0


stack_p = Primitive(
    "stack",
    type_rule=_stack_type,
    reference=lambda *xs, axis: np.stack(xs, axis),
    lower=Decompose(_stack_by_concatenation),
    jvp=_stack_jvp,
    transpose=_stack_transpose,
    batch=_stack_batch,
    keys=key_reuse.parts,
)

# ---------------------------------------------------------------- unstack


def unstack(x: Any, axis: int = 0) -> tuple[Any, ...]:
    """The slices of an array along an axis, with that axis removed.

    >>> lax.unstack(jnp.array([[1, 2], [3, 4]]))
    (Array([1, 2], dtype=int32), Array([3, 4], dtype=int32))
    """
    x = stage(x)
    return tuple(unstack_p.bind(x, axis=canonical_axis(axis, x.ndim)))


def _unstack_type(operand, *, axis):
    if not 0 <= axis < operand.ndim:
        raise ValueError(f"unstack along axis {axis} of {operand.str_short(True)}")
    return [operand.update(shape=without(operand.shape, axis))] * operand.shape[axis]


def _unstack_into_slices(x, *, axis):
    return [squeeze(slice_in_dim(x, i, i + 1, axis=axis), (axis,)) for i in range(shape_of(x)[axis])]


def _unstack_jvp(primals, tangents, *, axis):
    return unstack_p.bind(*primals, axis=axis), unstack_p.bind(*tangents, axis=axis)


def _unstack_transpose(cts, operand, *, axis):
    if all(type(ct) is Zero for ct in cts):
        return [Zero(operand.aval)]
    return [stack([instantiate(ct) for ct in cts], axis)]


def _unstack_batch(_axis, args, dims, *, axis):
    (x,), (dim,) = args, dims
    moved = dim - 1 if axis < dim else dim
    parts = unstack(x, axis if axis < dim else axis + 1)
    return list(parts), [moved] * len(parts)


def _unstack_sharding_type(s: types.TypedOperation) -> Sequence[types.Axes]:
    axis = s.params["axis"]
    if s.axes()[axis]:
        raise ShardingTypeError(
            f"unstack operand cannot be sharded on the unstacking axis {axis}. Got operand "
            f"type={s.types[0].str_short(True)}. Unshard that axis first, with jax.sharding.reshard."
        )
    return types.decomposed(s)


unstack_p = Primitive(
    "unstack",
    type_rule=_unstack_type,
    reference=lambda x, axis: [part.copy() for part in np.moveaxis(x, axis, 0)],
    lower=Decompose(_unstack_into_slices),
    jvp=_unstack_jvp,
    transpose=_unstack_transpose,
    batch=_unstack_batch,
    multiple_results=True,
    sharding_type=_unstack_sharding_type,
    keys=key_reuse.parts,
)

# ---------------------------------------------------------------- tile


def tile(operand: Any, reps: Sequence[int]) -> Any:
    """Repeat a whole array `reps[i]` times along each axis i.

    >>> lax.tile(jnp.array([1, 2]), (3,))
    Array([1, 2, 1, 2, 1, 2], dtype=int32)
    """
    return tile_p.bind(operand, reps=tuple(reps))


def _tile_shape(operand, *, reps):
    if operand.ndim != len(reps):
        raise TypeError(
            "reps length must be equal to the ndim of x, got "
            f"len(reps)={len(reps)} and x.ndim={operand.ndim}."
        )
    return tuple(r * n for r, n in zip(reps, operand.shape, strict=True))


def _interleaved(reps, shape) -> tuple[int, ...]:
    return tuple(size for pair in zip(reps, shape, strict=True) for size in pair)


def _tile_by_broadcast(x, *, reps):
    shape = shape_of(x)
    repeated = broadcast_in_dim(x, _interleaved(reps, shape), range(1, 2 * len(shape), 2))
    return reshape(repeated, tuple(r * n for r, n in zip(reps, shape, strict=True)))


def _tile_transpose(ct, operand, *, reps):
    """The sum over the copies."""
    copies = reshape(ct, _interleaved(reps, operand.aval.shape))
    return [reduce_sum(copies, tuple(range(0, 2 * len(reps), 2)))]


def _tile_sharding(s: rules.Operation) -> rules.Plan | None:
    """Along a split axis, every rank gets an equal part of the result, and reads the rows that it repeats.

    If a part has at least as many rows as the operand, the axis is gathered.
    """
    [shape], [cuts], reps = s.shapes, s.cuts, s.params["reps"]
    repeated = [d for d, copies in enumerate(reps) if copies != 1]
    if not any(cuts[d] is not None and shape[d] and reps[d] for d in repeated):
        return None
    if len(repeated) > 1:
        return rules.Plan([], [], s.params, whole=lambda x: _along_one_by_one(x, reps))
    [dim] = repeated
    cut, copies = cuts[dim], reps[dim]
    assert cut is not None
    if copies < cut.parts:
        return rules.Plan([], [], s.params, whole=lambda x: concatenate([x] * copies, dim))
    target, gathered = s.even(copies * shape[dim], cut.axes), without_axes(cuts, {dim})
    low, high = s.span(target)

    def program(x: Any) -> Any:
        first = low % shape[dim]
        local = (*reps[:dim], -(-(first + high - low) // shape[dim]), *reps[dim + 1 :])
        return slice_in_dim(tile(x, local), first, first + high - low, axis=dim)

    return rules.Plan([gathered], [(*cuts[:dim], target, *cuts[dim + 1 :])], s.params, program=program)


def _along_one_by_one(x: Any, reps: Sequence[int]) -> Any:
    """An array tiled along one axis after the other."""
    for d, copies in enumerate(reps):
        x = tile(x, (*(1,) * d, copies, *(1,) * (len(reps) - d - 1)))
    return x


def _tile_batch(_axis, x, dim, *, reps):
    return tile(x, (*reps[:dim], 1, *reps[dim:])), dim


def _tile_sharding_type(s: types.TypedOperation) -> Sequence[types.Axes]:
    for d, (names, copies) in enumerate(zip(s.axes(), s.params["reps"], strict=True)):
        if names and copies != 1:
            raise ShardingTypeError(
                f"Operand cannot be sharded on dimension {d} when the tiling is non-trivial. Got input type: "
                f"{s.types[0].str_short()} with reps: {s.params['reps']}. Unshard that axis "
                "first, with jax.sharding.reshard."
            )
    return types.decomposed(s)


tile_p = movement(
    "tile",
    shape=_tile_shape,
    reference=lambda x, reps: np.tile(x, reps),
    transpose=_tile_transpose,
    batch=_tile_batch,
    lower=Decompose(_tile_by_broadcast),
    sharding=_tile_sharding,
    sharding_type=_tile_sharding_type,
    keys=None,
)
