"""Sparse matrices as values, rows and columns: `COO`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

import mpijax.numpy as jnp
from mpijax.core.trees import tree
from mpijax.experimental.sparse import operations as ops
from mpijax.experimental.sparse.bcoo import BCOO
from mpijax.experimental.sparse.matrices import Matrix


class COOInfo(NamedTuple):
    """The attributes of a matrix besides its arrays, for primitives.

    >>> from mpijax.experimental import sparse
    >>> sparse.COO.fromdense(jnp.eye(2))._info
    COOInfo(shape=(2, 2), rows_sorted=True, cols_sorted=False)
    """

    shape: tuple[int, ...]
    rows_sorted: bool = False
    cols_sorted: bool = False


@tree.register_pytree_node_class
class COO(Matrix):
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

    _info = property(lambda self: COOInfo(self.shape, self._rows_sorted, self._cols_sorted))

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> COO:
        """The elements of a dense matrix that are not 0."""
        return coo_fromdense(mat, nse=nse, index_dtype=index_dtype)

    def to_bcoo(self) -> BCOO:
        """The same matrix as a BCOO."""
        return BCOO((self.data, jnp.stack([self.row, self.col], 1)), shape=self.shape, indices_sorted=self._rows_sorted)

    def _sort_indices(self) -> COO:
        """Elements in the order of rows."""
        order = jnp.lexsort((self.col, self.row))
        return COO((self.data[order], self.row[order], self.col[order]), shape=self.shape, rows_sorted=True)

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


def coo_fromdense(mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> COO:
    """The elements of a matrix that are not 0. `nse`: the number of stored elements, required under `jit`.

    >>> from mpijax.experimental import sparse
    >>> sparse.coo_fromdense(jnp.array([[0, 5], [6, 0]]))
    COO(int32[2, 2], nse=2)
    """
    found = ops.bcoo_fromdense(mat, nse=nse, index_dtype=index_dtype)
    return COO((found.data, found.indices[:, 0], found.indices[:, 1]), shape=found.shape, rows_sorted=True)


def coo_todense(mat: COO) -> Any:
    """The dense matrix of a COO.

    >>> from mpijax.experimental import sparse
    >>> sparse.coo_todense(sparse.coo_fromdense(jnp.array([[0, 5], [6, 0]]))).tolist()
    [[0, 5], [6, 0]]
    """
    return mat.todense()


def coo_matvec(mat: COO, v: Any, transpose: bool = False) -> Any:
    """The product of a matrix and a vector: `mat @ v`, or `mat.T @ v`.

    >>> from mpijax.experimental import sparse
    >>> sparse.coo_matvec(sparse.coo_fromdense(jnp.array([[0, 5], [6, 0]])), jnp.array([1, 2])).tolist()
    [10, 6]
    """
    return (mat.T if transpose else mat) @ v


def coo_matmat(mat: COO, B: Any, *, transpose: bool = False) -> Any:
    """The product of two matrices: `mat @ B`, or `mat.T @ B`.

    >>> from mpijax.experimental import sparse
    >>> sparse.coo_matmat(sparse.coo_fromdense(jnp.array([[0, 5], [6, 0]])), jnp.eye(2, dtype=int)).tolist()
    [[0, 5], [6, 0]]
    """
    return (mat.T if transpose else mat) @ B
