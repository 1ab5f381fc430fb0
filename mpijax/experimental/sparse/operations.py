"""Operations on `BCOO` arrays, in terms of gathers and scatters of dense ones: traced, compiled, differentiable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.core import dtypes, provided
from mpijax.transforms.vmap import vmap


def new_bcoo(data: Any, indices: Any, shape: Sequence[int], sorted_: bool = False, unique: bool = False) -> Any:
    return provided.BCOO((data, indices), shape=tuple(shape), indices_sorted=sorted_, unique_indices=unique)


def is_bcoo(x: Any) -> bool:
    return hasattr(x, "indices") and hasattr(x, "nse") and not hasattr(x, "indptr")


def check_parts(data: tuple[int, ...], indices: Any, shape: tuple[int, ...]) -> None:
    """Raise ValueError or TypeError unless values and coordinates are of an array of that shape."""
    if indices.ndim < 2 or not dtypes.issubdtype(indices.dtype, np.integer):
        raise TypeError(
            f"BCOO indices must be integers of shape (*batch, nse, n_sparse), got {indices.dtype}{list(indices.shape)}."
        )
    batch, (nse, sparse) = indices.ndim - 2, indices.shape[-2:]
    dense = len(data) - batch - 1
    fits = (
        dense >= 0
        and batch + sparse + dense == len(shape)
        and data[batch] == nse
        and all(n in (1, full) for n, full in zip(indices.shape[:batch], shape))
        and all(n in (1, full) for n, full in zip(data[:batch], shape))
        and data[batch + 1 :] == shape[batch + sparse :]
    )
    if not fits:
        raise ValueError(
            f"BCOO: data of shape {data} and indices of shape {indices.shape} are not of an array of shape {shape}: "
            "data is (*batch, nse, *dense), indices (*batch, nse, n_sparse)."
        )


def without_batch(x: Any, what: str) -> Any:
    """x, where it has sparse axes only."""
    if x.n_batch or x.n_dense:
        raise NotImplementedError(
            f"{what} of a BCOO with batch or dense axes (n_batch={x.n_batch}, n_dense={x.n_dense}); use vmap over the "
            "batch, or todense()."
        )
    return x


def _columns(indices: Any) -> tuple[Any, ...]:
    return tuple(indices[..., i] for i in range(indices.shape[-1]))


# ---------------------------------------------------------------- dense and back


def bcoo_fromdense(
    mat: Any, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0, index_dtype: Any = None
) -> Any:
    """The elements of `mat` that are not 0, in the order of rows; see `BCOO.fromdense`.

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
    if not sparse:
        nse = 1
    if nse is None:
        counts = there.sum(axis=tuple(range(n_batch, there.ndim)))
        nse = int(counts.max()) if counts.size else 0

    def one(values: Any, mask: Any) -> Any:
        if not sparse:
            return values[None], jnp.zeros((1, 0), "int32")
        found = jnp.nonzero(mask, size=nse, fill_value=tuple(sparse))
        return values.at[found].get(mode="fill", fill_value=0), jnp.stack(found, axis=-1)

    for _ in range(n_batch):
        one = vmap(one)
    data, indices = one(mat, there)
    return new_bcoo(data, indices.astype(index_dtype or "int32"), mat.shape, True, True)


def bcoo_todense(mat: Any) -> Any:
    """The dense array of a BCOO.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO((jnp.array([5, 6]), jnp.array([[2], [0]])), shape=(3,))
    >>> sparse.bcoo_todense(x)
    Array([6, 0, 5], dtype=int32)
    """

    def one(data: Any, indices: Any) -> Any:
        shape = mat.shape[mat.n_batch :]
        if not mat.n_sparse:
            return data.sum(axis=0)
        return jnp.zeros(shape, data.dtype).at[_columns(indices)].add(data, mode="drop")

    batch = mat.shape[: mat.n_batch]
    data = jnp.broadcast_to(mat.data, (*batch, *mat.data.shape[mat.n_batch :]))
    indices = jnp.broadcast_to(mat.indices, (*batch, *mat.indices.shape[mat.n_batch :]))
    for _ in batch:
        one = vmap(one)
    return one(data, indices)


