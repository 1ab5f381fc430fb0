"""Axes of `BCOO` arrays: which are batch, sparse and dense; new, dropped, cut and reversed ones."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.experimental.sparse import operations as ops
from mpijax.experimental.sparse.base import SparseEfficiencyError, SparseEfficiencyWarning


def bcoo_update_layout(
    mat: Any, *, n_batch: int | None = None, n_dense: int | None = None, on_inefficient: str | None = "error"
) -> Any:
    """The same array with other numbers of batch and dense axes.

    on_inefficient: 'error', 'warn' or None, where the new layout stores many zeros.

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
    fewer = _sparser(mat, min(n_batch, mat.n_batch), min(n_dense, mat.n_dense))
    if (n_batch, n_dense) == (fewer.n_batch, fewer.n_dense):
        return fewer
    nse = min(fewer.nse, math.prod(mat.shape[n_batch : mat.ndim - n_dense]))
    return ops.bcoo_fromdense(fewer.todense(), nse=nse, n_batch=n_batch, n_dense=n_dense)


def _sparser(mat: Any, n_batch: int, n_dense: int) -> Any:
    """With fewer batch and dense axes: the others of them become sparse ones."""
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
    return ops.new_bcoo(data, indices.reshape(*mat.shape[:n_batch], nse, -1), mat.shape)


def bcoo_squeeze(arr: Any, *, dimensions: Sequence[int]) -> Any:
    """Without axes of size 1.

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
    data = lax.squeeze(arr.data, (*batch, *(d - arr.n_sparse + 1 for d in gone if d >= last)))
    indices = lax.squeeze(arr.indices[..., kept], batch)
    shape = tuple(n for d, n in enumerate(arr.shape) if d not in gone)
    return ops.new_bcoo(data, indices, shape, arr.indices_sorted, arr.unique_indices)


def bcoo_broadcast_in_dim(mat: Any, *, shape: Sequence[int], broadcast_dimensions: Sequence[int]) -> Any:
    """`lax.broadcast_in_dim`: axis i becomes axis `broadcast_dimensions[i]` of `shape`; along others it is repeated.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([0, 5]))
    >>> sparse.bcoo_broadcast_in_dim(x, shape=(2, 2), broadcast_dimensions=(1,)).todense()
    Array([[0, 5],
           [0, 5]], dtype=int32)
    """
    mat = ops.without_batch(mat, "bcoo_broadcast_in_dim")
    target = dict(zip(broadcast_dimensions, range(mat.ndim), strict=True))
    repeated = [d for d in range(len(shape)) if d not in target or mat.shape[target[d]] != shape[d]]
    counts = [shape[d] for d in repeated]
    copies = math.prod(counts)
    where = np.indices(counts).reshape(len(counts), copies)
    # For each copy all elements; a missing one stays missing in every copy.
    outside = jnp.tile((mat.indices >= np.array(mat.shape)).any(axis=-1), copies)
    columns = []
    for d, size in enumerate(shape):
        if d in repeated:
            column = jnp.repeat(jnp.asarray(where[repeated.index(d)], mat.indices.dtype), mat.nse)
        else:
            column = jnp.tile(mat.indices[:, target[d]], copies)
        columns.append(jnp.where(outside, size, column))
    return ops.new_bcoo(jnp.tile(mat.data, copies), jnp.stack(columns, axis=-1), shape)


def bcoo_slice(
    mat: Any, *, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None
) -> Any:
    """`lax.slice`; as many elements are stored as before.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([0, 5, 6, 7]))
    >>> sparse.bcoo_slice(x, start_indices=(1,), limit_indices=(4,), strides=(2,)).todense()
    Array([5, 7], dtype=int32)
    """
    mat = ops.without_batch(mat, "bcoo_slice")
    strides = [1] * mat.ndim if strides is None else list(strides)
    shape = tuple(max(0, -(-(b - a) // s)) for a, b, s in zip(start_indices, limit_indices, strides, strict=True))
    moved = mat.indices - jnp.asarray(np.array(start_indices), mat.indices.dtype)
    step = jnp.asarray(np.array(strides), mat.indices.dtype)
    inside = ((moved >= 0) & (moved % step == 0) & (moved // step < np.array(shape))).all(axis=-1)
    indices = jnp.where(inside[:, None], moved // step, jnp.asarray(np.array(shape), mat.indices.dtype))
    return ops.new_bcoo(mat.data, indices, shape, False, mat.unique_indices)


def bcoo_dynamic_slice(mat: Any, start_indices: Sequence[Any], slice_sizes: Sequence[int]) -> Any:
    """`lax.dynamic_slice`: a part of fixed size from positions that may be traced.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([0, 5, 6, 7]))
    >>> sparse.bcoo_dynamic_slice(x, (1,), (2,)).todense()
    Array([5, 6], dtype=int32)
    """
    mat = ops.without_batch(mat, "bcoo_dynamic_slice")
    sizes = np.array(slice_sizes)
    start = jnp.clip(jnp.stack([jnp.asarray(i) for i in start_indices]), 0, np.array(mat.shape) - sizes)
    moved = mat.indices - start.astype(mat.indices.dtype)
    inside = ((moved >= 0) & (moved < sizes)).all(axis=-1)
    indices = jnp.where(inside[:, None], moved, jnp.asarray(sizes, mat.indices.dtype))
    return ops.new_bcoo(mat.data, indices, tuple(slice_sizes), False, mat.unique_indices)


def bcoo_rev(operand: Any, dimensions: Sequence[int]) -> Any:
    """`lax.rev`: the other way round along axes.

    >>> from mpijax.experimental import sparse
    >>> sparse.bcoo_rev(sparse.BCOO.fromdense(jnp.array([0, 5, 6])), (0,)).todense()
    Array([6, 5, 0], dtype=int32)
    """
    mat = ops.without_batch(operand, "bcoo_rev")
    shape = jnp.asarray(np.array(mat.shape), mat.indices.dtype)
    turned = np.isin(np.arange(mat.ndim), [d % mat.ndim for d in dimensions])
    inside = (mat.indices < shape).all(axis=-1, keepdims=True)
    indices = jnp.where(inside & turned, shape - 1 - mat.indices, mat.indices)
    return ops.new_bcoo(mat.data, indices, mat.shape, False, mat.unique_indices)


def bcoo_dot_general_sampled(A: Any, B: Any, indices: Any, *, dimension_numbers: Any) -> Any:
    """The elements of a dense product at given coordinates, from the whole product.

    >>> from mpijax.experimental import sparse
    >>> x = jnp.arange(4.0).reshape(2, 2)
    >>> sparse.bcoo_dot_general_sampled(x, x, jnp.array([[1, 0]]), dimension_numbers=(((1,), (0,)), ((), ())))
    Array([6.], dtype=float32)
    """
    product = lax.dot_general(A, B, dimension_numbers)
    return product.at[tuple(indices[..., i] for i in range(indices.shape[-1]))].get(mode="fill", fill_value=0)
