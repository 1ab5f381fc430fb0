"""`jax.lax.linalg`: factorizations, eigenvalues, triangular and tridiagonal systems."""

# ruff: noqa: F401
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