def bcoo_extract(sparr: Any, arr: Any) -> Any:
    """The values of a dense array at the coordinates of a BCOO, as a BCOO.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([0, 5, 6]))
    >>> sparse.bcoo_extract(x, jnp.array([7, 8, 9])).data
    Array([8, 9], dtype=int32)
    """
    mat = without_batch(sparr, "bcoo_extract")
    if tuple(arr.shape) != mat.shape:
        raise ValueError(f"bcoo_extract: shapes {mat.shape} and {tuple(arr.shape)} must be equal.")
    data = jnp.asarray(arr).at[_columns(mat.indices)].get(mode="fill", fill_value=0)
    return new_bcoo(data, mat.indices, mat.shape, mat.indices_sorted, mat.unique_indices)


# ---------------------------------------------------------------- order of coordinates, axes


def bcoo_sort_indices(mat: Any) -> Any:
    """Coordinates in the order of rows; missing ones come last.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO((jnp.array([5, 6]), jnp.array([[2], [0]])), shape=(3,))
    >>> sparse.bcoo_sort_indices(x).data
    Array([6, 5], dtype=int32)
    """
    columns = _columns(without_batch(mat, "bcoo_sort_indices").indices)
    order = jnp.lexsort(columns[::-1]) if columns else jnp.arange(mat.nse)
    return new_bcoo(mat.data[order], mat.indices[order], mat.shape, True, mat.unique_indices)


def bcoo_sum_duplicates(mat: Any, nse: int | None = None, remove_zeros: bool = True) -> Any:
    """Equal coordinates once, with the sum of their values, sorted.

    `nse` elements are stored, by default as many as there are, which under `jit` must be given. Zeros stay in any case.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO((jnp.array([5, 6]), jnp.array([[2], [2]])), shape=(3,))
    >>> sparse.bcoo_sum_duplicates(x).data
    Array([11], dtype=int32)
    """
    mat = bcoo_sort_indices(without_batch(mat, "bcoo_sum_duplicates"))
    columns, shape = _columns(mat.indices), np.array(mat.shape)
    inside = (mat.indices < shape).all(axis=-1) if columns else jnp.ones(mat.nse, bool)
    same = jnp.stack([c[1:] == c[:-1] for c in columns]).all(axis=0) if columns else jnp.ones(mat.nse - 1, bool)
    first = inside & jnp.concatenate([jnp.ones(min(mat.nse, 1), bool), ~same])
    if nse is None:
        nse = int(first.sum())
    place = jnp.where(inside, jnp.cumsum(first) - 1, nse)
    data = jnp.zeros((nse,), mat.dtype).at[place].add(mat.data, mode="drop")
    empty = jnp.broadcast_to(jnp.asarray(shape, mat.indices.dtype), (nse, mat.n_sparse))
    return new_bcoo(data, empty.at[place].set(mat.indices, mode="drop"), mat.shape, True, True)


def bcoo_transpose(mat: Any, *, permutation: Sequence[int]) -> Any:
    """Axes in the order `permutation`, which keeps batch, sparse and dense axes among themselves.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([[0, 5], [0, 6]]))
    >>> sparse.bcoo_transpose(x, permutation=(1, 0)).todense()
    Array([[0, 0],
           [5, 6]], dtype=int32)
    """
    batch, sparse = mat.n_batch, mat.n_sparse
    parts = permutation[:batch], permutation[batch : batch + sparse], permutation[batch + sparse :]
    kept = sorted(parts[0]) == list(range(batch)) and sorted(parts[1]) == list(range(batch, batch + sparse))
    if sorted(permutation) != list(range(mat.ndim)) or not kept:
        raise NotImplementedError(
            f"transposing a BCOO of shape {mat.shape} by {tuple(permutation)}: batch axes ({batch}), sparse axes "
            f"({sparse}) and dense axes must stay among themselves."
        )
    dense = [a - batch - sparse + batch + 1 for a in parts[2]]
    data = jnp.transpose(mat.data, (*parts[0], batch, *dense))
    indices = jnp.transpose(mat.indices, (*parts[0], batch, batch + 1))[..., np.array(parts[1], int) - batch]
    shape = tuple(mat.shape[a] for a in permutation)
    return new_bcoo(data, indices, shape, False, mat.unique_indices)


