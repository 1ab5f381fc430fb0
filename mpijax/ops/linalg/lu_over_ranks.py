"""LU factorization with partial pivoting of a matrix that is sharded over ranks.

Processes block columns from left to right. A rank owns whole columns, so it can find the pivots of its block column
locally: LAPACK factors the block. All ranks receive the factor and the pivots, exchange rows of their own columns, and
subtract products. Pivots equal those of LAPACK on the whole matrix, except for ties that rounding breaks differently. A
rank sends about half the matrix, and stores at most its columns and one block column. If the rows are split, one
alltoall redistributes the matrix by columns first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.core.base import config
from mpijax.core.rules import sharding_rules as rules
from mpijax.core.rules.registry import registry
from mpijax.core.sharding.cuts import Cut, part_number
from mpijax.ops.collectives.permutations import pbroadcast
from mpijax.ops.indexing.slicing import concatenate, slice_in_dim
from mpijax.ops.linalg.matrices import exact_product
from mpijax.ops.shapes.creation import full, iota

# Maximal number of blocks of a matrix: the program has a few operations for each.
MOST_BLOCKS = 64

_I32 = np.dtype(np.int32)


def plan(s: rules.Operation) -> rules.Plan | None:
    """The plan of `lu` for one split matrix."""
    [shape], [cuts] = s.shapes, s.cuts
    cut = cuts[-2] if cuts[-2] is not None else cuts[-1]
    if config.values.mpijax_same_bits or cut is None or len(shape) > 2 or min(shape) < cut.parts:
        return None
    if not 1 < cut.parts <= MOST_BLOCKS:
        return None
    columns = s.even(shape[1], cut.axes)
    program = _by_block_columns(shape[0], columns, part_number(cut.axes, s.sizes, s.place))
    return rules.Plan([(None, columns)], [(None, columns), (None,), (None,)], s.params, program=program)


def _by_block_columns(rows: int, columns: Cut, me: int) -> Callable[..., Any]:
    """This rank's columns of the factors, the pivots and the order of the rows."""
    blocks = [(k, begin, end) for k, (begin, end) in enumerate(columns.spans) if begin < min(end, rows)]
    last = columns.part(me)[1]

    def program(x: Any) -> list[Any]:
        done, pivots, order, ordered = [], [], iota(_I32, rows), []
        # After its own block, a rank only exchanges rows. x is then their order, and the rows are moved once at last.
        dtype, below = x.dtype, None
        for k, begin, end in blocks:
            few, factors = min(end, rows) - begin, x
            found = full((few,), 0, _I32)
            if me == k:
                factors, found, _ = registry["lu"].bind(x)
            found = pbroadcast(found, columns.axes, k)
            moved = registry["lu_pivots_to_permutation"].bind(found, permutation_size=rows - begin)
            x = factors if me == k else _rows(x, moved)
            top, x = slice_in_dim(x, 0, few), slice_in_dim(x, few, None)
            if end < columns.size:
                panel = factors if me == k else full((rows - begin, end - begin), 0, dtype)
                panel = slice_in_dim(pbroadcast(panel, columns.axes, k), 0, few, axis=1)
            if last > end:
                top = _solved(slice_in_dim(panel, 0, few), top)
                x = registry["sub"].bind(x, exact_product(slice_in_dim(panel, few, None), top))
            order = _rows(order, moved)
            done.append(top)
            if me == k < blocks[-1][0]:
                below, x = x, iota(_I32, rows - begin - few)
            pivots.append(registry["add"].bind(found, full((few,), begin, _I32)))
            ordered.append(slice_in_dim(order, 0, few))
            order = slice_in_dim(order, few, None)
        if below is not None:
            done, x = done[: me + 1], _rows(below, concatenate([*done[me + 1 :], x], 0))
        return [concatenate([*done, x], 0), concatenate(pivots, 0), concatenate([*ordered, order], 0)]

    return program


def _rows(x: Any, order: Any) -> Any:
    """The rows of x in the given order."""
    return x.at[order].get(mode="promise_in_bounds", unique_indices=True)


def _solved(factor: Any, block: Any) -> Any:
    """X with L X = block, where the diagonal of L is ones."""
    return registry["triangular_solve"].bind(
        factor, block, left_side=True, lower=True, transpose_a=False, conjugate_a=False, unit_diagonal=True
    )
