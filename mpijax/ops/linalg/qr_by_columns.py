"""QR factorization of a matrix whose columns are split over ranks, by Householder reflections.

Processes block columns from left to right. The owner factors a block column with LAPACK, all ranks receive its
reflections, and each applies them to its own later columns. Q is then built backwards, from this rank's columns of the
identity. So Q and R equal those of LAPACK on the whole matrix. A rank sends somewhat more than the matrix, and stores
at most its columns of the matrix, of Q and R, and one block column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpijax.core.rules.registry import registry
from mpijax.core.sharding.cuts import Cut, Span
from mpijax.core.types.typeof import typeof
from mpijax.ops.collectives.permutations import pbroadcast
from mpijax.ops.indexing.slicing import concatenate, slice_in_dim
from mpijax.ops.linalg.matrices import eye, upper_triangle
from mpijax.ops.rules import const_like
from mpijax.ops.shapes.creation import full
from mpijax.ops.shapes.padding import pad


def by_block_columns(rows: int, columns: Cut, of_q: Cut, me: int) -> Callable[..., Any]:
    """This rank's columns of Q and R. of_q: the cut of the min(rows, columns) columns of Q."""
    blocks = [(k, begin, end) for k, (begin, end) in enumerate(columns.spans) if begin < min(end, rows)]

    def program(x: Any) -> list[Any]:
        mine: Any = None
        r = []
        for k, begin, end in blocks:
            few = min(end, rows) - begin
            if me == k:
                x, factors = mine = registry["geqrf"].bind(x)
            last = end == columns.size
            if not last:
                panel, factors = _sent(mine if me == k else None, (rows - begin, end - begin), x.dtype, columns, k, 0)
            if me > k and not last:
                x = registry["ormqr"].bind(panel, factors, x, left=True, transpose=True)
            top = slice_in_dim(x, 0, few) if me >= k else full((few, typeof(x).shape[1]), 0, x.dtype)
            r.append(upper_triangle(top) if me == k else top)
            x = slice_in_dim(x, few, None)
        identity, at = _columns_of_identity(rows, of_q.part(me), x.dtype), rows
        q = slice_in_dim(identity, rows, None)  # the rows from `at` on: those before are still the identity's
        for k, begin, end in reversed(blocks):
            panel, factors = _sent(mine if me == k else None, (rows - begin, end - begin), x.dtype, columns, k, 1)
            if of_q.part(me)[1] > begin:  # earlier columns are 0 in the rows that the reflections change
                q = concatenate([slice_in_dim(identity, begin, at), q], 0)
                q, at = registry["ormqr"].bind(panel, factors, q, left=True, transpose=False), begin
        return [concatenate([slice_in_dim(identity, 0, at), q], 0), concatenate(r, 0)]

    return program


def _sent(mine: Any, shape: tuple[int, int], dtype: Any, columns: Cut, k: int, unread: int) -> tuple[Any, Any]:
    """The reflections of block column `k` and their factors, broadcast from their owner.

    unread: what other ranks have instead. It differs in the two passes, because equal arrays are merged: each would
    stay in memory from the first pass to the second.
    """
    panel, factors = mine or (full(shape, unread, dtype), full((min(shape),), unread, dtype))
    panel, factors = (pbroadcast(v, columns.axes, k) for v in (panel, factors))
    return slice_in_dim(panel, 0, min(shape), axis=1), factors


def _columns_of_identity(rows: int, span: Span, dtype: Any) -> Any:
    low, high = span
    block = eye(dtype, (high - low, high - low))
    return pad(block, const_like(block, 0), [(low, rows - high, 0), (0, 0, 0)])
