"""The class `BCOO`. Its methods call functions of `operations`. JAX has all functions of BCOOs in this module."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import mpijax.numpy as jnp
from mpijax.core.trees import tree
from mpijax.experimental.sparse import layouts
from mpijax.experimental.sparse import operations as ops
from mpijax.experimental.sparse.base import JAXSparse
from mpijax.experimental.sparse.joining import bcoo_concatenate
from mpijax.experimental.sparse.layouts import (
    bcoo_broadcast_in_dim,
    bcoo_dynamic_slice,
    bcoo_gather,
    bcoo_rev,
    bcoo_slice,
    bcoo_squeeze,
    bcoo_update_layout,
)
from mpijax.experimental.sparse.operations import (
    bcoo_eliminate_zeros,
    bcoo_extract,
    bcoo_fromdense,
    bcoo_reduce_sum,
    bcoo_reshape,
    bcoo_sort_indices,
    bcoo_sum_duplicates,
    bcoo_todense,
    bcoo_transpose,
)
from mpijax.experimental.sparse.products import (
    bcoo_conv_general_dilated,
    bcoo_dot_general,
    bcoo_dot_general_sampled,
    bcoo_multiply_dense,
    bcoo_multiply_sparse,
)
from mpijax.experimental.sparse.util import SparseInfo, check_parts, classes
from mpijax.transforms.vmappable import register_vmappable

__all__ = [
    "BCOO", "bcoo_broadcast_in_dim", "bcoo_concatenate", "bcoo_conv_general_dilated", "bcoo_dot_general",
    "bcoo_dot_general_sampled", "bcoo_dynamic_slice", "bcoo_eliminate_zeros", "bcoo_extract", "bcoo_fromdense",
    "bcoo_gather", "bcoo_multiply_dense", "bcoo_multiply_sparse", "bcoo_reduce_sum", "bcoo_reshape", "bcoo_rev",
    "bcoo_slice", "bcoo_sort_indices", "bcoo_squeeze", "bcoo_sum_duplicates", "bcoo_todense", "bcoo_transpose",
    "bcoo_update_layout",
]  # fmt: skip


class BCOO(JAXSparse):
    """A sparse array: values and their coordinates. It is a pytree of these two arrays.

    Its axes are batch axes, then sparse axes, then dense axes. Coordinates outside of the shape mean no element. So
    `nse`, the number of stored elements, can be larger than the number of elements.

    Args:
      args: `(data, indices)`: data of shape (*batch, nse, *dense), and integer indices of shape (*batch, nse, number of
        sparse axes).
      shape: shape of the array.
      indices_sorted, unique_indices: whether the coordinates are sorted, and whether they are distinct.

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
        check_parts(self.data.shape, self.indices, self.shape)

    # ---------------------------------------------------------------- what it is

    nse = property(lambda self: self.indices.shape[-2])  # type: ignore[assignment]
    n_batch = property(lambda self: self.indices.ndim - 2)
    n_sparse = property(lambda self: self.indices.shape[-1])
    n_dense = property(lambda self: self.data.ndim - self.n_batch - 1)

    _info = property(lambda self: SparseInfo(self.shape, self.indices_sorted, self.unique_indices))
    _bufs = property(lambda self: (self.data, self.indices))

    def tree_flatten(self) -> tuple[tuple[Any, Any], dict[str, Any]]:
        return (self.data, self.indices), self._info._asdict()

    @classmethod
    def tree_unflatten(cls, aux_data: dict[str, Any], children: Sequence[Any]) -> BCOO:
        """Without checks: transformations put other objects in place of arrays."""
        out = object.__new__(cls)
        out.data, out.indices = children
        out.__dict__.update(aux_data)
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
        """The elements of a dense array that are not 0. `nse`: the number of stored elements, required under `jit`."""
        return ops.bcoo_fromdense(mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch)

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0) -> BCOO:
        """The sparse array of a matrix of scipy.sparse."""
        if n_dense or n_batch:
            raise NotImplementedError(
                "BCOO.from_scipy_sparse does not support n_dense or n_batch, which matrices of SciPy do not have."
            )
        found = mat.tocoo()
        indices = jnp.stack([jnp.asarray(found.row), jnp.asarray(found.col)], axis=1)
        return cls((found.data, indices.astype(index_dtype or "int32")), shape=mat.shape)

    def todense(self) -> Any:
        """The dense array; elements at equal coordinates are added."""
        return ops.bcoo_todense(self)

    # ---------------------------------------------------------------- operations

    def transpose(self, axes: Sequence[int] | None = None) -> BCOO:
        """The array with its axes in another order, reversed by default. Batch, sparse and dense axes cannot mix."""
        return ops.bcoo_transpose(self, permutation=tuple(range(self.ndim))[::-1] if axes is None else tuple(axes))

    def update_layout(
        self, *, n_batch: int | None = None, n_dense: int | None = None, on_inefficient: str | None = "error"
    ) -> BCOO:
        """The same array with other numbers of batch and dense axes; see `bcoo_update_layout`."""
        return layouts.bcoo_update_layout(self, n_batch=n_batch, n_dense=n_dense, on_inefficient=on_inefficient)

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCOO:
        """The array with sorted and distinct coordinates. `nse` is required under `jit`.

        remove_zeros: do not store elements that are 0. Do not differentiate such a function.
        """
        return ops.bcoo_eliminate_zeros(self, nse) if remove_zeros else ops.bcoo_sum_duplicates(self, nse)

    def sort_indices(self) -> BCOO:
        """The array with its coordinates in row-major order."""
        return ops.bcoo_sort_indices(self)

    def __iter__(self) -> Any:
        mat: Any = self
        return iter(mat[i] for i in range(mat.shape[0]))

    __jax_array__ = None


tree.register_pytree_node_class(BCOO)
classes["BCOO"] = BCOO


# ---------------------------------------------------------------- as an argument and a result of vmap


register_vmappable(BCOO, int, int, layouts.example, layouts.examples, None)
