"""`jax.lax.linalg`: factorizations, eigenvalues, triangular and tridiagonal systems. Imported at first use."""

from __future__ import annotations

from mpijax import faces as _faces

_MODULES = {
    "ops.linalg.cholesky": """
        cholesky cholesky_p cholesky_update cholesky_update_p symmetric_product symmetric_product_p""",
    "ops.linalg.eig": "EigImplementation eig eig_p",
    "ops.linalg.eigh": "EighImplementation eigh eigh_p",
    "ops.linalg.lu": "lu lu_p lu_pivots_to_permutation lu_pivots_to_permutation_p",
    "ops.linalg.orthogonal": "householder_product householder_product_p ormqr ormqr_p",
    "ops.linalg.polar": "qdwh",
    "ops.linalg.qr": "qr qr_p",
    "ops.linalg.schur": "hessenberg hessenberg_p schur schur_p",
    "ops.linalg.svd": "SvdAlgorithm svd svd_p",
    "ops.linalg.triangular": "triangular_solve triangular_solve_p",
    "ops.linalg.tridiagonal": "tridiagonal tridiagonal_p tridiagonal_solve tridiagonal_solve_p",
}

_HOME = _faces.homes_of(_MODULES)

__all__ = sorted(_HOME)  # noqa: PLE0605

__getattr__, __dir__ = _faces.on_demand(__name__, _HOME)
