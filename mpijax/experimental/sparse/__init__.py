"""``jax.experimental.sparse``: sparse arrays as lists of coordinates and values (`BCOO`), also in traced programs.

`BCSR`, `COO`, `CSR` and `CSC` store coordinates in other formats; their operations convert them to a BCOO.
"""

from __future__ import annotations

from typing import NoReturn

from mpijax import missing as _missing
from mpijax.experimental.sparse import linalg as linalg
from mpijax.experimental.sparse.ad import grad, jacfwd, jacobian, jacrev, value_and_grad
from mpijax.experimental.sparse.api import empty, eye, is_sparse, todense
from mpijax.experimental.sparse.base import JAXSparse
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
from mpijax.experimental.sparse.coo import COO, coo_fromdense, coo_matmat, coo_matvec, coo_todense
from mpijax.experimental.sparse.csr import CSC, CSR, csr_fromdense, csr_matmat, csr_matvec, csr_todense
from mpijax.experimental.sparse.joining import bcoo_concatenate
from mpijax.experimental.sparse.layouts import (
    bcoo_broadcast_in_dim,
    bcoo_dynamic_slice,
    bcoo_gather,
    bcoo_rev,
    bcoo_slice,
    bcoo_squeeze,
    bcoo_update_layout,
)
from mpijax.experimental.sparse.operations import (
    bcoo_extract,
    bcoo_fromdense,
    bcoo_reduce_sum,
    bcoo_reshape,
    bcoo_sort_indices,
    bcoo_sum_duplicates,
    bcoo_todense,
    bcoo_transpose,
)
from mpijax.experimental.sparse.primitives import (
    bcoo_dot_general_p,
    bcoo_dot_general_sampled_p,
    bcoo_extract_p,
    bcoo_fromdense_p,
    bcoo_sort_indices_p,
    bcoo_spdot_general_p,
    bcoo_sum_duplicates_p,
    bcoo_todense_p,
    bcoo_transpose_p,
    bcsr_dot_general_p,
    bcsr_extract_p,
    bcsr_fromdense_p,
    bcsr_todense_p,
    coo_fromdense_p,
    coo_matmat_p,
    coo_matvec_p,
    coo_todense_p,
    csr_fromdense_p,
    csr_matmat_p,
    csr_matvec_p,
    csr_todense_p,
    todense_p,
)
from mpijax.experimental.sparse.products import (
    bcoo_conv_general_dilated,
    bcoo_dot_general,
    bcoo_dot_general_sampled,
    bcoo_multiply_dense,
    bcoo_multiply_sparse,
)
from mpijax.experimental.sparse.random import random_bcoo
from mpijax.experimental.sparse.transform import sparsify
from mpijax.experimental.sparse.util import (
    CuSparseEfficiencyWarning,
    SparseEfficiencyError,
    SparseEfficiencyWarning,
)

__all__ = [
    "BCOO", "BCSR", "COO", "CSC", "CSR", "CuSparseEfficiencyWarning", "JAXSparse", "SparseEfficiencyError",
    "SparseEfficiencyWarning", "bcoo_broadcast_in_dim", "bcoo_concatenate", "bcoo_conv_general_dilated",
    "bcoo_dot_general", "bcoo_dot_general_p", "bcoo_dot_general_sampled", "bcoo_dot_general_sampled_p",
    "bcoo_dynamic_slice", "bcoo_extract", "bcoo_extract_p", "bcoo_fromdense", "bcoo_fromdense_p", "bcoo_gather",
    "bcoo_multiply_dense", "bcoo_multiply_sparse", "bcoo_reduce_sum", "bcoo_reshape", "bcoo_rev", "bcoo_slice",
    "bcoo_sort_indices", "bcoo_sort_indices_p", "bcoo_spdot_general_p", "bcoo_squeeze", "bcoo_sum_duplicates",
    "bcoo_sum_duplicates_p", "bcoo_todense", "bcoo_todense_p", "bcoo_transpose", "bcoo_transpose_p",
    "bcoo_update_layout", "bcsr_broadcast_in_dim", "bcsr_concatenate", "bcsr_dot_general", "bcsr_dot_general_p",
    "bcsr_extract", "bcsr_extract_p", "bcsr_fromdense", "bcsr_fromdense_p", "bcsr_sum_duplicates", "bcsr_todense",
    "bcsr_todense_p", "coo_fromdense", "coo_fromdense_p", "coo_matmat", "coo_matmat_p", "coo_matvec",
    "coo_matvec_p", "coo_todense", "coo_todense_p", "csr_fromdense", "csr_fromdense_p", "csr_matmat",
    "csr_matmat_p", "csr_matvec", "csr_matvec_p", "csr_todense", "csr_todense_p", "empty", "eye", "grad",
    "is_sparse", "jacfwd", "jacobian", "jacrev", "random_bcoo", "sparsify", "todense", "todense_p",
    "value_and_grad",
]  # fmt: skip


def __getattr__(name: str) -> NoReturn:
    raise _missing.error(__name__, name)
