"""``jax.experimental.sparse``: sparse arrays as lists of coordinates and values (`BCOO`), in traced programs.

`BCSR`, `COO`, `CSR` and `CSC` store coordinates in other ways, and compute as a BCOO.
"""

from __future__ import annotations

from typing import NoReturn

from mpijax import missing as _missing
from mpijax.experimental.sparse import linalg as linalg
from mpijax.experimental.sparse.api import empty, eye, is_sparse, random_bcoo, todense
from mpijax.experimental.sparse.base import (
    CuSparseEfficiencyWarning,
    JAXSparse,
    SparseEfficiencyError,
    SparseEfficiencyWarning,
)
from mpijax.experimental.sparse.bcoo import BCOO
from mpijax.experimental.sparse.bcsr import (
    BCSR,
    bcsr_broadcast_in_dim,
    bcsr_concatenate,
    bcsr_dot_general,
    bcsr_extract,
    bcsr_fromdense,
    bcsr_sum_duplicates,
    bcsr_todense,
)
from mpijax.experimental.sparse.derivatives import grad, value_and_grad
from mpijax.experimental.sparse.layouts import (
    bcoo_broadcast_in_dim,
    bcoo_dot_general_sampled,
    bcoo_dynamic_slice,
    bcoo_rev,
    bcoo_slice,
    bcoo_squeeze,
    bcoo_update_layout,
)
from mpijax.experimental.sparse.matrices import (
    COO,
    CSC,
    CSR,
    coo_fromdense,
    coo_matmat,
    coo_matvec,
    coo_todense,
    csr_fromdense,
    csr_matmat,
    csr_matvec,
    csr_todense,
)
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
    "BCOO", "BCSR", "COO", "CSC", "CSR", "CuSparseEfficiencyWarning", "JAXSparse", "SparseEfficiencyError",
    "SparseEfficiencyWarning", "bcoo_broadcast_in_dim", "bcoo_concatenate", "bcoo_dot_general",
    "bcoo_dot_general_sampled", "bcoo_dynamic_slice", "bcoo_extract", "bcoo_fromdense", "bcoo_multiply_dense",
    "bcoo_multiply_sparse", "bcoo_reduce_sum", "bcoo_reshape", "bcoo_rev", "bcoo_slice", "bcoo_sort_indices",
    "bcoo_squeeze", "bcoo_sum_duplicates", "bcoo_todense", "bcoo_transpose", "bcoo_update_layout",
    "bcsr_broadcast_in_dim", "bcsr_concatenate", "bcsr_dot_general", "bcsr_extract", "bcsr_fromdense",
    "bcsr_sum_duplicates", "bcsr_todense", "coo_fromdense", "coo_matmat", "coo_matvec", "coo_todense",
    "csr_fromdense", "csr_matmat", "csr_matvec", "csr_todense", "empty", "eye", "grad", "is_sparse", "random_bcoo",
    "sparsify", "todense", "value_and_grad",
]  # fmt: skip


def __getattr__(name: str) -> NoReturn:
    raise _missing.error(__name__, name)
