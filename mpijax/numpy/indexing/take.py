"""`x[index]`, and the functions that read elements by position: take, take_along_axis."""

from __future__ import annotations

import operator
import string
from typing import Any, NamedTuple

import numpy as np

from mpijax import lax
from mpijax._ext.array import ArrayBase, from_numpy
from mpijax.core import dtypes
from mpijax.core.base.config import values as options
from mpijax.core.base.state import state
from mpijax.core.shapes.dimensions import DimExpr, min_dim
from mpijax.core.tracing.trace import EVAL
from mpijax.core.types.avals import ShapedArray
from mpijax.numpy import util
from mpijax.numpy.creation.one_hot import one_hot
from mpijax.numpy.indexing.dynamic_slices import has_slices, read_slices
from mpijax.numpy.indexing.gather import gather, gather_plan
from mpijax.numpy.indexing.parse import check_static_indices, expand_masks, parse, wrap_negative_array
from mpijax.numpy.indexing.plan import StaticSlices, dynamic_plan, index_dtype, static_plan, wide_indices
from mpijax.numpy.linear_algebra.contraction import einsum
from mpijax.numpy.ufuncs.arithmetic import mod
from mpijax.numpy.util import canonical_axis, ensure_arraylike
from mpijax.runtime.arrays.default_sharding import default_sharding
from mpijax.transforms.jit import jit

# How to execute a known index, by (type of the array, key of the index); see `_index_key`.
_known: dict[tuple, _KnownIndex] = {}
_MAX_KNOWN = 4096


class _KnownIndex(NamedTuple):
    """How to execute an index of ints, slices, None and Ellipsis.

    Attributes:
      plan: the plan as operations; None if the index has no static plan: it is wrong, or out of bounds.
      view: the index for NumPy, with which the result is always an array; None if NumPy cannot be used.
      aval: type of the result of `view`.
    """

    plan: StaticSlices | None
    view: tuple | None
    aval: ShapedArray | None


def _index_key(index: Any) -> Any:
    """A hashable stand-in for an index of ints, slices, None and Ellipsis.

    Raises:
      TypeError: any other index.
    """
    kind = type(index)
    if kind is slice:
        start, stop, step = index.start, index.stop, index.step
        if (
            (start is None or type(start) is int)
            and (stop is None or type(stop) is int)
            and (step is None or type(step) is int)
        ):
            return (start, stop, step)
        raise TypeError
    if kind is int or index is None or index is Ellipsis:
        return index
    if kind is tuple:
        # Marked, so that a tuple of ints is not read as a slice.
        return (tuple, *map(_index_key, index))
    raise TypeError


def _look_up(aval: ShapedArray, key: Any, index: Any) -> _KnownIndex:
    try:
        return _known[aval, key]
    except KeyError:
        pass
    if len(_known) >= _MAX_KNOWN:
        _known.clear()
    known = _known[aval, key] = _read_known(aval, index)
    return known


def _read_known(aval: ShapedArray, index: Any) -> _KnownIndex:
    plan = static_plan(parse(index, aval.shape), aval.shape, True, None)
    if plan is None or not isinstance(aval.dtype, np.dtype) or any(isinstance(d, DimExpr) for d in aval.shape):
        return _KnownIndex(plan, None, None)
    index = index if isinstance(index, tuple) else (index,)
    if Ellipsis not in index:
        # Without it, NumPy returns a scalar instead of an array if no axis remains.
        index = (*index, Ellipsis)
    shape = np.broadcast_to(np.int8(0), aval.shape)[index].shape
    return _KnownIndex(plan, index, aval.update(shape=shape))


def _is_here(x: Any) -> bool:
    """Whether x is a whole array in this process's memory, and nothing is being traced."""
    return state.trace is EVAL and isinstance(x, ArrayBase) and x._sharding is None


def getitem(x: Any, index: Any) -> Any:
    """`x[index]`."""
    if options.jax_check_static_indices:
        return get(x, index)
    try:
        key = _index_key(index)
    except TypeError:
        known = None
    else:
        known = _look_up(x.aval, key, index)
    if known is None:  # not in the handler: the error of a wrong index is not about the missing key
        return get(x, index)
    if known.view is not None and _is_here(x):
        # NumPy copies as fast as compiled code would; a program for each pair of bounds takes long to make.
        return from_numpy(x._value[known.view], known.aval, True, default_sharding())
    if known.plan is not None:
        return known.plan.apply(x)
    return get(x, index)


