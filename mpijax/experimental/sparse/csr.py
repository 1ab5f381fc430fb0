"""Sparse matrices by rows and by columns: `CSR` and `CSC`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

import mpijax.numpy as jnp
from mpijax.core.trees import tree
from mpijax.experimental.sparse import operations as ops
from mpijax.experimental.sparse.bcoo import BCOO
from mpijax.experimental.sparse.matrices import Matrix, rows_of, starts_of


class _Compressed(Matrix):
    """Values, their positions in a row (or column), and the starts of rows (or columns)."""

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
        """The elements of a dense matrix that are not 0."""
        return csr_fromdense(mat, nse=nse, index_dtype=index_dtype)

    def to_bcoo(self) -> BCOO:
        """The same matrix as a BCOO."""
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
        """The elements of a dense matrix that are not 0."""
        return csr_fromdense(jnp.asarray(mat).T, nse=nse, index_dtype=index_dtype).transpose()

    def to_bcoo(self) -> BCOO:
        """The same matrix as a BCOO."""
        return BCOO((self.data, jnp.stack([self.indices, rows_of(self.indptr, self.nse)], 1)), shape=self.shape)

    def transpose(self, axes: Any = None) -> CSR:
        return CSR((self.data, self.indices, self.indptr), shape=self.shape[::-1])


def csr_fromdense(mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> CSR:
    """The elements of a matrix that are not 0, by rows. `nse`: the number of stored elements, required under `jit`.

    >>> from mpijax.experimental import sparse
    >>> sparse.csr_fromdense(jnp.array([[0, 5], [6, 0]])).indices
    Array([1, 0], dtype=int32)
    """
    found = ops.bcoo_fromdense(mat, nse=nse, index_dtype=index_dtype)
    rows, columns = found.indices[:, 0], found.indices[:, 1]
    return CSR((found.data, columns, starts_of(rows, found.shape[0])), shape=found.shape)


def csr_todense(mat: CSR) -> Any:
    """The dense matrix of a CSR.

    >>> from mpijax.experimental import sparse
    >>> sparse.csr_todense(sparse.csr_fromdense(jnp.array([[0, 5], [6, 0]]))).tolist()
    [[0, 5], [6, 0]]
    """
    return mat.todense()


def csr_matvec(mat: CSR, v: Any, transpose: bool = False) -> Any:
    """The product of a matrix and a vector: `mat @ v`, or `mat.T @ v`.

    >>> from mpijax.experimental import sparse
    >>> sparse.csr_matvec(sparse.csr_fromdense(jnp.array([[0, 5], [6, 0]])), jnp.array([1, 2])).tolist()
    [10, 6]
    """
    return (mat.T if transpose else mat) @ v


def csr_matmat(mat: CSR, B: Any, *, transpose: bool = False) -> Any:
    """The product of two matrices: `mat @ B`, or `mat.T @ B`.

    >>> from mpijax.experimental import sparse
    >>> sparse.csr_matmat(sparse.csr_fromdense(jnp.array([[0, 5], [6, 0]])), jnp.eye(2, dtype=int)).tolist()
    [[0, 5], [6, 0]]
    """
    return (mat.T if transpose else mat) @ B
