"""Factorizations of matrices whose rows are split over ranks.

QR of a tall matrix: each rank factors its rows, and all ranks factor the stack of the triangles (J. Demmel et al.,
"Communication-optimal parallel and sequential QR and LU factorizations", 2012). The stack contains the first rows
unchanged: a Householder reflection takes its sign from them, so the signs equal those of LAPACK on the whole matrix.
The singular values of a tall matrix are those of R, which is also how LAPACK computes them.

Cholesky: block columns from left to right. All ranks receive a block column, and each subtracts its products from its
own rows. No rank stores more than its rows and one block column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.core.base import config
from mpijax.core.rules import sharding_rules as rules
from mpijax.core.rules.registry import registry
from mpijax.core.sharding.cuts import Cut, part_number
from mpijax.core.types.typeof import typeof
from mpijax.ops.collectives.gather_scatter import all_gather
from mpijax.ops.collectives.permutations import pbroadcast
from mpijax.ops.elementwise.compare import ne
from mpijax.ops.elementwise.select import select
from mpijax.ops.indexing.slicing import concatenate, slice_in_dim
from mpijax.ops.linalg.lu_over_ranks import MOST_BLOCKS
from mpijax.ops.linalg.matrices import adjoint, exact_product, lower_triangle
from mpijax.ops.linalg.qr_by_columns import by_block_columns
from mpijax.ops.linalg.triangular import triangular_solve
from mpijax.ops.products.dot import batch_matmul
from mpijax.ops.rules import const_like
from mpijax.ops.shapes.creation import full, full_like
from mpijax.ops.shapes.padding import pad
from mpijax.ops.shapes.reshape import broadcast_to


def qr_over_ranks(s: rules.Operation) -> rules.Plan | None:
    """The plan of `qr` for split rows or columns."""
    [shape], [cuts] = s.shapes, s.cuts
    (m, n), cut, p = shape[-2:], cuts[-2], s.params
    if p["pivoting"] or (p["full_matrices"] and m != n):
        return None
    if cut is None or not _is_tall(cut, n):
        return _qr_by_columns(s)
    rows = (*cuts[:-2], cut, None)
    program = _tall(n, cut, part_number(cut.axes, s.sizes, s.place))
    return rules.Plan([rows], [rows, (*cuts[:-2], None, None)], p, program=program)


def _qr_by_columns(s: rules.Operation) -> rules.Plan | None:
    """The rule for a matrix in which no rank has more rows than the matrix has columns."""
    [shape], [cuts] = s.shapes, s.cuts
    cut = cuts[-2] if cuts[-2] is not None else cuts[-1]
    if config.values.mpijax_same_bits or cut is None or len(shape) > 2:
        return None
    if not 1 < cut.parts <= min(MOST_BLOCKS, *shape):
        return None
    (m, n), me = shape, part_number(cut.axes, s.sizes, s.place)
    columns, of_q = s.even(n, cut.axes), s.even(min(m, n), cut.axes)
    program = by_block_columns(m, columns, of_q, me)
    return rules.Plan([(None, columns)], [(None, of_q), (None, columns)], s.params, program=program)


def _is_tall(cut: Cut, columns: int) -> bool:
    """Whether each rank factors its own rows of a matrix that `cut` divides."""
    return not config.values.mpijax_same_bits and 0 < columns <= int(cut.lengths[0])


def _tall(n: int, cut: Cut, me: int) -> Callable[..., Any]:
    """Q and R of this rank's rows of a matrix with `n` columns."""

    def factored(x: Any) -> tuple[Any, Any]:
        return registry["qr"].bind(x, pivoting=False, full_matrices=False, use_magma=None)

    def program(x: Any) -> list[Any]:
        at = x.ndim - 2
        first = slice_in_dim(x, 0, n, axis=at) if me == 0 else full((*x.shape[:at], n, n), 0, x.dtype)
        rest = slice_in_dim(x, n, None, axis=at) if me == 0 else x
        q, r = factored(rest)
        height = typeof(r).shape[at]
        r = _lengthened(r, at, n - height)
        stack = [pbroadcast(first, cut.axes, 0), all_gather(r, cut.axes, axis=at, tiled=True)]
        all_q, whole_r = factored(concatenate(stack, at))
        own = batch_matmul(q, slice_in_dim(all_q, (me + 1) * n, (me + 1) * n + height, axis=at))
        return [concatenate([slice_in_dim(all_q, 0, n, axis=at), own], at) if me == 0 else own, whole_r]

    return program


