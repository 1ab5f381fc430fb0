"""Operations on two arrays, at least one of which is a `BCOO`: sums, elementwise products, contractions,
convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core.types.avals import ShapeDtypeStruct
from mpijax.experimental.sparse import layouts
from mpijax.experimental.sparse import operations as ops
from mpijax.experimental.sparse.util import (
    beyond,
    columns,
    full_batches,
    is_bcoo,
    new_bcoo,
    nfold_vmap,
    over_dense,
    ranks_differ,
)
from mpijax.transforms.api import eval_shape, make_jaxpr

# ---------------------------------------------------------------- elementwise


def bcoo_multiply_dense(sp_mat: Any, v: Any) -> Any:
    """The values of a BCOO times an array that broadcasts to it: an array with a value for each stored element.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([0, 5, 6]))
    >>> sparse.bcoo_multiply_dense(x, jnp.array([1, 2, 3]))
    Array([10, 18], dtype=int32)
    """
    mat, v = sp_mat, jnp.asarray(v)
    if v.ndim == 0:
        return mat.data * v
    if np.broadcast_shapes(v.shape, mat.shape) != mat.shape:
        raise NotImplementedError(
            "multiplication between sparse and dense is only implemented for cases where the output shape matches the "
            f"sparse matrix shape. Got shape={mat.shape}, v.shape={v.shape}"
        )
    v = v.reshape((1,) * (mat.ndim - v.ndim) + v.shape)

    def one(data: Any, indices: Any, v: Any) -> Any:
        where = tuple(i if size != 1 else jnp.zeros_like(i) for i, size in zip(columns(indices), v.shape))
        return data * (v.at[where].get(mode="fill", fill_value=0) if where else v[None])

    return nfold_vmap(one, mat.n_batch)(mat.data, mat.indices, v)


def bcoo_multiply_sparse(lhs: Any, rhs: Any) -> Any:
    """Products of the elements at equal coordinates. Stores as many elements as the smaller operand; duplicates are
    added first.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([0, 5, 6]))
    >>> y = sparse.BCOO.fromdense(jnp.array([2, 2, 0]))
    >>> sparse.bcoo_multiply_sparse(x, y).todense()
    Array([ 0, 10,  0], dtype=int32)
    """
    if lhs.ndim != rhs.ndim:
        raise TypeError(
            f"bcoo_multiply_sparse: arrays must have same number of dimensions, got {lhs.shape}, {rhs.shape}"
        )
    if lhs.n_dense != rhs.n_dense:
        raise NotImplementedError(
            f"bcoo_multiply_sparse: arrays with differing numbers of dense dimensions: {lhs}, {rhs}"
        )
    shape = np.broadcast_shapes(lhs.shape, rhs.shape)
    n = min(lhs.n_batch, rhs.n_batch)
    spread = [_spread(layouts.with_fewer(x, n, x.n_dense), shape) for x in (lhs, rhs)]
    # one that was repeated has sparse axes only
    lhs, rhs = (layouts.with_fewer(x, min(z.n_batch for z in spread), min(z.n_dense for z in spread)) for x in spread)
    small, large = (lhs, rhs) if lhs.nse <= rhs.nse else (rhs, lhs)
    small = small if small.unique_indices else ops.bcoo_sum_duplicates(small, nse=small.nse)

    def one(data: Any, indices: Any, other: Any, places: Any) -> Any:
        equal = (indices[:, None] == places[None]).all(axis=-1)
        return data * jnp.tensordot(equal.astype(other.dtype), other, 1)

    data = nfold_vmap(one, small.n_batch)(small.data, small.indices, large.data, large.indices)
    return new_bcoo(data, small.indices, shape, small.indices_sorted, True)


def _spread(mat: Any, shape: tuple[int, ...]) -> Any:
    if mat.shape == shape:
        return mat
    return layouts.bcoo_broadcast_in_dim(mat, shape=shape, broadcast_dimensions=tuple(range(mat.ndim)))


def multiply(x: Any, y: Any) -> Any:
    return bcoo_multiply_sparse(x, y) if is_bcoo(y) else x._with(bcoo_multiply_dense(x, y))


def add(x: Any, y: Any) -> Any:
    """The sum: a BCOO for two BCOOs; a dense array for a BCOO and a dense array of the whole shape."""
    if not is_bcoo(y):
        if np.broadcast_shapes(x.shape, np.shape(y)) != np.shape(y):
            raise NotImplementedError(
                "Addition between a sparse array X and a dense array Y is not implemented when the output shape is "
                f"larger than Y.shape, to prevent silent densification: got {x.shape} and {np.shape(y)}. If this is "
                "your intent, call todense()."
            )
        return ops.bcoo_todense(x) + y
    if x.shape != y.shape:
        raise NotImplementedError(
            f"Addition between sparse matrices of different shapes: {x.shape} and {y.shape} must be equal."
        )
    if x.indices is y.indices:
        return x._with(x.data + y.data)
    if (x.n_batch, x.n_dense) != (y.n_batch, y.n_dense):
        raise NotImplementedError(
            "Addition between sparse matrices with different batch/dense dimensions is not supported. Call "
            "update_layout first."
        )
    dtype = jnp.result_type(x.data, y.data)
    (data, indices), (others, places) = full_batches(x), full_batches(y)
    data = jnp.concatenate([data.astype(dtype), others.astype(dtype)], axis=x.n_batch)
    return new_bcoo(data, jnp.concatenate([indices, places.astype(indices.dtype)], axis=x.n_batch), x.shape)


# ---------------------------------------------------------------- contractions


def bcoo_dot_general(
    lhs: Any, rhs: Any, *, dimension_numbers: Any, precision: Any = None, preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:  # fmt: skip
    """`lax.dot_general` of a BCOO and an array (gives an array), or of two BCOOs (gives a BCOO of nse1 * nse2
    elements).

    Batch axes of the product may be any axes of a BCOO if the other operand is an array. For two BCOOs, they must be
    batch axes of both.

    Raises:
      TypeError: shapes do not match. NotImplementedError: two BCOOs with other batch axes.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> columns_with_rows = (((1,), (0,)), ((), ()))
    >>> sparse.bcoo_dot_general(x, jnp.array([1.0, 10.0]), dimension_numbers=columns_with_rows)
    Array([20.,  3.], dtype=float32)
    """
    contract, batch = ([tuple(map(int, axes)) for axes in pair] for pair in dimension_numbers)
    for what, pair in (("contracted", contract), ("batch", batch)):
        sizes = [tuple(x.shape[a] for a in axes) for x, axes in ((lhs, pair[0]), (rhs, pair[1]))]
        if sizes[0] != sizes[1]:
            raise TypeError(f"bcoo_dot_general: {what} sizes {sizes[0]} and {sizes[1]} must be equal.")
    if is_bcoo(lhs) and is_bcoo(rhs):
        return _sparse_product(lhs, rhs, contract, batch, preferred_element_type)
    if is_bcoo(lhs):
        return _dense_product(lhs, jnp.asarray(rhs), contract, batch, preferred_element_type)
    out = _dense_product(rhs, jnp.asarray(lhs), contract[::-1], batch[::-1], preferred_element_type)
    n, kept = len(batch[0]), rhs.ndim - len(contract[1])
    return jnp.transpose(out, (*range(n), *range(kept, out.ndim), *range(n, kept)))


@ranks_differ
def _dense_product(mat: Any, other: Any, contract: Sequence, batch: Sequence, dtype: Any) -> Any:
    """Batch axes, those of the sparse operand, then of the other: an element adds its value times a slice."""
    mat = layouts.with_fewer(mat, 0, 0)
    dtype = jnp.result_type(mat.data, other) if dtype is None else np.dtype(dtype)
    read = [*batch[0], *contract[0]]
    rest = [a for a in range(other.ndim) if a not in (*batch[1], *contract[1])]
    kept = [*batch[0], *(a for a in range(mat.ndim) if a not in read)]
    slices = jnp.transpose(other, (*batch[1], *contract[1], *rest))
    if read:
        slices = slices.at[tuple(mat.indices[:, a] for a in read)].get(mode="fill", fill_value=0)
    terms = mat.data.astype(dtype).reshape(-1, *(1,) * len(rest)) * slices.astype(dtype)
    if not kept:
        inside = (mat.indices < beyond(mat)).all(axis=-1)
        return jnp.where(inside.reshape(-1, *(1,) * len(rest)), terms, jnp.zeros((), dtype)).sum(axis=0, dtype=dtype)
    shape = tuple(mat.shape[a] for a in kept) + tuple(other.shape[a] for a in rest)
    return jnp.zeros(shape, dtype).at[tuple(mat.indices[:, a] for a in kept)].add(terms, mode="drop")


@ranks_differ
def _sparse_product(x: Any, y: Any, contract: Sequence, batch: Sequence, dtype: Any) -> Any:
    """A BCOO with the batch axes of the product, those of x, then of y; equal coordinates are summed."""
    if x.n_dense or y.n_dense:
        raise NotImplementedError(
            "bcoo_spdot_general does not support dense dimensions. Call update_layout(n_dense=0) first."
        )
    for mat, axes, shared in ((x, contract[0], batch[0]), (y, contract[1], batch[1])):
        if any(a >= mat.n_batch for a in shared):
            raise NotImplementedError(
                "bcoo_spdot_general: batch_dims must correspond to batch dimensions of the sparse representation."
            )
        if any(a < mat.n_batch for a in axes):
            raise NotImplementedError("bcoo_spdot_general only supports contraction of sparse indices.")
    if y.n_batch > len(batch[1]) and x.n_sparse > len(contract[0]):
        raise ValueError("bcoo_spdot_general: cannot have unused batch dims on rhs with unused sparse dims on lhs.")
    types = (ShapeDtypeStruct(z.shape, z.dtype) for z in (x, y))
    options = {"dimension_numbers": (contract, batch), "preferred_element_type": dtype}
    shape = eval_shape(lambda x, y: lax.dot_general(*_promoted(x, y), **options), *types).shape
    kept = [
        [a for a in range(z.n_sparse) if a + z.n_batch not in axes] for z, axes in ((x, contract[0]), (y, contract[1]))
    ]
    n = x.n_batch + y.n_batch - len(batch[0])
    nse = min((x.nse if kept[0] else 1) * (y.nse if kept[1] else 1), math.prod(shape[n:]))
    meet = [tuple(a - z.n_batch for a in axes) for z, axes in ((x, contract[0]), (y, contract[1]))]
    parts = []
    for z, shared in ((x, batch[0]), (y, batch[1])):
        front = [*shared, *(a for a in range(z.n_batch) if a not in shared)]
        data, indices = full_batches(z)
        parts += [data.transpose(*front, z.n_batch), indices.transpose(*front, z.n_batch, z.n_batch + 1)]
    one: Callable = partial(_pairs, x, y, meet, kept, shape[n:], nse, dtype)
    one = nfold_vmap(one, y.n_batch - len(batch[1]), in_axes=(None, None, 0, 0))
    one = nfold_vmap(one, x.n_batch - len(batch[0]), in_axes=(0, 0, None, None))
    data, indices = nfold_vmap(one, len(batch[0]))(*parts)
    return new_bcoo(data, indices, shape, True, True)


def _promoted(x: Any, y: Any) -> tuple[Any, Any]:
    dtype = jnp.result_type(x, y)
    return x.astype(dtype), y.astype(dtype)


def _pairs(
    x: Any, y: Any, meet: Sequence, kept: Sequence, shape: tuple[int, ...], nse: int, dtype: Any, *parts: Any
) -> tuple[Any, Any]:  # fmt: skip
    """A product for every pair of elements with equal coordinates along the contracted axes, equal places summed."""
    data, indices, others, places = parts
    pairs = len(data), len(others)
    inside = [(i < beyond(z)).all(axis=-1) for i, z in ((indices, x), (places, y))]
    same = inside[0][:, None] & inside[1]
    for a, b in zip(*meet, strict=True):
        same = same & (indices[:, a][:, None] == places[:, b])
    data, others = _promoted(data, others)
    if dtype is not None:
        data, others = data.astype(dtype), others.astype(dtype)
    found = jnp.where(same, data[:, None] * others, jnp.zeros((), data.dtype)).ravel()
    where = [jnp.broadcast_to(indices[:, a][:, None], pairs) for a in kept[0]]
    where += [jnp.broadcast_to(places[:, a], pairs) for a in kept[1]]
    where = [jnp.where(same, w, size).ravel() for w, size in zip(where, shape, strict=True)]
    coordinates = jnp.stack(where, axis=-1) if where else jnp.zeros((len(found), 0), indices.dtype)
    out = ops.bcoo_sum_duplicates(new_bcoo(found, coordinates.astype(indices.dtype), shape), nse=nse)
    return out.data, out.indices


def bcoo_dot_general_sampled(A: Any, B: Any, indices: Any, *, dimension_numbers: Any) -> Any:
    """The elements of a dense product at given coordinates.

    Each element is computed separately. If the product or the coordinates have batch or dense axes, the whole product
    is computed.

    >>> from mpijax.experimental import sparse
    >>> x = jnp.arange(4.0).reshape(2, 2)
    >>> sparse.bcoo_dot_general_sampled(x, x, jnp.array([[1, 0]]), dimension_numbers=(((1,), (0,)), ((), ())))
    Array([6.], dtype=float32)
    """
    A, B, indices = jnp.asarray(A), jnp.asarray(B), jnp.asarray(indices)
    contract, batch = ([tuple(map(int, axes)) for axes in pair] for pair in dimension_numbers)
    kept = [[a for a in range(x.ndim) if a not in axes] for x, axes in ((A, contract[0]), (B, contract[1]))]
    if any(batch) or indices.ndim != 2 or indices.shape[1] != len(kept[0]) + len(kept[1]) or not all(kept):
        return ops.extracted(indices, lax.dot_general(A, B, (contract, batch)))
    where, n = columns(indices), len(kept[0])
    rows = A.transpose(*kept[0], *contract[0]).at[where[:n]].get(mode="fill", fill_value=0)
    others = B.transpose(*kept[1], *contract[1]).at[where[n:]].get(mode="fill", fill_value=0)
    return (rows * others).sum(axis=tuple(range(1, rows.ndim)))


# ---------------------------------------------------------------- convolution


def bcoo_conv_general_dilated(lhs: Any, rhs: Any, **options: Any) -> Any:
    """`lax.conv_general_dilated` along one axis, with one channel, without strides or dilation. The result is a BCOO.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([[[0.0, 5.0, 0.0, 1.0]]]))
    >>> y = sparse.bcoo_conv_general_dilated(x, jnp.ones((1, 1, 2)), window_strides=(1,), padding="VALID")
    >>> y.todense().tolist()
    [[[5.0, 5.0, 1.0]]]
    """
    types = (ShapeDtypeStruct(x.shape, x.dtype) for x in (lhs, rhs))
    (eqn,) = make_jaxpr(lambda x, y: lax.conv_general_dilated(x, y, **options))(*types).jaxpr.eqns
    params = eqn.params
    for name in ("lhs_dilation", "rhs_dilation", "window_strides", "batch_group_count", "feature_group_count"):
        if any(n != 1 for n in np.ravel(params[name])):
            raise NotImplementedError(f"bcoo convolution does not support {name}={params[name]}. Call todense() first.")
    if lhs.ndim != 3 or lhs.shape[:2] != (1, 1) or rhs.shape[:2] != (1, 1):
        raise NotImplementedError(
            f"bcoo convolution needs leading dimensions (1, 1) and one spatial axis, got shapes {lhs.shape} and "
            f"{rhs.shape}. Call todense() first."
        )
    ((low, high),) = params["padding"]
    (data, places), (weights, taps) = _elements(lhs), _elements(rhs)
    size = max(0, lhs.shape[2] + low + high - rhs.shape[2] + 1)
    where = (places[:, None] + (low - taps)[None]).ravel()
    inside = (where >= 0) & (where < size)
    found = jnp.where(inside, (data[:, None] * weights[None]).ravel(), jnp.zeros((), data.dtype))
    return new_bcoo(found[None, None], jnp.where(inside, where, size)[None, None, :, None], (1, 1, size))


@ranks_differ
def _elements(x: Any) -> tuple[Any, Any]:
    """Values and positions along the last of three axes; a missing element is 0."""
    if not is_bcoo(x):
        return jnp.asarray(x)[0, 0], jnp.arange(x.shape[2], dtype="int32")
    mat = layouts.with_fewer(x, 0, 0)
    inside = over_dense((mat.indices < beyond(mat)).all(axis=-1), mat)
    return jnp.where(inside, mat.data, jnp.zeros((), mat.dtype)), mat.indices[:, 2]
