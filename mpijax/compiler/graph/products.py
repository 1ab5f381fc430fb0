"""Finds the axes and sizes of matrix products, which of them go to BLAS, and which views BLAS takes as matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.shapes.index import row_major

# Products with fewer multiplications than this are loop nests, which fuse with their surroundings.
SMALL = 20_000

# Products with at most this many rows or columns are loop nests too, if the nest reads its operands along their rows.
THIN = 3

BLAS_TYPES = {np.dtype(t) for t in ("f4", "f8", "c8", "c16")}


@dataclass(frozen=True)
class Dims:
    """Batch, free and contracted axes of both operands of a product."""

    lhs_batch: tuple[int, ...]
    rhs_batch: tuple[int, ...]
    lhs_contract: tuple[int, ...]
    rhs_contract: tuple[int, ...]
    lhs_free: tuple[int, ...]
    rhs_free: tuple[int, ...]


def dims_of(node: Any) -> Dims:
    (lc, rc), (lb, rb) = node.params["dimension_numbers"]
    lhs, rhs = node.inputs
    return Dims(
        tuple(lb), tuple(rb), tuple(lc), tuple(rc),
        tuple(d for d in range(len(lhs.shape)) if d not in lc and d not in lb),
        tuple(d for d in range(len(rhs.shape)) if d not in rc and d not in rb),
    )  # fmt: skip


def sizes_of(node: Any) -> tuple[int, int, int, int]:
    """Batch count, m, n, k."""
    d = dims_of(node)
    lhs, rhs = node.inputs[0].shape, node.inputs[1].shape
    b = m = n = k = 1
    for a in d.lhs_batch:
        b *= lhs[a]
    for a in d.lhs_free:
        m *= lhs[a]
    for a in d.rhs_free:
        n *= rhs[a]
    for a in d.lhs_contract:
        k *= lhs[a]
    return b, m, n, k


def use_blas(node: Any) -> bool:
    """Whether a product goes to BLAS."""
    b, m, n, k = sizes_of(node)
    dtypes = {v.element for v in (*node.inputs, *node.outputs)}
    if len(dtypes) != 1 or not dtypes <= BLAS_TYPES:
        return False
    return m * n * k >= SMALL and min(m, n) > (THIN if _is_read_in_order(node, m, n) else 1) and k > 1


def _is_read_in_order(node: Any, m: int, n: int) -> bool:
    """Whether a loop nest reads both operands along their rows."""
    d = dims_of(node)
    sides = [(d.lhs_contract, node.inputs[0]), (d.rhs_contract, node.inputs[1])]
    (thin, small), (contracted, large) = sides if m <= n else sides[::-1]
    return len(small.shape) - 1 in thin or len(large.shape) - 1 not in contracted


@dataclass(frozen=True)
class StridedView:
    """A strided view of an array in memory: the array, an offset in elements and a stride per axis."""

    base: Any
    offset: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class BlasOperand:
    """One operand of a BLAS call: rows × columns, of which one has stride 1."""

    base: Any
    offset: int
    transposed: bool
    ld: int
    batch_strides: tuple[int, ...]


def matrix_operand(view: StridedView, shape, batch, rows, cols) -> BlasOperand | None:
    """The view as a (batched) matrix with one or more axes as rows and as columns; None if BLAS cannot take it."""
    row = _joint_stride(view, shape, rows)
    col = _joint_stride(view, shape, cols)
    if row is None or col is None:
        return None
    (nr, sr), (nc, sc) = row, col
    batch_strides = tuple(view.strides[a] for a in batch)
    if sc == 1 or nc == 1:
        ld = sr if nr > 1 else max(nc, 1)
        if ld >= max(nc, 1) and ld > 0:
            return BlasOperand(view.base, view.offset, False, ld, batch_strides)
    if sr == 1 or nr == 1:
        ld = sc if nc > 1 else max(nr, 1)
        if ld >= max(nr, 1) and ld > 0:
            return BlasOperand(view.base, view.offset, True, ld, batch_strides)
    return None


def _joint_stride(view: StridedView, shape, axes) -> tuple[int, int] | None:
    """Size and stride of several axes merged into one; None if their strides do not allow it."""
    size, stride = 1, 0
    for a in reversed(axes):
        if shape[a] == 1:
            continue
        if size == 1:
            size, stride = shape[a], view.strides[a]
        elif view.strides[a] == stride * size:
            size *= shape[a]
        else:
            return None
    return size, stride


def in_order(node: Any, k: int) -> tuple[int, ...] | None:
    """An axis order in which operand `k`, stored densely, is a (batched) matrix; None if it already is one.

    It moves as little as possible: of rows and columns, the last axis that is no batch remains the last.
    """
    d = dims_of(node)
    shape = node.inputs[k].shape
    left, right = (d.lhs_batch, d.lhs_free, d.lhs_contract), (d.rhs_batch, d.rhs_free, d.rhs_contract)
    batch, free, contract = right if k else left
    dense = StridedView(node.inputs[k], 0, row_major(shape))
    if matrix_operand(dense, shape, batch, free, contract) is not None:
        return None
    free_last = max(free, default=-1) > max(contract, default=-1)
    return (*batch, *contract, *free) if free_last else (*batch, *free, *contract)
