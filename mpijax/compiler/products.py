"""The axes and sizes of matrix products, and which of them go to BLAS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

# Products with fewer multiplications than this are loop nests, which fuse with their surroundings.
SMALL = 20_000

BLAS_TYPES = {np.dtype(t) for t in ("f4", "f8", "c8", "c16")}


@dataclass(frozen=True)
class Dims:
    """Axes of a product: batch, free and contracted ones of both operands."""

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
    return m * n * k >= SMALL and min(m, n) > 1 and k > 1
