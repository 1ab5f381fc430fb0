"""Operations on one `BCOO` array, in terms of gathers and scatters of dense ones: traced, compiled, differentiable."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.experimental.sparse.util import (
    beyond,
    columns,
    full_batches,
    new_bcoo,
    nfold_vmap,
    over_dense,
    ranks_differ,
    sparse_shape,
)

# ---------------------------------------------------------------- dense and back


def bcoo_fromdense(
    mat: Any, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0, index_dtype: Any = None
) -> Any:
    """The elements of `mat` that are not 0, in row-major order; see `BCOO.fromdense`.

    Raises:
      ConcretizationTypeError: `mat` is traced and `nse` is not given.

    >>> from mpijax.experimental import sparse
    >>> sparse.bcoo_fromdense(jnp.array([[0, 5], [6, 0]])).indices
    Array([[0, 1],
           [1, 0]], dtype=int32)
    """
    mat = jnp.asarray(mat)
    sparse = mat.shape[n_batch : mat.ndim - n_dense]
    there = (mat != 0).any(axis=tuple(range(mat.ndim - n_dense, mat.ndim))) if n_dense else mat != 0
    if nse is None:
        nse = _largest(there.sum(axis=tuple(range(n_batch, there.ndim))))

    def one(values: Any, mask: Any) -> Any:
        if not sparse:
            first = jnp.arange(nse).reshape(-1, *(1,) * n_dense) == 0
            return jnp.where(first, values, jnp.zeros((), values.dtype)), jnp.zeros((nse, 0), "int32")
        found = jnp.nonzero(mask, size=nse, fill_value=tuple(sparse))
        return values.at[found].get(mode="fill", fill_value=0), jnp.stack(found, axis=-1)

    data, indices = nfold_vmap(one, n_batch, broadcasted=False)(mat, there)
    return new_bcoo(data, indices.astype(index_dtype or "int32"), mat.shape, True, True)


def _largest(counts: Any) -> int:
    return int(counts.max()) if counts.size else 0


def bcoo_todense(mat: Any) -> Any:
    """The dense array of a BCOO.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO((jnp.array([5, 6]), jnp.array([[2], [0]])), shape=(3,))
    >>> sparse.bcoo_todense(x)
    Array([6, 0, 5], dtype=int32)
    """

    def one(data: Any, indices: Any) -> Any:
        if not mat.n_sparse:
            return data.sum(axis=0, dtype=data.dtype)
        return jnp.zeros(mat.shape[mat.n_batch :], data.dtype).at[columns(indices)].add(data, mode="drop")

    return nfold_vmap(one, mat.n_batch)(*full_batches(mat))


def bcoo_extract(sparr: Any, arr: Any, *, assume_unique: bool | None = None) -> Any:
    """The values of a dense array at the coordinates of a BCOO, as a BCOO.

    assume_unique: whether all coordinates are distinct; default the attribute of the BCOO. Otherwise, the first of
    equal coordinates gets the value, and the others get 0.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([0, 5, 6]))
    >>> sparse.bcoo_extract(x, jnp.array([7, 8, 9])).data
    Array([8, 9], dtype=int32)
    """
    arr = jnp.asarray(arr)
    if arr.shape != sparr.shape:
        raise ValueError(f"bcoo_extract: shapes {sparr.shape} and {arr.shape} must be equal.")
    unique = sparr.unique_indices if assume_unique is None else assume_unique
    return sparr._with(extracted(sparr.indices, arr, assume_unique=unique))


def extracted(indices: Any, arr: Any, *, assume_unique: bool = True) -> Any:
    """Values of `arr` at coordinates `[*batch, nse, n_sparse]`."""

    def one(indices: Any, arr: Any) -> Any:
        if indices.shape[-1]:
            values = arr.at[columns(indices)].get(mode="fill", fill_value=0)
        else:
            values = jnp.broadcast_to(arr, (indices.shape[0], *arr.shape))
        if assume_unique:
            return values
        order, new = _runs(indices)
        first = jnp.zeros(len(order), bool).at[order].set(new)
        return jnp.where(first.reshape(-1, *(1,) * (values.ndim - 1)), values, jnp.zeros((), values.dtype))

    return nfold_vmap(one, indices.ndim - 2)(indices, arr)


# ---------------------------------------------------------------- order of coordinates


def _order(indices: Any) -> Any:
    return jnp.lexsort(columns(indices)[::-1]) if indices.shape[-1] else jnp.arange(indices.shape[0])


def _runs(indices: Any) -> tuple[Any, Any]:
    """The order of coordinates, and which differ in that order from the ones before them."""
    order = _order(indices)
    ordered = indices[order]
    differ = (ordered[1:] != ordered[:-1]).any(axis=-1)
    return order, jnp.concatenate([jnp.ones(min(len(order), 1), bool), differ])


def bcoo_sort_indices(mat: Any) -> Any:
    """The array with its coordinates in row-major order; missing elements come last.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO((jnp.array([5, 6]), jnp.array([[2], [0]])), shape=(3,))
    >>> sparse.bcoo_sort_indices(x).data
    Array([6, 5], dtype=int32)
    """
    order = nfold_vmap(_order, mat.n_batch, broadcasted=False)(mat.indices)
    take = lambda x, order: x[order]
    data = nfold_vmap(take, mat.n_batch)(mat.data, order)
    indices = nfold_vmap(take, mat.n_batch)(mat.indices, order)
    return new_bcoo(data, indices, mat.shape, True, mat.unique_indices)


@ranks_differ
def bcoo_sum_duplicates(mat: Any, nse: int | None = None) -> Any:
    """The array with sorted and distinct coordinates. Values at equal coordinates are added.

    `nse`: the number of stored elements; default the number of distinct coordinates. Required under `jit`.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO((jnp.array([5, 6]), jnp.array([[2], [2]])), shape=(3,))
    >>> sparse.bcoo_sum_duplicates(x).data
    Array([11], dtype=int32)
    """
    end = beyond(mat)

    def placed(indices: Any) -> Any:
        """For each element where it goes; the coordinates in order; how many there are."""
        inside = (indices < end).all(axis=-1)
        indices = jnp.where(inside[:, None], indices, end)
        order, new = _runs(indices)
        new = new & inside[order]
        place = jnp.where(inside[order], jnp.cumsum(new) - 1, len(order))
        return jnp.zeros(len(order), place.dtype).at[order].set(place), indices, new.sum()

    place, indices, counts = nfold_vmap(placed, mat.n_batch, broadcasted=False)(mat.indices)
    nse = _largest(counts) if nse is None else operator.index(nse)

    def summed(data: Any, place: Any) -> Any:
        return jnp.zeros((nse, *data.shape[1:]), data.dtype).at[_dropped(place)].add(data, mode="drop")

    def once(indices: Any, place: Any) -> Any:
        return jnp.broadcast_to(end, (nse, mat.n_sparse)).at[_dropped(place)].set(indices, mode="drop")

    def _dropped(place: Any) -> Any:
        return jnp.where(place < len(place), place, nse)

    data = nfold_vmap(summed, mat.n_batch)(mat.data, place)
    return new_bcoo(data, nfold_vmap(once, mat.n_batch)(indices, place), mat.shape, True, True)


def bcoo_eliminate_zeros(mat: Any, nse: int | None = None) -> Any:
    """The array without elements that are 0, with sorted and distinct coordinates. Values at equal coordinates are
    added.

    Do not differentiate it: the derivative of an element that happens to be 0 is lost.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO((jnp.array([5, 0]), jnp.array([[2], [1]])), shape=(3,))
    >>> sparse.bcoo.bcoo_eliminate_zeros(x).indices
    Array([[2]], dtype=int32)
    """
    zero = (mat.data == 0).all(axis=tuple(range(mat.n_batch + 1, mat.data.ndim)))
    shared = tuple(i for i in range(mat.n_batch) if mat.indices.shape[i] == 1)
    indices = jnp.where(zero.all(axis=shared, keepdims=True)[..., None], beyond(mat), mat.indices)
    return bcoo_sum_duplicates(new_bcoo(mat.data, indices, mat.shape), nse)


def set_nse(mat: Any, nse: int) -> Any:
    """The array with places for `nse` elements, at least as many as before."""
    more = [(0, 0)] * mat.n_batch + [(0, nse - mat.nse)]
    data = jnp.pad(mat.data, more + [(0, 0)] * mat.n_dense)
    fill = jnp.broadcast_to(beyond(mat), (*mat.indices.shape[:-2], nse - mat.nse, mat.n_sparse))
    indices = jnp.concatenate([mat.indices, fill], axis=-2)
    return new_bcoo(data, indices, mat.shape, mat.indices_sorted, mat.unique_indices)


# ---------------------------------------------------------------- axes


def _permutations(mat: Any, permutation: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """The permutations of the batch, the sparse and the dense axes, which cannot mix."""
    permutation, batch, last = tuple(permutation), mat.n_batch, mat.n_batch + mat.n_sparse
    if sorted(permutation) != list(range(mat.ndim)):
        raise TypeError(
            "transpose permutation isn't a permutation of operand dimensions, got permutation "
            f"{permutation} for shape {mat.shape}."
        )
    parts = permutation[:batch], permutation[batch:last], permutation[last:]
    if sorted(parts[0]) != list(range(batch)) or sorted(parts[1]) != list(range(batch, last)):
        raise NotImplementedError(
            f"transposing a BCOO of shape {mat.shape} by {permutation} is not supported: the permutation must not mix "
            f"batch axes ({batch}), sparse axes ({mat.n_sparse}) and dense axes. Call update_layout first to change "
            "which axes are which."
        )
    return list(parts[0]), [a - batch for a in parts[1]], [a - last for a in parts[2]]


def bcoo_transpose(mat: Any, *, permutation: Sequence[int]) -> Any:
    """The array with its axes in the order `permutation`, which must not mix batch, sparse and dense axes.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([[0, 5], [0, 6]]))
    >>> sparse.bcoo_transpose(x, permutation=(1, 0)).todense()
    Array([[0, 0],
           [5, 6]], dtype=int32)
    """
    batch, sparse, dense = _permutations(mat, permutation)
    n = mat.n_batch
    data = jnp.transpose(mat.data, (*batch, n, *(a + n + 1 for a in dense)))
    indices = jnp.transpose(mat.indices, (*batch, n, n + 1))[..., np.array(sparse, int)]
    in_order = mat.indices_sorted and sparse == sorted(sparse)
    return new_bcoo(data, indices, (mat.shape[a] for a in permutation), in_order, mat.unique_indices)


@ranks_differ
def bcoo_reshape(
    mat: Any, *, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None, sharding: Any = None
) -> Any:
    """The array with another shape of the same size. Batch, sparse and dense axes cannot mix. One size may be -1.

    dimensions: an order of the axes, applied first.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([[0, 5], [6, 0]]))
    >>> sparse.bcoo_reshape(x, new_sizes=(4,)).todense()
    Array([0, 5, 6, 0], dtype=int32)
    """
    if dimensions is not None:
        mat = bcoo_transpose(mat, permutation=dimensions)
    known = math.prod(n for n in new_sizes if n != -1)
    sizes = tuple(mat.size // max(known, 1) if n == -1 else n for n in new_sizes)
    if math.prod(sizes) != mat.size:
        raise ValueError(f"cannot reshape a BCOO of shape {mat.shape} into shape {tuple(new_sizes)}.")
    shape = sparse_shape(mat)
    first, last = _split_sizes(mat, sizes)
    data, indices = full_batches(mat)
    inside = (indices < beyond(mat)).all(axis=-1, keepdims=True)
    new = sizes[first:last]
    data = data.reshape(*sizes[:first], mat.nse, *sizes[last:])
    if new:
        flat = (
            jnp.ravel_multi_index(columns(indices), shape, mode="clip") if shape else jnp.zeros(indices.shape[:-1], int)
        )
        unraveled = jnp.stack(jnp.unravel_index(flat, new), axis=-1).astype(mat.indices.dtype)
        indices = jnp.where(inside, unraveled, np.array(new, mat.indices.dtype))
    else:
        inside = inside.reshape(*sizes[:first], mat.nse, *(1,) * (len(sizes) - last))
        data = jnp.where(inside, data, jnp.zeros((), mat.dtype))
        indices = indices[..., :0]
    indices = indices.reshape(*sizes[:first], mat.nse, len(new)).astype(mat.indices.dtype)
    return new_bcoo(data, indices, sizes, mat.indices_sorted, mat.unique_indices)


def _split_sizes(mat: Any, sizes: tuple[int, ...]) -> tuple[int, int]:
    """The positions in the new sizes at which the sparse and the dense axes begin."""
    batch, sparse = math.prod(mat.shape[: mat.n_batch]), math.prod(sparse_shape(mat))
    so_far = np.cumprod((1, *sizes))[1:].tolist()
    for what, size, both in (("batch and sparse", batch, batch), ("sparse and dense", sparse, batch * sparse)):
        if size != 1 and both not in so_far:
            raise ValueError(
                f"bcoo_reshape: new shape cannot mix {what} dimensions; got shape={mat.shape} new_shape={sizes} with "
                f"n_batch={mat.n_batch}, n_dense={mat.n_dense}. Call update_layout first to change which axes are "
                "which."
            )
    first, last = (int(np.searchsorted(so_far, n, side="right")) for n in (batch, batch * sparse))
    if not mat.n_batch:
        first = 0
    if not mat.n_dense:
        last = len(sizes)
    return first, last


@ranks_differ
def bcoo_reduce_sum(mat: Any, *, axes: Sequence[int]) -> Any:
    """Sums along axes. Coordinates of the result may be equal; the elements of summed batches are concatenated.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([[0, 5], [6, 1]]))
    >>> sparse.bcoo_reduce_sum(x, axes=(1,)).todense()
    Array([5, 7], dtype=int32)
    """
    n, last = mat.n_batch, mat.n_batch + mat.n_sparse
    summed = {operator.index(a) for a in axes}
    inside = over_dense((mat.indices < beyond(mat)).all(axis=-1), mat)
    data = jnp.where(inside, mat.data, jnp.zeros((), mat.dtype))
    data = data.sum(axis=tuple(a - mat.n_sparse + 1 for a in summed if a >= last), dtype=mat.dtype)
    indices = mat.indices[..., np.array([i for i in range(mat.n_sparse) if i + n not in summed], int)]
    gone, kept = sorted(a for a in summed if a < n), [a for a in range(n) if a not in summed]
    if gone:
        nse = mat.nse * math.prod(mat.shape[a] for a in gone)
        both = [mat.shape[a] if a in summed else 1 for a in range(n)]
        data, indices = (
            jnp.moveaxis(jnp.broadcast_to(x, (*map(max, x.shape[:n], both), *x.shape[n:])), gone, range(len(kept), n))
            for x in (data, indices)
        )
        data, indices = (x.reshape(*x.shape[: len(kept)], nse, *x.shape[n + 1 :]) for x in (data, indices))
    return new_bcoo(data, indices, (size for i, size in enumerate(mat.shape) if i not in summed))
