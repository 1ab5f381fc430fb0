"""Sparse matrices in JAX's older formats, `COO`, `CSR` and `CSC`: other ways to write a `BCOO`, which computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

import mpijax.numpy as jnp
from mpijax.core import tree
from mpijax.experimental.sparse import operations as ops
from mpijax.experimental.sparse.base import JAXSparse
from mpijax.experimental.sparse.bcoo import BCOO


def rows_of(indptr: Any, nse: int) -> Any:
    """The row of each element, from where the rows begin; elements behind the last row are in none."""
    return jnp.zeros(nse, indptr.dtype).at[indptr].add(1, mode="drop").cumsum() - 1


def starts_of(rows: Any, count: int) -> Any:
    """Where each of `count` rows begins among sorted elements, and where the last one ends."""
    counts = jnp.zeros(count, rows.dtype).at[rows].add(1, mode="drop")
    return jnp.concatenate([jnp.zeros(1, rows.dtype), jnp.cumsum(counts).astype(rows.dtype)])


class _Matrix(JAXSparse):
    """A matrix that is written as a BCOO to be computed with."""

    nse = property(lambda self: self.data.size)  # type: ignore[assignment]

    def to_bcoo(self) -> BCOO:
        raise NotImplementedError

    def todense(self) -> Any:
        return self.to_bcoo().todense()

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, JAXSparse):
            raise NotImplementedError("matmul between two sparse objects.")
        return self.to_bcoo() @ jnp.asarray(other)


@tree.register_pytree_node_class
class COO(_Matrix):
    """A matrix as values, rows and columns: `COO((data, row, col), shape=(n, m))`.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.COO((jnp.array([5.0, 6.0]), jnp.array([0, 1]), jnp.array([1, 0])), shape=(2, 2))
    >>> x @ jnp.array([1.0, 10.0])
    Array([50.,  6.], dtype=float32)
    """

    def __init__(
        self, args: tuple[Any, Any, Any], *, shape: Sequence[int], rows_sorted: bool = False, cols_sorted: bool = False
    ):
        self.data, self.row, self.col = map(jnp.asarray, args)
        self.shape, self._rows_sorted, self._cols_sorted = tuple(shape), rows_sorted, cols_sorted

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> COO:
        """The elements that are not 0."""
        return coo_fromdense(mat, nse=nse, index_dtype=index_dtype)

    def to_bcoo(self) -> BCOO:
        """The same as a BCOO."""
        return BCOO((self.data, jnp.stack([self.row, self.col], 1)), shape=self.shape, indices_sorted=self._rows_sorted)

    def transpose(self, axes: Any = None) -> COO:
        if axes is not None:
            raise NotImplementedError("axes argument to transpose()")
        return COO(
            (self.data, self.col, self.row), shape=self.shape[::-1],
            rows_sorted=self._cols_sorted, cols_sorted=self._rows_sorted,
        )  # fmt: skip

    def tree_flatten(self) -> tuple[Any, Any]:
        aux = {"shape": self.shape, "rows_sorted": self._rows_sorted, "cols_sorted": self._cols_sorted}
        return (self.data, self.row, self.col), aux

    @classmethod
    def tree_unflatten(cls, aux_data: Any, children: Any) -> Self:
        out = object.__new__(cls)
        out.data, out.row, out.col = children
        out.shape, out._rows_sorted, out._cols_sorted = aux_data.values()
        return out


class _Compressed(_Matrix):
    """Values, their positions in a row (or column), and where the rows (or columns) begin."""

    def __init__(self, args: tuple[Any, Any, Any], *, shape: Sequence[int]):
        self.data, self.indices, self.indptr = map(jnp.asarray, args)
        self.shape = tuple(shape)

    def tree_flatten(self) -> tuple[Any, Any]:
        return (self.data, self.indices, self.indptr), {"shape": self.shape}

    @classmethod
    def tree_unflatten(cls, aux_data: Any, children: Any) -> Self:
        out = object.__new__(cls)
        out.data, out.indices, out.indptr = children
        out.shape = aux_data["shape"]
        return out


@tree.register_pytree_node_class
class CSR(_Compressed):
    """A matrix by rows: `CSR((data, columns, starts of rows), shape=(n, m))`.

    >>> from mpijax.experimental import sparse
    >>> sparse.CSR.fromdense(jnp.array([[0.0, 5.0], [6.0, 0.0]])).indptr
    Array([0, 1, 2], dtype=int32)
    """

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> CSR:
        """The elements that are not 0."""
        return csr_fromdense(mat, nse=nse, index_dtype=index_dtype)

    def to_bcoo(self) -> BCOO:
        """The same as a BCOO."""
        return BCOO((self.data, jnp.stack([rows_of(self.indptr, self.nse), self.indices], 1)), shape=self.shape)

    def transpose(self, axes: Any = None) -> CSC:
        return CSC((self.data, self.indices, self.indptr), shape=self.shape[::-1])


@tree.register_pytree_node_class
class CSC(_Compressed):
    """A matrix by columns: `CSC((data, rows, starts of columns), shape=(n, m))`.

    >>> from mpijax.experimental import sparse
    >>> sparse.CSC.fromdense(jnp.array([[0.0, 5.0], [6.0, 0.0]])).todense()
    Array([[0., 5.],
           [6., 0.]], dtype=float32)
    """

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> CSC:
        """The elements that are not 0."""
        return csr_fromdense(jnp.asarray(mat).T, nse=nse, index_dtype=index_dtype).transpose()

    def to_bcoo(self) -> BCOO:
        """The same as a BCOO."""
        return BCOO((self.data, jnp.stack([self.indices, rows_of(self.indptr, self.nse)], 1)), shape=self.shape)

    def transpose(self, axes: Any = None) -> CSR:
        return CSR((self.data, self.indices, self.indptr), shape=self.shape[::-1])


# ---------------------------------------------------------------- functions


def coo_fromdense(mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> COO:
    """The elements of a matrix that are not 0; `nse` of them, which must be given under `jit`.

    >>> from mpijax.experimental import sparse
    >>> sparse.coo_fromdense(jnp.array([[0, 5], [6, 0]]))
    COO(int32[2, 2], nse=2)
    """
    found = ops.bcoo_fromdense(mat, nse=nse, index_dtype=index_dtype)
    return COO((found.data, found.indices[:, 0], found.indices[:, 1]), shape=found.shape, rows_sorted=True)


def csr_fromdense(mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> CSR:
    """The elements of a matrix that are not 0, by rows; `nse` of them, which must be given under `jit`.

    >>> from mpijax.experimental import sparse
    >>> sparse.csr_fromdense(jnp.array([[0, 5], [6, 0]])).indices
    Array([1, 0], dtype=int32)
    """
    found = ops.bcoo_fromdense(mat, nse=nse, index_dtype=index_dtype)
    rows, columns = found.indices[:, 0], found.indices[:, 1]
    return CSR((found.data, columns, starts_of(rows, found.shape[0])), shape=found.shape)


def _todense(mat: Any) -> Any:
    """The dense matrix.

    >>> from mpijax.experimental import sparse
    >>> sparse.csr_todense(sparse.csr_fromdense(jnp.array([[0, 5], [6, 0]]))).tolist()
    [[0, 5], [6, 0]]
    """
    return mat.todense()


def _product(mat: Any, other: Any, transpose: bool = False) -> Any:
    """`mat @ other`, or `mat.T @ other`.

    >>> from mpijax.experimental import sparse
    >>> sparse.csr_matvec(sparse.csr_fromdense(jnp.array([[0, 5], [6, 0]])), jnp.array([1, 2])).tolist()
    [10, 6]
    """
    return (mat.T if transpose else mat) @ other


coo_todense = csr_todense = _todense
coo_matvec = coo_matmat = csr_matvec = csr_matmat = _product