def get(
    x: Any,
    index: Any,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: Any = None,
    fill_value: Any = None,
    wrap_negative_indices: bool = True,
) -> Any:
    """`x[index]`, with modes for indices out of bounds; see `x.at[index].get`."""
    if has_slices(index):
        x, index = read_slices(x, index)
    shape = x.shape
    entries = parse(index, shape)
    if options.jax_check_static_indices and (mode is None or _promises(mode)):
        check_static_indices(entries, shape, wrap_negative_indices)
    static = static_plan(entries, shape, wrap_negative_indices, mode)
    if static is not None:
        return static.apply(x)
    dynamic = dynamic_plan(entries, shape, mode)
    if dynamic is not None:
        if _is_here(x) and isinstance(x.dtype, np.dtype):
            view = dynamic.apply_to_numpy(x._value, wrap_negative_indices)
            return from_numpy(view, x.aval.update(shape=view.shape), True, default_sharding())
        return dynamic.apply(x, wrap_negative_indices)
    if fill_value is not None:
        fill_value = _checked_fill_value(fill_value)
    with wide_indices(shape):
        plan = gather_plan(expand_masks(entries, shape), shape, wrap_negative_indices)
        return gather(x, plan, unique=unique_indices, sorted_=indices_are_sorted, mode=mode, fill_value=fill_value)


def _promises(mode: Any) -> bool:
    return lax.GatherScatterMode.from_any(mode) == lax.GatherScatterMode.PROMISE_IN_BOUNDS


def _checked_fill_value(fill_value: Any) -> Any:
    fill_value = util.static(fill_value, "fill_value argument to indexed get()")
    if np.ndim(fill_value) != 0:
        raise ValueError("fill_value argument to indexed get() must be a scalar")
    return fill_value.item() if isinstance(fill_value, np.ndarray) else fill_value


def take(
    a: Any,
    indices: Any,
    axis: int | None = None,
    out: None = None,
    mode: str | None = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value: Any = None,
) -> Any:
    """Elements of `a` at `indices` along `axis`.

    Args:
      a: array.
      indices: integers of any shape.
      axis: axis of `a` to index; None flattens `a` first.
      mode: for indices out of bounds: "fill" (default) gives `fill_value`, "clip" the nearest element, "wrap" wraps
        around.
      unique_indices, indices_are_sorted: promises about the indices that allow faster code.
      fill_value: default NaN for floats, the smallest number for signed and the largest for unsigned integers.

    Returns:
      Array with the axes of `a`, in which the shape of `indices` replaces `axis`.

    Raises:
      ValueError: the indices are not integers.

    >>> jnp.take(jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), jnp.array([2, 0, 9]), axis=1)
    Array([[ 3.,  1., nan],
           [ 6.,  4., nan]], dtype=float32)
    """
    return _take(
        a,
        indices,
        None if axis is None else operator.index(axis),
        out,
        mode,
        unique_indices=unique_indices,
        indices_are_sorted=indices_are_sorted,
        fill_value=fill_value,
    )


@jit(static_argnames=("axis", "mode", "unique_indices", "indices_are_sorted", "fill_value"))
def _take(
    a,
    indices,
    axis=None,
    out=None,
    mode=None,
    unique_indices=False,
    indices_are_sorted=False,
    fill_value=None,
):
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.take is not supported.")
    a, indices = ensure_arraylike("take", a, indices)
    if axis is None:
        a, axis = a.ravel(), 0
    else:
        axis = canonical_axis(axis, a.ndim)
    size = a.shape[axis]
    modes = lax.GatherScatterMode
    if mode is None or mode == "fill":
        gather_mode = modes.FILL_OR_DROP
        indices = util._where(indices < 0, indices + size, indices)
    elif mode == "wrap":
        gather_mode = modes.PROMISE_IN_BOUNDS
        indices = mod(indices, util.scalar_like(indices, size))
    elif mode == "clip":
        gather_mode = modes.CLIP
    elif mode == "raise":
        raise NotImplementedError("The 'raise' mode to jnp.take is not supported.")
    else:
        raise ValueError(f"Invalid mode '{mode}' for np.take")

    if size == 0:
        if indices.size != 0:
            raise IndexError("Cannot do a non-empty jnp.take() from an empty axis.")
        return a
    if indices.size == 0:
        return lax.full_like(a, 0, shape=(*a.shape[:axis], *indices.shape, *a.shape[axis + 1 :]))

    count = indices.ndim
    dimension_numbers = lax.GatherDimensionNumbers(
        offset_dims=(*range(axis), *range(axis + count, a.ndim + count - 1)),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
    )
    return lax.gather(
        a,
        indices[..., None],
        dimension_numbers=dimension_numbers,
        slice_sizes=(*a.shape[:axis], 1, *a.shape[axis + 1 :]),
        mode=gather_mode,
        unique_indices=unique_indices,
        indices_are_sorted=indices_are_sorted,
        fill_value=fill_value,
    )


