"""``jax.experimental.sparse``: sparse arrays as lists of coordinates and values (`BCOO`), in traced programs."""

from __future__ import annotations

from typing import NoReturn

from mpijax import missing as _missing
from mpijax.experimental.sparse import linalg as linalg
from mpijax.experimental.sparse.api import empty, eye, is_sparse, random_bcoo, todense
from mpijax.experimental.sparse.bcoo import BCOO
from mpijax.experimental.sparse.derivatives import grad, value_and_grad
from mpijax.experimental.sparse.operations import (
    bcoo_concatenate,
    bcoo_dot_general,
    bcoo_extract,
    bcoo_fromdense,
    bcoo_multiply_dense,
    bcoo_multiply_sparse,
    bcoo_reduce_sum,
    bcoo_reshape,
    bcoo_sort_indices,
    bcoo_sum_duplicates,
    bcoo_todense,
    bcoo_transpose,
)
from mpijax.experimental.sparse.sparsify import sparsify

__all__ = [
    "BCOO", "bcoo_concatenate", "bcoo_dot_general", "bcoo_extract", "bcoo_fromdense", "bcoo_multiply_dense",
    "bcoo_multiply_sparse", "bcoo_reduce_sum", "bcoo_reshape", "bcoo_sort_indices", "bcoo_sum_duplicates",
    "bcoo_todense", "bcoo_transpose", "empty", "eye", "grad", "is_sparse", "random_bcoo", "sparsify", "todense",
    "value_and_grad",
]  # fmt: skip


def __getattr__(name: str) -> NoReturn:
    raise _missing.error(__name__, name)
