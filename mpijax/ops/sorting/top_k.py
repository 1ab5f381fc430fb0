"""Defines top_k: the largest elements along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base.errors import JaxRuntimeError
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules import sharding_rules as rules
from mpijax.core.rules.factors import whole_along
from mpijax.core.rules.lowering import Native
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.rules.registry import registry
from mpijax.core.shapes.dimensions import DimExpr, dimension
from mpijax.core.sharding.cuts import Cut, without
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.axes import canonical_axis
from mpijax.core.types.typeof import typeof
from mpijax.ops.callbacks.ordering import largest
from mpijax.ops.collectives.gather_scatter import all_gather
from mpijax.ops.indexing.gather import GatherDimensionNumbers, gather
from mpijax.ops.indexing.slicing import concatenate, slice_in_dim
from mpijax.ops.rules import const_like
from mpijax.ops.shapes.moves import shape_of
from mpijax.ops.shapes.padding import pad
from mpijax.transforms.zeros import Zero

NOT_LINEAR = Unsupported("top_k is not linear; its derivative is a gather, which is linear")


def top_k(operand: Any, k: int, *, axis: int = -1) -> list[Any]:
    """The k largest values along an axis, in descending order, and their positions (int32).

    Equal values are returned in order of position; 0.0 is larger than -0.0, and NaN is largest.

    >>> lax.top_k(jnp.array([3, 9, 5]), 2)
    [Array([9, 5], dtype=int32), Array([1, 2], dtype=int32)]
    """
    k = dimension(k)
    if k < 0:
        raise ValueError(f"k argument to top_k must be nonnegative, got {k}")
    return top_k_p.bind(operand, k=k, axis=canonical_axis(axis, typeof(operand).ndim))


def _top_k_type(operand, *, k, axis):
    shape = operand.shape
    if dtypes.issubdtype(operand.dtype, np.complexfloating):
        raise ValueError("top_k is not compatible with complex inputs.")
    if not shape:
        raise TypeError(f"top_k operand must have >= 1 dimension, got {shape}")
    if not 0 <= axis < len(shape) or k < 0:
        raise ValueError(f"top_k of {k} elements along axis {axis} of an array of shape {shape}")
    if shape[axis] < k:
        raise ValueError(
            f"k argument to top_k must be no larger than size along axis; got {k=} with shape={list(shape)} "
            f"and {axis=}"
        )
    if not isinstance(shape[axis], DimExpr) and shape[axis] > np.iinfo(np.int32).max:
        raise ValueError(
            "top_k returns int32 indices, which will overflow for array dimensions larger than the maximum int32 "
            f"({np.iinfo(np.int32).max}). Got operand.shape={shape}"
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


# ---------------------------------------------------------------- over ranks


def _over_ranks(s: rules.Operation) -> rules.Plan | None:
    """Along a split axis, each rank selects from its part, and then from the candidates of all ranks.

    If there are too many candidates, the lines are gathered instead.
    """
    [shape], [cuts], axis, k = s.shapes, s.cuts, s.params["axis"], s.params["k"]
    cut, others = cuts[axis], without(cuts, [axis])
    if cut is None:
        return None
    if 2 * k * cut.parts > shape[axis] or 0 in shape:
        moved = rules.moved_off(s, shape, cuts, [axis])
        return None if moved is None else rules.same(s, moved)
    return rules.Plan([cuts], [others, others], s.params, program=_of_candidates(s, cut, k, axis))


def _of_candidates(s: rules.Operation, cut: Cut, k: int, axis: int) -> Callable[..., Any]:
    """Sends the k largest elements of each part to all ranks, in the order of the parts, so that ties keep their order.

    Communicates two allgathers of k elements.
    """
    low, high = s.span(cut)

    def program(x: Any) -> list[Any]:
        values, positions = top_k_p.bind(x, k=min(k, high - low), axis=axis)
        values, positions = (_from_all(v, cut, k, axis) for v in (values, positions + np.int32(low)))
        values, chosen = top_k_p.bind(values, k=k, axis=axis)
        return [values, gather_positions(positions, chosen, axis)]

    return program


def _from_all(x: Any, cut: Cut, k: int, axis: int) -> Any:
    """The candidates of all parts; parts shorter than k have fewer."""
    ends = np.cumsum(np.minimum(k, cut.lengths))
    found = Cut.between(cut.axes, np.append(0, ends[:-1]), ends)
    width = found.widest
    missing = width - shape_of(x)[axis]
    config = tuple((0, missing if d == axis else 0, 0) for d in range(len(shape_of(x))))
    x = all_gather(pad(x, const_like(x, 0), config) if missing else x, cut.axes, axis=axis, tiled=True)
    if found.is_even:
        return x
    kept = [(at, at + high - low) for (low, high), at in found.runs if high > low]
    return concatenate([slice_in_dim(x, *span, axis=axis) for span in kept], axis)


# ---------------------------------------------------------------- machine code


@dataclass(frozen=True)
class TopKCode:
    """A call of the kernel in `mpijax._ext`, which is imported at the first call."""

    words: tuple[int, ...]
    label: str = "top_k"

    def address(self) -> int:
        from mpijax._ext import top_k  # deferred: an upper layer, which few programs need

        return top_k.address()

    def failed(self, *_arrays: np.ndarray) -> NoReturn:
        raise JaxRuntimeError("RESOURCE_EXHAUSTED: top_k: not enough memory for the largest elements")


def _kind(dtype: Any) -> int:
    """A code for the comparison of elements: as signed integers, unsigned integers, or floats."""
    if dtypes.issubdtype(dtype, np.floating):
        return 2
    return int(dtype == np.bool_ or dtypes.issubdtype(dtype, np.unsignedinteger))


def _code(in_types: Sequence[ShapedArray], _out_types: Sequence[ShapedArray], *, k: int, axis: int) -> TopKCode:
    [x] = in_types
    width = x.dtype.itemsize.bit_length() - 1
    before, behind = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    return TopKCode((width, _kind(x.dtype), before, x.shape[axis], behind, k))


top_k_p = Primitive(
    "top_k",
    type_rule=_top_k_type,
    reference=_top_k_reference,
    lower=Native(_code, foreign=False),
    jvp=_top_k_jvp,
    transpose=NOT_LINEAR,
    batch=_top_k_batch,
    multiple_results=True,
    sharding=whole_along(
        "axis",
        "The input should be unsharded over the axis along which to compute the top_k values",
        better=_over_ranks,
    ),
)
