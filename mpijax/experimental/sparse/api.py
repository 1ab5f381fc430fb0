"""Making sparse arrays: of zeros, the identity, at random; and dense arrays of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import random
from mpijax.core import tree
from mpijax.experimental.sparse.base import JAXSparse
from mpijax.experimental.sparse.bcoo import BCOO
from mpijax.experimental.sparse.bcsr import BCSR
from mpijax.experimental.sparse.matrices import COO, CSC, CSR, starts_of


def is_sparse(x: Any) -> bool:
    """Whether x is a sparse array.

    >>> from mpijax.experimental import sparse
    >>> sparse.is_sparse(jnp.zeros(3))
    False
    """
    return isinstance(x, JAXSparse)


def todense(arr: Any) -> Any:
    """Sparse arrays in a tree as dense ones; other leaves as they are.

    >>> from mpijax.experimental import sparse
    >>> sparse.todense({"a": sparse.eye(2), "b": 1})
    {'a': Array([[1., 0.],
           [0., 1.]], dtype=float32), 'b': 1}
    """
    return tree.tree_map(lambda x: x.todense() if is_sparse(x) else x, arr, is_leaf=is_sparse)


def _in_format(mat: BCOO, sparse_format: str) -> JAXSparse:
    """A matrix without missing elements, sorted by rows, in another format."""
    if sparse_format == "bcoo":
        return mat
    if mat.ndim != 2:
        raise ValueError(f"sparse_format={sparse_format!r} must have ndim=2; got shape={mat.shape}")
    if sparse_format == "bcsr":
        return BCSR.from_bcoo(mat)
    rows, columns = mat.indices[:, 0], mat.indices[:, 1]
    if sparse_format == "coo":
        return COO((mat.data, rows, columns), shape=mat.shape, rows_sorted=True, cols_sorted=True)
    if sparse_format == "csr":
        return CSR((mat.data, columns, starts_of(rows, mat.shape[0])), shape=mat.shape)
    if sparse_format == "csc":
        return CSC((mat.data, rows, starts_of(columns, mat.shape[1])), shape=mat.shape)
    raise ValueError(f"sparse_format={sparse_format!r} not recognized; must be one of bcoo, bcsr, coo, csr, csc")


def empty(
    shape: Sequence[int], dtype: Any = None, index_dtype: Any = "int32", sparse_format: str = "bcoo", **kwds: Any
) -> JAXSparse:
    """A sparse array of zeros, with no element stored, or `nse` of them.

    >>> from mpijax.experimental import sparse
    >>> sparse.empty((2, 3)).todense().shape
    (2, 3)
    """
    nse = kwds.get("nse", 0)
    indices = jnp.broadcast_to(jnp.array(tuple(shape), index_dtype), (nse, len(shape)))
    mat = BCOO((jnp.zeros(nse, dtype), indices), shape=tuple(shape), indices_sorted=True, unique_indices=nse < 2)
    return _in_format(mat, sparse_format)


def eye(
    N: int,
    M: int | None = None,
    k: int = 0,
    dtype: Any = None,
    index_dtype: Any = "int32",
    sparse_format: str = "bcoo",
    **kwds: Any,
) -> JAXSparse:
    """A matrix (N, M) with ones on its k-th diagonal.

    >>> from mpijax.experimental import sparse
    >>> sparse.eye(2).todense()
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    columns = N if M is None else M
    count = max(0, min(N, columns - k) if k >= 0 else min(N + k, columns))
    along = np.arange(count)
    indices = np.stack([along - min(k, 0), along + max(k, 0)], axis=1).astype(index_dtype)
    mat = BCOO((jnp.ones(count, dtype), indices), shape=(N, columns), indices_sorted=True, unique_indices=True)
    return _in_format(mat, sparse_format)


def random_bcoo(
    key: Any,
    shape: Sequence[int],
    *,
    dtype: Any = np.float32,
    indices_dtype: Any = None,
    nse: float = 0.2,
    n_batch: int = 0,
    n_dense: int = 0,
    unique_indices: bool = True,
    sorted_indices: bool = False,
    generator: Any = None,
    **kwds: Any,
) -> BCOO:
    """A sparse array with elements at random coordinates: `nse` of them, or a share of all below 1.

    >>> from mpijax.experimental import sparse
    >>> sparse.random_bcoo(mpijax.random.key(0), (4, 5), nse=3).nse
    3
    """
    if n_batch or n_dense:
        raise NotImplementedError("random_bcoo with n_batch or n_dense; use vmap over keys.")
    size = math.prod(shape)
    count = int(math.ceil(nse * size)) if nse < 1 else int(nse)
    places, values = random.split(key)
    flat = random.choice(places, size, (count,), replace=not unique_indices)
    flat = jnp.sort(flat) if sorted_indices else flat
    indices = jnp.stack(jnp.unravel_index(flat, tuple(shape)), axis=-1).astype(indices_dtype or "int32")
    draw = random.uniform if generator is None else generator
    data = draw(values, shape=(count,), dtype=dtype, **kwds)
    return BCOO((data, indices), shape=tuple(shape), indices_sorted=sorted_indices, unique_indices=unique_indices)
