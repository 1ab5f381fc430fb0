"""The class `BCOO`. What its methods do is in `operations`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import mpijax.numpy as jnp
from mpijax.core import tree
from mpijax.experimental.sparse import operations as ops
from mpijax.experimental.sparse.base import JAXSparse


class BCOO(JAXSparse):
    """A sparse array: values and their coordinates. A pytree of the two.

    Its axes are batch axes, then sparse ones, then dense ones. Coordinates beyond the shape mean no element: so `nse`,
    the number of elements stored, can be larger than what is there.

    Args:
      args: `(data, indices)`: data of shape (*batch, nse, *dense), indices (*batch, nse, number of sparse axes),
        integers.
      shape: of the array.
      indices_sorted, unique_indices: what is known about the coordinates.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO((jnp.array([5.0, 6.0]), jnp.array([[0, 1], [1, 0]])), shape=(2, 2))
    >>> x.todense()
    Array([[0., 5.],
           [6., 0.]], dtype=float32)
    """

    def __init__(
        self,
        args: tuple[Any, Any],
        *,
        shape: Sequence[int],
        indices_sorted: bool = False,
        unique_indices: bool = False,
    ):
        data, indices = args
        self.data, self.indices = jnp.asarray(data), jnp.asarray(indices)
        self.shape = tuple(operator.index(n) for n in shape)
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        ops.check_parts(self.data.shape, self.indices, self.shape)

    # ---------------------------------------------------------------- what it is

    nse = property(lambda self: self.indices.shape[-2])  # type: ignore[assignment]
    n_batch = property(lambda self: self.indices.ndim - 2)
    n_sparse = property(lambda self: self.indices.shape[-1])
    n_dense = property(lambda self: self.data.ndim - self.n_batch - 1)

    def tree_flatten(self) -> tuple[tuple[Any, Any], tuple]:
        return (self.data, self.indices), (self.shape, self.indices_sorted, self.unique_indices)

    @classmethod
    def tree_unflatten(cls, aux_data: tuple, children: Sequence[Any]) -> BCOO:
        """Without checks: transformations put other objects in place of arrays."""
        out = object.__new__(cls)
        out.data, out.indices = children
        out.shape, out.indices_sorted, out.unique_indices = aux_data
        return out

    def _with(self, data: Any) -> BCOO:
        """Other values at the same coordinates."""
        return BCOO(
            (data, self.indices),
            shape=self.shape,
            indices_sorted=self.indices_sorted,
            unique_indices=self.unique_indices,
        )

    # ---------------------------------------------------------------- to and from dense arrays

    @classmethod
    def fromdense(
        cls, mat: Any, *, nse: int | None = None, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0
    ) -> BCOO:
        """The elements of a dense array that are not 0; `nse` of them, which must be given under `jit`."""
        return ops.bcoo_fromdense(mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch)

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0) -> BCOO:
        """A matrix of scipy.sparse."""
        if n_dense or n_batch:
            raise NotImplementedError("BCOO.from_scipy_sparse with n_dense or n_batch; matrices of SciPy have neither.")
        found = mat.tocoo()
        indices = jnp.stack([jnp.asarray(found.row), jnp.asarray(found.col)], axis=1)
        return cls((found.data, indices.astype(index_dtype or "int32")), shape=mat.shape)

    def todense(self) -> Any:
        """The dense array; elements at equal coordinates are added."""
        return ops.bcoo_todense(self)

    # ---------------------------------------------------------------- operations

    def transpose(self, axes: Sequence[int] | None = None) -> BCOO:
        """Axes in another order, reversed by default; batch, sparse and dense ones stay among themselves."""
        return ops.bcoo_transpose(self, permutation=tuple(range(self.ndim))[::-1] if axes is None else tuple(axes))

    def sum(self, axis: int | Sequence[int] | None = None) -> BCOO:
        """Sums along axes, all by default."""
        axes = range(self.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        return ops.bcoo_reduce_sum(self, axes=tuple(a % self.ndim for a in axes))

    def reshape(self, *shape: Any) -> BCOO:
        """Another shape with the same elements."""
        new = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return ops.bcoo_reshape(self, new_sizes=tuple(new))

    def astype(self, dtype: Any) -> BCOO:
        """Values of another dtype."""
        return self._with(self.data.astype(dtype))

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCOO:
        """Sorted coordinates, each once; `nse` is needed under `jit`."""
        return ops.bcoo_sum_duplicates(self, nse=nse, remove_zeros=remove_zeros)

    def sort_indices(self) -> BCOO:
        """Coordinates in the order of rows."""
        return ops.bcoo_sort_indices(self)

    def __matmul__(self, other: Any) -> Any:
        return ops.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return ops.matmul(other, self)

    def __mul__(self, other: Any) -> BCOO:
        return ops.multiply(self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> BCOO:
        return ops.multiply(self, 1 / jnp.asarray(other))

    def __neg__(self) -> BCOO:
        return self._with(-self.data)

    def __pos__(self) -> BCOO:
        return self

    def __abs__(self) -> BCOO:
        unique = self if self.unique_indices else self.sum_duplicates(nse=self.nse)
        return unique._with(abs(unique.data))

    def __add__(self, other: Any) -> Any:
        return ops.add(self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return ops.add(self, -other)

    def __rsub__(self, other: Any) -> Any:
        return ops.add(-self, other)

    __jax_array__ = None


tree.register_pytree_node_class(BCOO)
