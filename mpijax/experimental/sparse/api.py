"""Constructors of sparse arrays (zeros, identity), and conversion to dense arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.trees import tree
from mpijax.experimental.sparse.base import JAXSparse
from mpijax.experimental.sparse.bcoo import BCOO
from mpijax.experimental.sparse.bcsr import BCSR
from mpijax.experimental.sparse.coo import COO
from mpijax.experimental.sparse.csr import CSC, CSR
from mpijax.experimental.sparse.matrices import starts_of
from mpijax.experimental.sparse.primitives import todense_p


def is_sparse(x: Any) -> bool:
    """Whether x is a sparse array.

    >>> from mpijax.experimental import sparse
    >>> sparse.is_sparse(jnp.zeros(3))
    False
    """
    return isinstance(x, JAXSparse)


def todense(arr: Any) -> Any:
    """A tree with its sparse arrays as dense arrays; other leaves do not change.

    >>> from mpijax.experimental import sparse
    >>> sparse.todense({"a": sparse.eye(2), "b": 1})
    {'a': Array([[1., 0.],
           [0., 1.]], dtype=float32), 'b': 1}
    """
    return tree.tree_map(_dense, arr, is_leaf=is_sparse)


def _dense(x: Any) -> Any:
    if is_sparse(x):
        return x.todense()
    # Under `sparsify` a tracer may stand for a sparse array.
    return todense_p.bind(x, tree=tree.tree_structure(0)) if isinstance(x, Tracer) else x


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
    """A sparse array of zeros, with no stored element, or with `nse` stored elements.

    >>> from mpijax.experimental import sparse
    >>> sparse.empty((2, 3)).todense().shape
    (2, 3)
    """
    nse, n_batch, n_dense = (kwds.get(name, 0) for name in ("nse", "n_batch", "n_dense"))
    shape = tuple(shape)
    batch, sparse, dense = shape[:n_batch], shape[n_batch : len(shape) - n_dense], shape[len(shape) - n_dense :]
    if n_batch + n_dense > len(shape) or min(nse, n_batch, n_dense) < 0:
        raise ValueError(f"Invalid inputs: {shape=}, {n_dense=}, {n_batch=}, {nse=}")
    indices = jnp.broadcast_to(jnp.array(sparse, index_dtype), (*batch, nse, len(sparse)))
    mat = BCOO(
        (jnp.zeros((*batch, nse, *dense), dtype), indices), shape=shape, indices_sorted=True, unique_indices=True
    )
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
    """A sparse matrix of shape (N, M) with ones on its k-th diagonal.

    >>> from mpijax.experimental import sparse
    >>> sparse.eye(2).todense()
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    columns = N if M is None else M
    n_batch, n_dense = kwds.get("n_batch", 0), kwds.get("n_dense", 0)
    if min(n_batch, n_dense) < 0 or n_batch + n_dense > 2:
        raise ValueError(f"Invalid inputs: shape={(N, columns)}, {n_dense=}, {n_batch=}")
    if n_batch or n_dense:
        options = {"n_batch": n_batch, "n_dense": n_dense, "index_dtype": index_dtype}
        return _in_format(BCOO.fromdense(jnp.eye(N, columns, k, dtype=dtype), **options), sparse_format)
    count = max(0, min(N, columns - k) if k >= 0 else min(N + k, columns))
    along = np.arange(count)
    indices = np.stack([along - min(k, 0), along + max(k, 0)], axis=1).astype(index_dtype)
    mat = BCOO((jnp.ones(count, dtype), indices), shape=(N, columns), indices_sorted=True, unique_indices=True)
    return _in_format(mat, sparse_format)
