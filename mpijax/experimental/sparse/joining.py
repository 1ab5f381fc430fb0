"""`BCOO` arrays joined along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.experimental.sparse.layouts import bcoo_update_layout
from mpijax.experimental.sparse.operations import set_nse
from mpijax.experimental.sparse.util import beyond, full_batches, new_bcoo, ranks_differ


def bcoo_concatenate(operands: Sequence[Any], *, dimension: int) -> Any:
    """BCOO arrays joined along a batch or sparse axis.

    All operands need the same numbers of batch and dense axes, with one exception: the first axis may be a batch axis
    of some operands and a sparse axis of others if it has size 1 in all of one kind. An axis made by `x[None]` is one.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([0, 5]))
    >>> sparse.bcoo_concatenate([x, x], dimension=0).todense()
    Array([0, 5, 0, 5], dtype=int32)
    """
    operands = _with_equal_first_axes(operands)
    first = operands[0]
    shape, n = list(first.shape), first.n_batch
    for mat in operands:
        if mat.ndim != len(shape) or any(a != b for i, (a, b) in enumerate(zip(mat.shape, shape)) if i != dimension):
            raise ValueError(
                f"bcoo_concatenate along {dimension}: shapes {[m.shape for m in operands]} are incompatible."
            )
    shape[dimension] = sum(mat.shape[dimension] for mat in operands)
    if len({(mat.n_batch, mat.n_dense) for mat in operands}) > 1:
        raise ValueError(
            "bcoo_concatenate requires inputs to have matching batch and dense dimensions, got n_batch "
            f"{[m.n_batch for m in operands]} and n_dense {[m.n_dense for m in operands]}. Call update_layout first."
        )
    if dimension >= n + first.n_sparse:
        raise NotImplementedError(
            "Concatenation along dense dimensions is not supported. Call update_layout(n_dense=0) first."
        )
    if dimension < n:
        nse = max(mat.nse for mat in operands)
        parts = [full_batches(set_nse(mat, nse)) for mat in operands]
        data, indices = (jnp.concatenate(x, axis=dimension) for x in zip(*parts, strict=True))
        return new_bcoo(data, indices, shape)
    return _joined_along_sparse(operands, tuple(shape), dimension - n)


def _with_equal_first_axes(operands: Sequence[Any]) -> list[Any]:
    """The operands with the first axis a batch axis of all, or of none, if a change of axes of size 1 achieves that."""
    if {mat.n_batch for mat in operands} == {0, 1}:
        for old, new in ((0, 1), (1, 0)):
            if all(mat.shape[0] == 1 for mat in operands if mat.n_batch == old):
                return [bcoo_update_layout(mat, n_batch=new) if mat.n_batch == old else mat for mat in operands]
    return list(operands)


@ranks_differ
def _joined_along_sparse(operands: Sequence[Any], shape: tuple[int, ...], axis: int) -> Any:
    n, start, parts = operands[0].n_batch, 0, []
    end = np.array(shape[n : n + operands[0].n_sparse])
    for mat in operands:
        data, indices = full_batches(mat) if n else (mat.data, mat.indices)
        inside = (indices < beyond(mat)).all(axis=-1, keepdims=True)
        shift = np.zeros(mat.n_sparse, indices.dtype)
        shift[axis] = start
        moved = jnp.where(inside, indices + shift, end.astype(indices.dtype))
        parts.append((data, moved.astype(operands[0].indices.dtype)))
        start += mat.shape[n + axis]
    data, indices = (jnp.concatenate(x, axis=n) for x in zip(*parts, strict=True))
    return new_bcoo(data, indices, shape)