@jit(static_argnames=("axis", "mode", "fill_value", "wrap_negative_indices"))
def take_along_axis(
    arr: Any,
    indices: Any,
    axis: int | None = -1,
    mode: Any = None,
    fill_value: Any = None,
    *,
    wrap_negative_indices: bool | None = None,
) -> Any:
    """Elements of `arr` along `axis`. Each line along the axis has its own positions.

    Args:
      arr: array.
      indices: integers, with as many axes as `arr`, broadcastable against it on all but `axis`.
      axis: axis to index; None flattens `arr` first.
      mode: as in `x.at[...].get`; default "fill". "one_hot" multiplies by a one-hot matrix.
      fill_value: value for positions out of bounds.
      wrap_negative_indices: whether negative positions count from the end; default True, unless the mode promises that
        positions are in bounds.

    Returns:
      Array with the broadcast shape of `indices`.

    >>> x = jnp.array([[30, 10, 20], [5, 7, 6]])
    >>> jnp.take_along_axis(x, jnp.argsort(x, axis=1), axis=1)
    Array([[10, 20, 30],
           [ 5,  6,  7]], dtype=int32)
    """
    a, indices = ensure_arraylike("take_along_axis", arr, indices)
    if not dtypes.issubdtype(indices.dtype, np.integer):
        raise TypeError(f"take_along_axis indices must be of integer type, got {indices.dtype}")
    if axis is None:
        if indices.ndim != 1:
            raise ValueError(f"take_along_axis indices must be 1D if axis=None, got shape {indices.shape}")
        a, axis = a.ravel(), 0
    if a.ndim != indices.ndim:
        raise ValueError(f"indices and arr must have the same number of dimensions; {indices.ndim} vs. {a.ndim}")
    axis = canonical_axis(axis, a.ndim)
    size = a.shape[axis]
    line_shape = (*a.shape[:axis], 1, *a.shape[axis + 1 :])
    out_shape = lax.broadcast_shapes(indices.shape, line_shape)
    if size == 0:
        return lax.full(out_shape, 0, a.dtype)

    wrap = mode != "promise_in_bounds" if wrap_negative_indices is None else wrap_negative_indices
    # Wrapping adds the size, which the dtype of the indices must be able to hold.
    indices = lax.convert_element_type(indices, index_dtype((size,)) if wrap else indices.dtype)
    if wrap:
        indices = wrap_negative_array(indices, size)
    if isinstance(mode, str) and mode == "one_hot":
        return _take_along_axis_one_hot(a, indices, axis)
    return _take_along_axis_gather(a, indices, axis, line_shape, out_shape, mode, fill_value)


def _take_along_axis_one_hot(a, indices, axis):
    hot = one_hot(indices, a.shape[axis], dtype=np.bool_)
    if a.ndim == 1:
        return einsum("...b,b->...", hot, a, preferred_element_type=a.dtype)
    lead = string.ascii_letters[:axis]
    if len(lead) > len(string.ascii_letters) - 2:
        raise ValueError("One Hot indexing is only supported for up to 50 leading dimensions.")
    return einsum(
        f"{lead}y...z,{lead}z...->{lead}y...",
        hot,
        a,
        precision=lax.Precision.HIGHEST,
        preferred_element_type=a.dtype,
    )


def _take_along_axis_gather(a, indices, axis, line_shape, out_shape, mode, fill_value):
    """One gather in which the axes that `a` and `indices` share are batch axes."""
    indexed = [i for i, size in enumerate(indices.shape) if i == axis or size != 1]
    starts = lax.reshape(indices, (*(out_shape[i] for i in indexed), 1))
    offset_dims, sizes, squeezed = [], [], []
    operand_batch, start_batch = [], []
    indexed_axis = None
    for i in range(a.ndim):
        at = len(sizes)
        if i == axis:
            indexed_axis = at
            sizes.append(1)
        elif indices.shape[i] == 1:
            offset_dims.append(i)
            sizes.append(line_shape[i])
        elif line_shape[i] == 1:
            squeezed.append(i)
        else:
            operand_batch.append(at)
            start_batch.append(indexed.index(i))
            sizes.append(min_dim(line_shape[i], 1))
    dimension_numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(offset_dims),
        collapsed_slice_dims=(indexed_axis,),
        start_index_map=(indexed_axis,),
        operand_batching_dims=tuple(operand_batch),
        start_indices_batching_dims=tuple(start_batch),
    )
    return lax.gather(
        lax.squeeze(a, squeezed),
        starts,
        dimension_numbers,
        tuple(sizes),
        mode="fill" if mode is None else mode,
        fill_value=fill_value,
    )