def svd_over_ranks(s: rules.Operation) -> rules.Plan | None:
    """The plan of `svd`: for a tall matrix with split rows, the SVD of R; for a wide one, of its adjoint."""
    [shape], [cuts], p = s.shapes, s.cuts, s.params
    (rows, columns), (m, n) = cuts[-2:], shape[-2:]
    if not (p["compute_uv"] and p["full_matrices"]):
        if rows is not None and _is_tall(rows, n):
            return rules.Plan([], [], p, whole=lambda x: _by_qr(x, p))
        if columns is not None and _is_tall(columns, m):
            return rules.Plan([], [], p, whole=lambda x: _of_adjoint(x, p))
    return None


def _by_qr(x: Any, params: Any) -> list[Any]:
    """With x = Q R and R = U diag(s) V^H: s, Q U and V^H."""
    q, r = registry["qr"].bind(x, pivoting=False, full_matrices=False, use_magma=None)
    s, *uv = registry["svd"].bind(r, **params)
    return [s, exact_product(q, uv[0]), uv[1]] if uv else [s]


def _of_adjoint(x: Any, params: Any) -> list[Any]:
    s, *uv = registry["svd"].bind(adjoint(x), **params)
    return [s, adjoint(uv[1]), adjoint(uv[0])] if uv else [s]


def cholesky_over_ranks(s: rules.Operation) -> rules.Plan | None:
    """The plan of `cholesky` for one split matrix."""
    [shape], [cuts] = s.shapes, s.cuts
    cut = cuts[-2] if cuts[-2] is not None else cuts[-1]
    if config.values.mpijax_same_bits or cut is None or len(shape) > 2 or shape[0] < cut.parts:
        return None
    if not 1 < cut.parts <= MOST_BLOCKS:
        return None
    blocks = s.even(shape[0], cut.axes)
    program = _by_block_columns(blocks, part_number(cut.axes, s.sizes, s.place))
    return rules.Plan([(blocks, None)], [(blocks, None)], s.params, program=program)


def _by_block_columns(cut: Cut, me: int) -> Callable[..., Any]:
    """This rank's rows of the factor. `cut` divides the rows, and the columns in the same way.

    If the matrix is not positive definite, the last block is NaN, and then the whole result.
    """
    low, high = cut.part(me)

    def program(x: Any) -> list[Any]:
        done: list[Any] = []
        for k, (begin, end) in enumerate(cut.spans):
            if begin == end:
                break
            column = slice_in_dim(x, begin, end, axis=1)
            whole = all_gather(_lengthened(column, 0, cut.widest - (high - low)), cut.axes, axis=0, tiled=True)
            first = k * cut.widest
            diagonal = registry["cholesky"].bind(slice_in_dim(whole, first, first + end - begin, axis=0))
            factor = _solved(lower_triangle(diagonal), slice_in_dim(whole, first, None, axis=0))
            if me < k:
                done.append(full((high - low, end - begin), 0, x.dtype))
                continue
            own = (me - k) * cut.widest
            done.append(slice_in_dim(factor, own, own + high - low, axis=0))
            if me == k:
                done[-1] = lower_triangle(diagonal)
            below = slice_in_dim(factor, end - begin, cut.size - begin, axis=0)
            if end < cut.size:
                taken = batch_matmul(done[-1], adjoint(below))
                x = registry["sub"].bind(x, _widened(taken, end))
        found = concatenate(done, 1)
        last = slice_in_dim(slice_in_dim(diagonal, -1, None, axis=0), -1, None, axis=1)
        return [select(broadcast_to(ne(last, last), found.shape), full_like(found, np.nan), found)]

    return program


def _solved(factor: Any, column: Any) -> Any:
    """The X with X L^H = column."""
    return triangular_solve(factor, column, left_side=False, lower=True, transpose_a=True, conjugate_a=True)


def _lengthened(x: Any, axis: int, rows: int) -> Any:
    """x with zeros appended."""
    return pad(x, const_like(x, 0), [(0, rows if d == axis else 0, 0) for d in range(typeof(x).ndim)])


def _widened(x: Any, columns: int) -> Any:
    """x with columns of zeros prepended."""
    return pad(x, const_like(x, 0), [(0, 0, 0), (columns, 0, 0)])
