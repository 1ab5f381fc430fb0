"""Names of mpijax.lax.linalg. Written by tools/make_stubs.py from its table."""

from typing import Any

from mpijax.ops.linalg.cholesky import cholesky as cholesky
from mpijax.ops.linalg.cholesky import cholesky_update as cholesky_update
from mpijax.ops.linalg.cholesky import symmetric_product as symmetric_product
from mpijax.ops.linalg.eig import EigImplementation as EigImplementation
from mpijax.ops.linalg.eig import eig as eig
from mpijax.ops.linalg.eigh import EighImplementation as EighImplementation
from mpijax.ops.linalg.eigh import eigh as eigh
from mpijax.ops.linalg.lu import lu as lu
from mpijax.ops.linalg.lu import lu_pivots_to_permutation as lu_pivots_to_permutation
from mpijax.ops.linalg.orthogonal import householder_product as householder_product
from mpijax.ops.linalg.orthogonal import ormqr as ormqr
from mpijax.ops.linalg.polar import qdwh as qdwh
from mpijax.ops.linalg.qr import qr as qr
from mpijax.ops.linalg.schur import hessenberg as hessenberg
from mpijax.ops.linalg.schur import schur as schur
from mpijax.ops.linalg.svd import SvdAlgorithm as SvdAlgorithm
from mpijax.ops.linalg.svd import svd as svd
from mpijax.ops.linalg.triangular import triangular_solve as triangular_solve
from mpijax.ops.linalg.tridiagonal import tridiagonal as tridiagonal
from mpijax.ops.linalg.tridiagonal import tridiagonal_solve as tridiagonal_solve

cholesky_p: Any
cholesky_update_p: Any
symmetric_product_p: Any
eig_p: Any
eigh_p: Any
lu_p: Any
lu_pivots_to_permutation_p: Any
householder_product_p: Any
ormqr_p: Any
qr_p: Any
hessenberg_p: Any
schur_p: Any
svd_p: Any
triangular_solve_p: Any
tridiagonal_p: Any
tridiagonal_solve_p: Any
