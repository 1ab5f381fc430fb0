"""Axes of `BCOO` arrays: changes of batch, sparse and dense axes; new, dropped, sliced and reversed axes; gathers of
slices."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core.types.avals import ShapeDtypeStruct
from mpijax.experimental.sparse import operations as ops
from mpijax.experimental.sparse.util import (
    SparseEfficiencyError,
    SparseEfficiencyWarning,
    beyond,
    new_bcoo,
    ranks_differ,
    sparse_shape,
)
from mpijax.transforms.api import eval_shape
from mpijax.transforms.vmap import vmap


def bcoo_update_layout(
    mat: Any, *, n_batch: int | None = None, n_dense: int | None = None, on_inefficient: str | None = "error"
) -> Any:
    """The same array with other numbers of batch and dense axes.

    on_inefficient: what to do if the new layout stores many zeros: 'error', 'warn' or None.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([[0, 5], [6, 0]]), n_batch=1)
    >>> sparse.bcoo_update_layout(x, n_batch=0)
    BCOO(int32[2, 2], nse=2)
    """
    n_batch = mat.n_batch if n_batch is None else operator.index(n_batch)
    n_dense = mat.n_dense if n_dense is None else operator.index(n_dense)
    if on_inefficient not in ("error", "warn", None):
        raise ValueError(f"{on_inefficient=}; expected one of ['error', 'warn', None].")
    if min(n_batch, n_dense) < 0:
        raise ValueError(f"n_batch and n_dense must be non-negative; got {n_batch=} and {n_dense=}")
    if n_batch + n_dense > mat.ndim:
        raise ValueError(f"sum of {n_batch=} and {n_dense=} cannot be larger than mat.ndim={mat.ndim}.")
    wasted = [*mat.shape[mat.n_batch : n_batch], *mat.shape[mat.ndim - n_dense : mat.ndim - mat.n_dense]]
    if on_inefficient and any(n > 1 for n in wasted):
        text = f"For matrix of shape {mat.shape}, {n_batch=} and {n_dense=} result in inefficient storage."
        if on_inefficient == "error":
            raise SparseEfficiencyError(f"{text} To disable this error, set on_inefficient to 'warn' or None.")
        warnings.warn(f"{text} To disable this warning, set on_inefficient to None.", SparseEfficiencyWarning, 2)
    fewer = with_fewer(mat, min(n_batch, mat.n_batch), min(n_dense, mat.n_dense))
    if (n_batch, n_dense) == (fewer.n_batch, fewer.n_dense):
        return fewer
    nse = min(fewer.nse, math.prod(mat.shape[n_batch : mat.ndim - n_dense]))
    return ops.bcoo_fromdense(fewer.todense(), nse=nse, n_batch=n_batch, n_dense=n_dense)


def with_fewer(mat: Any, n_batch: int, n_dense: int) -> Any:
    """The array with fewer batch and dense axes; the other batch and dense axes become sparse axes."""
    if (n_batch, n_dense) == (mat.n_batch, mat.n_dense):
        return mat
    ours, sparse_end = mat.shape[: mat.n_batch], mat.n_batch + mat.n_sparse
    moved_batch, moved_dense = mat.shape[n_batch : mat.n_batch], mat.shape[sparse_end : mat.ndim - n_dense]
    data = jnp.broadcast_to(mat.data, (*ours, mat.nse, *mat.shape[sparse_end:]))
    grid = (*ours, mat.nse, *moved_dense)
    inner = jnp.broadcast_to(mat.indices, (*ours, mat.nse, mat.n_sparse))
    inner = inner.reshape(*ours, mat.nse, *(1 for _ in moved_dense), mat.n_sparse)
    inner = jnp.broadcast_to(inner, (*grid, mat.n_sparse))
    place = np.indices(grid)
    outer = [place[n_batch : mat.n_batch], place[mat.n_batch + 1 :]]
    before, behind = (jnp.asarray(np.moveaxis(p, 0, -1), mat.indices.dtype) for p in outer)
    indices = jnp.concatenate([before, inner, behind], axis=-1)
    nse = math.prod(moved_batch) * mat.nse * math.prod(moved_dense)
    data = data.reshape(*mat.shape[:n_batch], nse, *mat.shape[mat.ndim - n_dense :])
    return new_bcoo(data, indices.reshape(*mat.shape[:n_batch], nse, indices.shape[-1]), mat.shape)


@ranks_differ
def bcoo_squeeze(arr: Any, *, dimensions: Sequence[int]) -> Any:
    """The array without axes of size 1.

    >>> from mpijax.experimental import sparse
    >>> sparse.bcoo_squeeze(sparse.BCOO.fromdense(jnp.array([[0, 5]])), dimensions=(0,))
    BCOO(int32[2], nse=1)
    """
    gone = {d % arr.ndim for d in dimensions}
    if any(arr.shape[d] != 1 for d in gone):
        raise ValueError(
            f"cannot select an axis to squeeze out which has size not equal to one, got shape={arr.shape} and "
            f"{dimensions=}"
        )
    last = arr.n_batch + arr.n_sparse
    batch = tuple(d for d in gone if d < arr.n_batch)
    kept = np.array([i for i in range(arr.n_sparse) if i + arr.n_batch not in gone], int)
    inside = ops.over_dense((arr.indices < beyond(arr)).all(axis=-1), arr)
    data = arr.data if len(kept) == arr.n_sparse else jnp.where(inside, arr.data, jnp.zeros((), arr.dtype))
    data = lax.squeeze(data, (*batch, *(d - arr.n_sparse + 1 for d in gone if d >= last)))
    indices = lax.squeeze(arr.indices[..., kept], batch)
    shape = tuple(n for d, n in enumerate(arr.shape) if d not in gone)
    return new_bcoo(data, indices, shape, arr.indices_sorted, arr.unique_indices)


@ranks_differ
def bcoo_broadcast_in_dim(
    mat: Any, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], sharding: Any = None
) -> Any:
    """`lax.broadcast_in_dim`: axis i becomes axis `broadcast_dimensions[i]` of `shape`; the array is repeated along
    other axes.

    New axes before the sparse axes are batch axes. If the array is repeated along other axes, the result has only
    sparse axes.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([0, 5]))
    >>> sparse.bcoo_broadcast_in_dim(x, shape=(2, 2), broadcast_dimensions=(1,)).todense()
    Array([[0, 5],
           [0, 5]], dtype=int32)
    """
    shape, to = tuple(shape), tuple(broadcast_dimensions)
    if mat.ndim != len(to):
        raise ValueError(f"bcoo_broadcast_in_dim: {mat.shape} and broadcast_dimensions={to} must have the same length.")
    n, last = mat.n_batch, mat.n_batch + mat.n_sparse
    new_batch = min(to[n:], default=len(shape))
    new_dense = len(shape) - min(to[last:]) if mat.n_dense else 0
    end = len(shape) - new_dense
    if math.prod(sparse_shape(mat)) != math.prod(shape[new_batch:end]):
        return _repeated(with_fewer(mat, 0, 0), shape, to)
    data, indices = mat.data, mat.indices
    if (new_batch, new_dense) != (n, mat.n_dense):
        # A batch axis of size 1 in an array stays so, unless the array itself grows along one.
        sizes = [
            [shape[a] if a not in to[:n] else x.shape[to.index(a)] for a in range(new_batch)] for x in (data, indices)
        ]
        grown = any(mat.shape[i] != shape[axis] for i, axis in enumerate(to[:n]))
        sizes = [list(shape[:new_batch])] * 2 if grown else sizes
        data = lax.broadcast_in_dim(
            data,
            (*sizes[0], mat.nse, *shape[end:]),
            (*to[:n], new_batch, *(d + 1 + new_batch - end for d in to[last:])),
        )
        indices = lax.broadcast_in_dim(indices, (*sizes[1], mat.nse, mat.n_sparse), (*to[:n], new_batch, new_batch + 1))
    elif any(mat.shape[i] != shape[axis] for i, axis in enumerate(to) if not n <= i < last):
        data = jnp.broadcast_to(data, (*shape[:new_batch], mat.nse, *shape[end:]))
        indices = jnp.broadcast_to(indices, (*shape[:new_batch], *indices.shape[n:]))
    if end - new_batch != mat.n_sparse:
        inside = (indices < beyond(mat)).all(axis=-1, keepdims=True)
        spread = jnp.zeros((*indices.shape[:-1], end - new_batch), indices.dtype)
        spread = spread.at[..., np.array(to[n:last], int) - new_batch].set(indices)
        indices = jnp.where(inside, spread, jnp.asarray(np.array(shape[new_batch:end]), indices.dtype))
    return new_bcoo(data, indices, shape)


@ranks_differ
def _repeated(mat: Any, shape: tuple[int, ...], to: tuple[int, ...]) -> Any:
    """Repeats an array that has only sparse axes. A missing element is missing in every copy."""
    target = dict(zip(to, range(mat.ndim), strict=True))
    repeated = [d for d in range(len(shape)) if d not in target or mat.shape[target[d]] != shape[d]]
    counts = [shape[d] for d in repeated]
    copies = math.prod(counts)
    where = np.indices(counts).reshape(len(counts), copies)
    outside = jnp.tile((mat.indices >= beyond(mat)).any(axis=-1), copies)
    columns = []
    for d, size in enumerate(shape):
        if d in repeated:
            column = jnp.repeat(jnp.asarray(where[repeated.index(d)], mat.indices.dtype), mat.nse)
        else:
            column = jnp.tile(mat.indices[:, target[d]], copies)
        columns.append(jnp.where(outside, size, column))
    return new_bcoo(jnp.tile(mat.data, copies), jnp.stack(columns, axis=-1), shape)


# ---------------------------------------------------------------- parts


def bcoo_slice(
    mat: Any, *, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None
) -> Any:
    """`lax.slice`. The number of stored elements is that of the operand, or the size of the slice if that is smaller.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([0, 5, 6, 7]))
    >>> sparse.bcoo_slice(x, start_indices=(1,), limit_indices=(4,), strides=(2,)).todense()
    Array([5, 7], dtype=int32)
    """
    start, limit = ([operator.index(i) for i in x] for x in (start_indices, limit_indices))
    step = [1] * mat.ndim if strides is None else [operator.index(i) for i in strides]
    if not len(start) == len(limit) == len(step) == mat.ndim:
        raise ValueError(f"bcoo_slice: indices must have size mat.ndim={mat.ndim}")
    if any(s <= 0 for s in step):
        raise ValueError(f"strides must be a sequence of positive integers; got {strides}")
    if not all(0 <= a <= b <= n for a, b, n in zip(start, limit, mat.shape, strict=True)):
        raise ValueError(f"bcoo_slice: invalid indices. Got {start_indices=}, {limit_indices=} and shape={mat.shape}")
    shape = tuple(-(-(b - a) // s) for a, b, s in zip(start, limit, step, strict=True))

    def cut(x: Any, axes: Sequence[tuple[int, int]]) -> Any:
        for axis, d in axes:
            if x.shape[axis] == mat.shape[d] or not shape[d]:
                x = (
                    lax.slice_in_dim(x, start[d], limit[d], step[d], axis)
                    if shape[d]
                    else x.take(np.zeros(0, int), axis)
                )
        return x

    n = mat.n_batch
    offset, stride = (np.array(x[n : n + mat.n_sparse], int) for x in (start, step))
    return _part(mat, cut, shape, jnp.asarray(offset, mat.indices.dtype), jnp.asarray(stride, mat.indices.dtype))


@ranks_differ
def _part(mat: Any, cut: Any, shape: tuple[int, ...], offset: Any, stride: Any) -> Any:
    """The elements at `offset + stride * i` along sparse axes; `cut` does the others."""
    n, last = mat.n_batch, mat.n_batch + mat.n_sparse
    batch = [(d, d) for d in range(n)]
    data = cut(mat.data, batch + [(d - mat.n_sparse + 1, d) for d in range(last, mat.ndim)])
    indices, end = cut(mat.indices, batch), jnp.asarray(np.array(shape[n:last], int), mat.indices.dtype)
    moved = indices - offset
    inside = ((moved >= 0) & (moved % stride == 0) & (moved // stride < end)).all(axis=-1)
    inside = inside & (indices < beyond(mat)).all(axis=-1)
    indices = jnp.where(inside[..., None], moved // stride, end)
    data = jnp.where(ops.over_dense(inside, mat), data, jnp.zeros((), mat.dtype))
    out = new_bcoo(data, indices, shape, False, mat.unique_indices)
    most = math.prod(shape[n:last])
    return out if out.nse <= most else ops.bcoo_sum_duplicates(out, nse=most)


def bcoo_dynamic_slice(mat: Any, start_indices: Sequence[Any], slice_sizes: Sequence[int]) -> Any:
    """`lax.dynamic_slice`: a part of fixed size, from a start that may be traced. Negative starts count from the end.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([0, 5, 6, 7]))
    >>> sparse.bcoo_dynamic_slice(x, (1,), (2,)).todense()
    Array([5, 6], dtype=int32)
    """
    sizes = tuple(operator.index(n) for n in slice_sizes)
    if not len(start_indices) == len(sizes) == mat.ndim:
        raise ValueError(f"bcoo_dynamic_slice: indices must have size mat.ndim={mat.ndim}")
    if not all(0 <= n <= full for n, full in zip(sizes, mat.shape, strict=True)):
        raise TypeError(f"slice_sizes must be less than or equal to operand shape, got {sizes} for shape {mat.shape}")
    start = [
        jnp.clip(jnp.where(jnp.asarray(i) < 0, i + full, i), 0, full - n).astype(mat.indices.dtype)
        for i, n, full in zip(start_indices, sizes, mat.shape, strict=True)
    ]

    def cut(x: Any, axes: Sequence[tuple[int, int]]) -> Any:
        for axis, d in axes:
            if x.shape[axis] == mat.shape[d] or not sizes[d]:
                x = lax.dynamic_slice_in_dim(x, start[d], sizes[d], axis)
        return x

    offset = start[mat.n_batch : mat.n_batch + mat.n_sparse]
    offset = jnp.stack(offset) if offset else jnp.zeros(0, mat.indices.dtype)
    return _part(mat, cut, sizes, offset, jnp.ones(mat.n_sparse, mat.indices.dtype))


@ranks_differ
def bcoo_rev(operand: Any, dimensions: Sequence[int]) -> Any:
    """`lax.rev`: the array with its elements in reverse order along axes.

    >>> from mpijax.experimental import sparse
    >>> sparse.bcoo_rev(sparse.BCOO.fromdense(jnp.array([0, 5, 6])), (0,)).todense()
    Array([6, 5, 0], dtype=int32)
    """
    mat, axes = operand, sorted({d % operand.ndim for d in dimensions})
    n, last = mat.n_batch, mat.n_batch + mat.n_sparse
    batch, dense = [d for d in axes if d < n], [d - mat.n_sparse + 1 for d in axes if d >= last]
    data, indices, end = lax.rev(mat.data, batch + dense), lax.rev(mat.indices, batch), beyond(mat)
    turned = np.isin(np.arange(n, last), axes)
    inside = (indices < end).all(axis=-1, keepdims=True)
    return new_bcoo(data, jnp.where(inside & turned, end - 1 - indices, indices), mat.shape, False, mat.unique_indices)


def bcoo_gather(
    operand: Any, start_indices: Any, dimension_numbers: Any, slice_sizes: Sequence[int], *,
    unique_indices: bool = False, indices_are_sorted: bool = False, mode: Any = None, fill_value: Any = None,
) -> Any:  # fmt: skip
    """`lax.gather` of slices at positions inside the array. The result has a batch axis for the positions.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([[0, 5], [6, 7]]))
    >>> x[jnp.array([1, 0, 1])].todense().tolist()
    [[6, 7], [0, 5], [6, 7]]
    """
    mode = lax.GatherScatterMode.from_any("promise_in_bounds" if mode is None else mode)
    if mode is not lax.GatherScatterMode.PROMISE_IN_BOUNDS:
        raise NotImplementedError(f"bcoo_gather: mode={mode!r} not yet supported. Use mode='promise_in_bounds'.")
    start_indices = jnp.asarray(start_indices)
    options = {"dimension_numbers": dimension_numbers, "slice_sizes": tuple(slice_sizes), "mode": mode}
    types = ShapeDtypeStruct(operand.shape, operand.dtype), ShapeDtypeStruct(start_indices.shape, start_indices.dtype)
    out = eval_shape(lambda x, i: lax.gather(x, i, **options), *types)
    if getattr(dimension_numbers, "operand_batching_dims", ()):
        raise NotImplementedError("bcoo_gather does not support operand_batching_dims. Use vmap over the batch.")
    sizes, mapped = list(operand.shape), dimension_numbers.start_index_map
    for axis in mapped:
        sizes[axis] = slice_sizes[axis]

    def one(position: Any) -> Any:
        start: list[Any] = [0] * operand.ndim
        for i, axis in enumerate(mapped):
            start[axis] = position[i]
        part = bcoo_dynamic_slice(operand, start, sizes)
        return bcoo_squeeze(part, dimensions=dimension_numbers.collapsed_slice_dims)

    where = start_indices.shape[:-1]
    found = vmap(one)(start_indices.reshape(-1, start_indices.shape[-1]))
    n, last = found.n_batch - 1, found.ndim - found.n_dense
    data = found.data.reshape(*where, *found.data.shape[1:])
    indices = found.indices.reshape(*where, *found.indices.shape[1:])
    found = new_bcoo(data, indices, (*where, *found.shape[1:]))
    offset = tuple(dimension_numbers.offset_dims)
    batch = tuple(d for d in range(found.ndim) if d not in offset)
    order = np.argsort((*batch, *offset)).tolist()
    if sorted(order[: len(where) + n]) != list(range(len(where) + n)) or sorted(order[last:]) != list(
        range(last, found.ndim)
    ):
        found = with_fewer(found, 0, 0)
    return ops.bcoo_reshape(ops.bcoo_transpose(found, permutation=order), new_sizes=out.shape)


# ---------------------------------------------------------------- as arguments and results of vmap


def example(take: Callable, _index: Any, mat: Any, axis: int) -> Any:
    """One example of a BCOO or BCSR along a batch axis. Arrays of size 1 along the axis are the same for all
    examples."""
    if not 0 <= axis < mat.n_batch:
        raise ValueError(
            f"Cannot map in_axis={axis} for {type(mat).__name__} array with n_batch={mat.n_batch}. in_axes for batched "
            f"{type(mat).__name__} operations must correspond to a batch dimension."
        )
    size = mat.shape[axis]
    full = [
        x if x.shape[axis] == size else jnp.broadcast_to(x, (*x.shape[:axis], size, *x.shape[axis + 1 :]))
        for x in mat._bufs
    ]
    return _with_shape(mat, [take(x, axis) for x in full], mat.shape[:axis] + mat.shape[axis + 1 :])


def examples(put: Callable, size: int, mat: Any, axis: int) -> Any:
    """The BCOO or BCSR of all examples, with a batch axis for the examples."""
    if not 0 <= axis <= mat.n_batch:
        raise ValueError(
            f"{type(mat).__name__}: cannot add out_axis={axis} for {type(mat).__name__} array with "
            f"n_batch={mat.n_batch}. Batch axes must be a contiguous block of leading dimensions."
        )
    return _with_shape(mat, [put(size, x, axis) for x in mat._bufs], (*mat.shape[:axis], size, *mat.shape[axis:]))


def _with_shape(mat: Any, parts: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """Without checks: `vmap` puts stand-ins in place of arrays."""
    return type(mat).tree_unflatten(mat._info._replace(shape=shape)._asdict(), parts)
