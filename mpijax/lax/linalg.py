"""`jax.lax.linalg`: factorizations, eigenvalues, triangular and tridiagonal systems."""

from mpijax.ops.linalg.cholesky import (
    cholesky,
    cholesky_p,
    cholesky_update,
    cholesky_update_p,
    symmetric_product,
    symmetric_product_p,
)
from mpijax.ops.linalg.eig import EigImplementation, eig, eig_p
from mpijax.ops.linalg.eigh import EighImplementation, eigh, eigh_p
from mpijax.ops.linalg.lu import lu, lu_p, lu_pivots_to_permutation, lu_pivots_to_permutation_p
from mpijax.ops.linalg.orthogonal import householder_product, householder_product_p, ormqr, ormqr_p
from mpijax.ops.linalg.polar import qdwh
from mpijax.ops.linalg.qr import qr, qr_p
from mpijax.ops.linalg.schur import hessenberg, hessenberg_p, schur, schur_p
from mpijax.ops.linalg.svd import SvdAlgorithm, svd, svd_p
from mpijax.ops.linalg.triangular import triangular_solve, triangular_solve_p
from mpijax.ops.linalg.tridiagonal import tridiagonal, tridiagonal_p, tridiagonal_solve, tridiagonal_solve_p

__all__ = [
    "EigImplementation", "EighImplementation", "SvdAlgorithm", "cholesky", "cholesky_p", "cholesky_update",
    "cholesky_update_p", "eig", "eig_p", "eigh", "eigh_p", "hessenberg", "hessenberg_p", "householder_product",
    "householder_product_p", "lu", "lu_p", "lu_pivots_to_permutation", "lu_pivots_to_permutation_p", "ormqr",
    "ormqr_p", "qdwh", "qr", "qr_p", "schur", "schur_p", "svd", "svd_p", "symmetric_product",
    "symmetric_product_p", "triangular_solve", "triangular_solve_p", "tridiagonal", "tridiagonal_p",
    "tridiagonal_solve", "tridiagonal_solve_p",
]  # fmt: skip
