"""`BCSR`: sparse arrays by rows, with batch axes. Operations convert it to a `BCOO`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.core.trees import tree
from mpijax.experimental.sparse import layouts, products
from mpijax.experimental.sparse import operations as ops
from mpijax.experimental.sparse.base import JAXSparse
from mpijax.experimental.sparse.bcoo import BCOO
from mpijax.experimental.sparse.joining import bcoo_concatenate
from mpijax.experimental.sparse.matrices import rows_of, starts_of
from mpijax.experimental.sparse.util import SparseInfo, nfold_vmap, ranks_differ
from mpijax.transforms.vmappable import register_vmappable


@tree.register_pytree_node_class
class BCSR(JAXSparse):
    """Sparse matrices by rows: values, columns, and starts of rows. They may have leading batch axes and trailing dense
    axes.

    Args:
      args: `(data, indices, indptr)`: data of shape (*batch, nse, *dense), indices of shape (*batch, nse), indptr of
        shape (*batch, rows + 1).
      shape: shape of the array.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCSR((jnp.array([5.0, 6.0]), jnp.array([1, 0]), jnp.array([0, 1, 2])), shape=(2, 2))
    >>> x @ jnp.array([1.0, 10.0])
    Array([50.,  6.], dtype=float32)
    """

    def __init__(
        self, args: tuple[Any, Any, Any], *, shape: Sequence[int], indices_sorted: bool = False,
        unique_indices: bool = False,
    ):  # fmt: skip
        self.data, self.indices, self.indptr = map(jnp.asarray, args)
        self.shape = tuple(operator.index(n) for n in shape)
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        batch = self.n_batch
        if self.n_dense < 0 or self.data.shape[batch:] != (self.nse, *self.shape[batch + 2 :]):
            raise ValueError(
                f"BCSR: data of shape {self.data.shape} and indices of shape {self.indices.shape} do not match an "
                f"array of shape {self.shape}: data must have shape (*batch, nse, *dense), and indices (*batch, nse)."
            )
        if self.indptr.shape[batch:] != (self.shape[batch] + 1,):
            raise ValueError("indptr shape must match the matrix shape plus 1.")

    nse = property(lambda self: self.indices.shape[-1])  # type: ignore[assignment]
    n_batch = property(lambda self: self.indices.ndim - 1)
    n_sparse = property(lambda self: 2)
    n_dense = property(lambda self: len(self.shape) - 2 - self.n_batch)

    _info = property(lambda self: SparseInfo(self.shape, self.indices_sorted, self.unique_indices))
    _bufs = property(lambda self: (self.data, self.indices, self.indptr))
    _sparse_shape = property(lambda self: self.shape[self.n_batch : self.n_batch + 2])

    def tree_flatten(self) -> tuple[Any, Any]:
        return self._bufs, self._info._asdict()

    @classmethod
    def tree_unflatten(cls, aux_data: Any, children: Any) -> BCSR:
        out = object.__new__(cls)
        out.data, out.indices, out.indptr = children
        out.__dict__.update(aux_data)
        return out

    @classmethod
    def fromdense(
        cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32, n_dense: int = 0, n_batch: int = 0
    ) -> BCSR:
        """The elements of a dense array that are not 0. `nse`: the number of stored elements, required under `jit`."""
        return bcsr_fromdense(mat, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype)

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0) -> BCSR:
        """The BCSR of a matrix of scipy.sparse."""
        if n_dense or n_batch:
            raise NotImplementedError("BCSR from_scipy_sparse with nonzero n_dense/n_batch.")
        found, integers = mat.tocsr(), index_dtype or np.int32
        return cls((found.data, found.indices.astype(integers), found.indptr.astype(integers)), shape=found.shape)

    @classmethod
    def from_bcoo(cls, arr: BCOO) -> BCSR:
        """The BCSR of a BCOO with two sparse axes."""
        if arr.n_sparse != 2:
            raise NotImplementedError(f"BSCR.from_bcoo requires n_sparse=2; got {arr.n_sparse=}")
        arr = arr if arr.indices_sorted else arr.sort_indices()
        starts = nfold_vmap(lambda rows: starts_of(rows, arr.shape[arr.n_batch]), arr.n_batch)
        parts = arr.data, arr.indices[..., 1], starts(arr.indices[..., 0])
        return cls(parts, shape=arr.shape, indices_sorted=True, unique_indices=arr.unique_indices)

    @ranks_differ
    def to_bcoo(self) -> BCOO:
        """The same array as a BCOO."""
        dtype = self.indices.dtype
        rows = nfold_vmap(lambda starts: rows_of(starts, self.nse), self.n_batch)(self.indptr).astype(dtype)
        indices = jnp.stack(jnp.broadcast_arrays(rows, self.indices), axis=-1)
        # Entries after the last row are padding.
        outside = jnp.arange(self.nse, dtype=self.indptr.dtype) >= self.indptr[..., -1:]
        indices = jnp.where(outside[..., None], np.array(self._sparse_shape, dtype), indices)
        return BCOO((self.data, indices), **self._info._asdict())

    def _with(self, data: Any) -> BCSR:
        """Other values at the same coordinates."""
        return BCSR((data, self.indices, self.indptr), **self._info._asdict())

    def todense(self) -> Any:
        return self.to_bcoo().todense()

    def transpose(self, axes: Any = None) -> Any:
        raise NotImplementedError("BCSR does not support transpose. Use to_bcoo().transpose()")

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCSR:
        """The array with sorted and distinct coordinates. `nse` is required under `jit`."""
        return (bcsr_eliminate_zeros if remove_zeros else bcsr_sum_duplicates)(self, nse)


def _as_bcoo(x: Any) -> Any:
    return x.to_bcoo() if isinstance(x, BCSR) else x


def bcsr_fromdense(
    mat: Any, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0, index_dtype: Any = np.int32
) -> BCSR:
    """The elements of `mat` that are not 0, by rows; see `BCSR.fromdense`.

    >>> from mpijax.experimental import sparse
    >>> sparse.bcsr_fromdense(jnp.array([[0, 5], [6, 0]])).indptr
    Array([0, 1, 2], dtype=int32)
    """
    mat = jnp.asarray(mat)
    if mat.ndim - n_batch - n_dense != 2:
        raise ValueError("bcsr_fromdense: must have 2 sparse dimensions.")
    found = ops.bcoo_fromdense(mat, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype)
    return BCSR.from_bcoo(found)


def bcsr_todense(mat: BCSR) -> Any:
    """The dense array of a BCSR.

    >>> from mpijax.experimental import sparse
    >>> sparse.bcsr_todense(sparse.BCSR.fromdense(jnp.array([[0, 5], [6, 0]])))
    Array([[0, 5],
           [6, 0]], dtype=int32)
    """
    return mat.todense()


@ranks_differ
def bcsr_extract(indices: Any, indptr: Any, mat: Any) -> Any:
    """The values of a dense matrix at the coordinates of a BCSR.

    >>> from mpijax.experimental import sparse
    >>> sparse.bcsr_extract(jnp.array([1, 0]), jnp.array([0, 1, 2]), jnp.array([[1, 2], [3, 4]]))
    Array([2, 3], dtype=int32)
    """
    mat, n = jnp.asarray(mat), indices.ndim - 1
    rows = nfold_vmap(lambda starts: rows_of(starts, indices.shape[-1]), n)(indptr).astype(indices.dtype)
    outside = (jnp.arange(indices.shape[-1], dtype=indptr.dtype) >= indptr[..., -1:])[..., None]
    where = jnp.stack(jnp.broadcast_arrays(rows, indices), axis=-1)
    return ops.extracted(jnp.where(outside, np.array(mat.shape[n : n + 2], where.dtype), where), mat)


def bcsr_eliminate_zeros(mat: BCSR, nse: int | None = None) -> BCSR:
    """The array without elements that are 0, with sorted and distinct coordinates. Values at equal coordinates are
    added.

    >>> from mpijax.experimental import sparse
    >>> mat = sparse.BCSR((jnp.array([5, 0]), jnp.array([1, 0]), jnp.array([0, 1, 2])), shape=(2, 2))
    >>> sparse.bcsr.bcsr_eliminate_zeros(mat).indptr
    Array([0, 1, 1], dtype=int32)
    """
    return BCSR.from_bcoo(ops.bcoo_eliminate_zeros(mat.to_bcoo(), nse))


def bcsr_sum_duplicates(mat: BCSR, nse: int | None = None) -> BCSR:
    """The array with sorted and distinct coordinates. Values at equal coordinates are added. `nse` is required under
    `jit`.

    >>> from mpijax.experimental import sparse
    >>> mat = sparse.BCSR.fromdense(jnp.array([[0, 5], [6, 0]]))
    >>> sparse.bcsr_sum_duplicates(mat).todense().tolist()
    [[0, 5], [6, 0]]
    """
    return BCSR.from_bcoo(ops.bcoo_sum_duplicates(mat.to_bcoo(), nse=nse))


def bcsr_dot_general(lhs: Any, rhs: Any, *, dimension_numbers: Any, **options: Any) -> Any:
    """`lax.dot_general` of a BCSR with an array.

    >>> from mpijax.experimental import sparse
    >>> mat = sparse.BCSR.fromdense(jnp.array([[0, 5], [6, 0]]))
    >>> sparse.bcsr_dot_general(mat, jnp.array([1, 2]), dimension_numbers=(([1], [0]), ([], []))).tolist()
    [10, 6]
    """
    return products.bcoo_dot_general(_as_bcoo(lhs), _as_bcoo(rhs), dimension_numbers=dimension_numbers, **options)


def bcsr_concatenate(operands: Sequence[BCSR], *, dimension: int) -> BCSR:
    """BCSR matrices joined along an axis.

    >>> from mpijax.experimental import sparse
    >>> mat = sparse.BCSR.fromdense(jnp.array([[0, 5]]))
    >>> sparse.bcsr_concatenate([mat, mat], dimension=0).todense().tolist()
    [[0, 5], [0, 5]]
    """
    return BCSR.from_bcoo(bcoo_concatenate([x.to_bcoo() for x in operands], dimension=dimension))


def bcsr_broadcast_in_dim(
    mat: BCSR, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], sharding: Any = None
) -> BCSR:
    """A BCSR repeated along new axes; see `bcoo_broadcast_in_dim`.

    >>> from mpijax.experimental import sparse
    >>> mat = sparse.BCSR.fromdense(jnp.array([[0, 5]]))
    >>> sparse.bcsr_broadcast_in_dim(mat, shape=(1, 2), broadcast_dimensions=(0, 1)).shape
    (1, 2)
    """
    wide = layouts.bcoo_broadcast_in_dim(mat.to_bcoo(), shape=shape, broadcast_dimensions=broadcast_dimensions)
    return BCSR.from_bcoo(wide)


register_vmappable(BCSR, int, int, layouts.example, layouts.examples, None)
