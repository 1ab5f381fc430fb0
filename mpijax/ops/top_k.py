"""top_k: the largest elements along an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from mpijax.core import dtypes
from mpijax.core.avals import ShapedArray
from mpijax.core.dimensions import dimension
from mpijax.core.errors import JaxRuntimeError
from mpijax.core.lowering import Native
from mpijax.core.primitive import Primitive, Unsupported, registry
from mpijax.core.trace import typeof
from mpijax.ops.indexing import GatherDimensionNumbers, gather
from mpijax.ops.moves import canonical_axis, shape_of
from mpijax.ops.ordering import largest
from mpijax.transforms.zeros import Zero

NOT_LINEAR = Unsupported("choosing elements is not linear; its derivative is a gather, which has a transpose")


def top_k(operand: Any, k: int, *, axis: int = -1) -> list[Any]:
    """The k largest values along an axis, in descending order, and their positions (int32).

    Of equal values the one that comes first is taken first; 0.0 is larger than -0.0, NaN the largest.

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


# ---------------------------------------------------------------- machine code


@dataclass(frozen=True)
class TopKCode:
    """A call of the kernel in `mpijax._ext`, which is loaded with the first one."""

    words: tuple[int, ...]
    label: str = "top_k"

    def address(self) -> int:
        from mpijax._ext import top_k  # what lies above; few programs need it

        return top_k.address()

    def failed(self, *_arrays: np.ndarray) -> NoReturn:
        raise JaxRuntimeError("RESOURCE_EXHAUSTED: top_k: no memory for the elements chosen so far")


def _kind(dtype: Any) -> int:
    """How elements are compared: as integers, as unsigned ones, or as floats."""
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
    lower=Native(_code),
    jvp=_top_k_jvp,
    transpose=NOT_LINEAR,
    batch=_top_k_batch,
    multiple_results=True,
)