def bcoo_reshape(mat: Any, *, new_sizes: Sequence[int]) -> Any:
    """Another shape of the same size; one size may be -1.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([[0, 5], [6, 0]]))
    >>> sparse.bcoo_reshape(x, new_sizes=(4,)).todense()
    Array([0, 5, 6, 0], dtype=int32)
    """
    mat = without_batch(mat, "bcoo_reshape")
    known = math.prod(n for n in new_sizes if n != -1)
    sizes = tuple(mat.size // max(known, 1) if n == -1 else n for n in new_sizes)
    if math.prod(sizes) != mat.size:
        raise ValueError(f"cannot reshape a BCOO of shape {mat.shape} into shape {tuple(new_sizes)}.")
    inside = (mat.indices < np.array(mat.shape)).all(axis=-1)
    flat = jnp.ravel_multi_index(_columns(mat.indices), mat.shape, mode="clip")
    moved = jnp.stack(jnp.unravel_index(flat, sizes), axis=-1)
    indices = jnp.where(inside[:, None], moved, np.array(sizes)).astype(mat.indices.dtype)
    return new_bcoo(mat.data, indices, sizes, mat.indices_sorted, mat.unique_indices)


def bcoo_reduce_sum(mat: Any, *, axes: Sequence[int]) -> Any:
    """Sums along axes, which may be sparse or dense ones. Coordinates may then be equal.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([[0, 5], [6, 1]]))
    >>> sparse.bcoo_reduce_sum(x, axes=(1,)).todense()
    Array([5, 7], dtype=int32)
    """
    if any(a < mat.n_batch for a in axes):
        raise NotImplementedError(f"sums of a BCOO along batch axes (n_batch={mat.n_batch}, axes={tuple(axes)}).")
    last = mat.n_batch + mat.n_sparse
    gone = {a - mat.n_batch for a in axes if a < last}
    kept = [i for i in range(mat.n_sparse) if i not in gone]
    data = mat.data
    outside = (mat.indices >= np.array(mat.shape[mat.n_batch : last])).any(axis=-1)
    data = jnp.where(outside.reshape(*outside.shape, *(1,) * mat.n_dense), 0, data)
    data = data.sum(axis=tuple(a - mat.n_sparse + 1 for a in axes if a >= last))
    shape = tuple(n for i, n in enumerate(mat.shape) if i not in axes)
    return new_bcoo(data, mat.indices[..., np.array(kept, int)], shape)


def bcoo_concatenate(operands: Sequence[Any], *, dimension: int) -> Any:
    """BCOO arrays joined along an axis.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([0, 5]))
    >>> sparse.bcoo_concatenate([x, x], dimension=0).todense()
    Array([0, 5, 0, 5], dtype=int32)
    """
    first = without_batch(operands[0], "bcoo_concatenate")
    shape, start, indices = list(first.shape), 0, []
    for mat in operands:
        rest = without_batch(mat, "bcoo_concatenate").shape
        if any(n != m for i, (n, m) in enumerate(zip(rest, shape)) if i != dimension) or len(rest) != len(shape):
            raise ValueError(f"bcoo_concatenate along {dimension}: shapes {[m.shape for m in operands]} do not fit.")
        outside = (mat.indices >= np.array(mat.shape)).any(axis=-1, keepdims=True)
        shift = np.array([start if i == dimension else 0 for i in range(mat.ndim)])
        indices.append(jnp.where(outside, np.iinfo(np.int32).max, mat.indices + shift))
        start += mat.shape[dimension]
    shape[dimension] = start
    joined = jnp.concatenate(indices).astype(first.indices.dtype)
    return new_bcoo(jnp.concatenate([m.data for m in operands]), joined, shape)


# ---------------------------------------------------------------- elementwise operations


def bcoo_multiply_dense(sp_mat: Any, v: Any) -> Any:
    """A BCOO times an array that broadcasts to it: a value for each element stored.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([0, 5, 6]))
    >>> sparse.bcoo_multiply_dense(x, jnp.array([1, 2, 3]))
    BCOO(int32[3], nse=2)
    """
    mat, v = sp_mat, jnp.asarray(v)
    if v.ndim == 0:
        return new_bcoo(mat.data * v, mat.indices, mat.shape, mat.indices_sorted, mat.unique_indices)
    spread = jnp.broadcast_to(v, mat.shape)
    factor = spread.at[_columns(without_batch(mat, "bcoo_multiply_dense").indices)].get(mode="fill", fill_value=0)
    return new_bcoo(mat.data * factor, mat.indices, mat.shape, mat.indices_sorted, mat.unique_indices)


def bcoo_multiply_sparse(lhs: Any, rhs: Any) -> Any:
    """Products of the elements at equal coordinates; stores as many as the smaller operand, duplicates added before.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([0, 5, 6]))
    >>> y = sparse.BCOO.fromdense(jnp.array([2, 2, 0]))
    >>> sparse.bcoo_multiply_sparse(x, y).todense()
    Array([ 0, 10,  0], dtype=int32)
    """
    if lhs.shape != rhs.shape:
        raise ValueError(f"bcoo_multiply_sparse: shapes {lhs.shape} and {rhs.shape} must be equal.")
    small, large = (lhs, rhs) if lhs.nse <= rhs.nse else (rhs, lhs)
    small = small if small.unique_indices else bcoo_sum_duplicates(small, nse=small.nse)
    equal = (small.indices[:, None] == large.indices[None]).all(axis=-1)
    return new_bcoo(small.data * (equal @ large.data), small.indices, small.shape, small.indices_sorted, True)


def multiply(x: Any, y: Any) -> Any:
    return bcoo_multiply_sparse(x, y) if is_bcoo(y) else bcoo_multiply_dense(x, y)


def add(x: Any, y: Any) -> Any:
    """The sum: a BCOO of two of them, a dense array with a dense one."""
    if not is_bcoo(y):
        return bcoo_todense(x) + y
    if x.shape != y.shape:
        raise ValueError(f"BCOO addition: shapes {x.shape} and {y.shape} must be equal.")
    dtype = jnp.result_type(x.data, y.data)
    without_batch(x, "addition"), without_batch(y, "addition")
    data = jnp.concatenate([x.data.astype(dtype), y.data.astype(dtype)])
    return new_bcoo(data, jnp.concatenate([x.indices, y.indices.astype(x.indices.dtype)]), x.shape)


# ---------------------------------------------------------------- products


def matmul(x: Any, y: Any) -> Any:
    """`x @ y` of matrices and vectors, one of them a BCOO at least."""
    if len(x.shape) not in (1, 2) or len(y.shape) not in (1, 2):
        raise NotImplementedError(
            f"products of a BCOO are of matrices and vectors, got shapes {tuple(x.shape)} and {tuple(y.shape)}; use "
            "bcoo_dot_general, or vmap over a batch."
        )
    return bcoo_dot_general(x, y, dimension_numbers=(((len(x.shape) - 1,), (0,)), ((), ())))


def bcoo_dot_general(
    lhs: Any, rhs: Any, *, dimension_numbers: Any, precision: Any = None, preferred_element_type: Any = None
) -> Any:
    """`lax.dot_general` of a BCOO with an array (an array), or of two BCOOs (a BCOO of nse1 * nse2 elements).

    Raises:
      TypeError: shapes do not fit. NotImplementedError: batch axes.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> columns_with_rows = (((1,), (0,)), ((), ()))
    >>> sparse.bcoo_dot_general(x, jnp.array([1.0, 10.0]), dimension_numbers=columns_with_rows)
    Array([20.,  3.], dtype=float32)
    """
    (lhs_contract, rhs_contract), batch = dimension_numbers
    if tuple(map(tuple, batch)) != ((), ()):
        raise NotImplementedError("bcoo_dot_general with batch axes; use vmap.")
    sizes = [tuple(x.shape[a] for a in axes) for x, axes in ((lhs, lhs_contract), (rhs, rhs_contract))]
    if sizes[0] != sizes[1]:
        raise TypeError(f"bcoo_dot_general: contracted sizes {sizes[0]} and {sizes[1]} must be equal.")
    if is_bcoo(lhs) and is_bcoo(rhs):
        out = _sparse_product(lhs, rhs, tuple(lhs_contract), tuple(rhs_contract))
    elif is_bcoo(lhs):
        out = _dense_product(lhs, jnp.asarray(rhs), tuple(lhs_contract), tuple(rhs_contract))
    else:
        out = _dense_product(rhs, jnp.asarray(lhs), tuple(rhs_contract), tuple(lhs_contract))
        kept = rhs.ndim - len(rhs_contract)
        out = jnp.transpose(out, (*range(kept, out.ndim), *range(kept)))
    return out if preferred_element_type is None else out.astype(preferred_element_type)


def _dense_product(mat: Any, other: Any, contract: tuple[int, ...], other_contract: tuple[int, ...]) -> Any:
    """Axes of the sparse operand, then of the other: each element adds its value times a slice of the other."""
    mat = without_batch(mat, "a product")
    rest = [a for a in range(other.ndim) if a not in other_contract]
    kept = [a for a in range(mat.ndim) if a not in contract]
    slices = jnp.transpose(other, (*other_contract, *rest))
    if contract:
        slices = slices.at[tuple(mat.indices[:, a] for a in contract)].get(mode="fill", fill_value=0)
    else:
        slices = jnp.broadcast_to(slices, (mat.nse, *slices.shape))
    terms = mat.data.reshape(-1, *(1,) * len(rest)) * slices
    shape = tuple(mat.shape[a] for a in kept) + tuple(other.shape[a] for a in rest)
    if not kept:
        return terms.sum(axis=0)
    return jnp.zeros(shape, terms.dtype).at[tuple(mat.indices[:, a] for a in kept)].add(terms, mode="drop")


def _sparse_product(x: Any, y: Any, x_contract: tuple[int, ...], y_contract: tuple[int, ...]) -> Any:
    """A product for every pair of elements with equal coordinates along the contracted axes."""
    x, y = without_batch(x, "a product"), without_batch(y, "a product")
    pairs = x.nse, y.nse
    meet = jnp.ones(pairs, bool)
    for a, b in zip(x_contract, y_contract):
        meet = meet & (x.indices[:, a][:, None] == y.indices[:, b]) & (x.indices[:, a] < x.shape[a])[:, None]
    data = jnp.where(meet, x.data[:, None] * y.data, 0).ravel()
    columns, shape = [], []
    for mat, contract, spread in ((x, x_contract, lambda c: c[:, None]), (y, y_contract, lambda c: c)):
        for axis in (a for a in range(mat.ndim) if a not in contract):
            size = mat.shape[axis]
            columns.append(jnp.where(meet, jnp.broadcast_to(spread(mat.indices[:, axis]), pairs), size).ravel())
            shape.append(size)
    indices = jnp.stack(columns, axis=-1) if columns else jnp.zeros((data.shape[0], 0), "int32")
    return new_bcoo(data, indices, shape)
