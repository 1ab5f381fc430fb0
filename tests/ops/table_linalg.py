"""A row for each primitive of linear algebra: (name, primitives, function, arguments, how often to differentiate)."""

import numpy as np

from mpijax.lax import linalg
from mpijax.numpy import matmul
from mpijax.ops.linalg.orthogonal import geqp3, geqrf
from mpijax.ops.linalg.tridiagonal import tridiagonal_eigh_p

A = np.cos(np.arange(1.0, 10.0) ** 2).reshape(3, 3)
TALL = np.sin(np.arange(1.0, 13.0) ** 2).reshape(4, 3)
WIDE = TALL.T.copy()
DIAGONALS = (A[0], A[1] + 3, A[2])


def _positive(x):
    return matmul(x, x.mT) + 2 * np.eye(3)


ROWS = [
    ("cholesky", "cholesky", lambda x: linalg.cholesky(_positive(x)), (A,), 2),
    ("triangular_solve", "triangular_solve", lambda a, b: linalg.triangular_solve(a, b, left_side=True),
        (A + 3 * np.eye(3), WIDE), 2),
    ("triangular_solve transposed", "triangular_solve",
        lambda a, b: linalg.triangular_solve(a, b, lower=True, transpose_a=True, unit_diagonal=True), (A, TALL), 2),
    ("lu", "lu", lambda x: linalg.lu(x)[0], (A,), 2),
    ("lu of a wide matrix", "lu", lambda x: linalg.lu(x)[0], (WIDE,), 1),
    ("qr", "qr", lambda x: linalg.qr(x, full_matrices=False), (TALL,), 2),
    ("qr of a wide matrix", "qr", lambda x: linalg.qr(x), (WIDE,), 1),
    ("qr, all columns", "qr", lambda x: linalg.qr(x), (TALL,), 1),
    ("qr with exchanges", "qr", lambda x: linalg.qr(x, pivoting=True, full_matrices=False)[:2], (TALL,), 1),
    ("eigh", "eigh", lambda x: linalg.eigh(_positive(x)), (A,), 2),
    ("eigenvalues", "eig", lambda x: linalg.eig(x, compute_left_eigenvectors=False,
                                                compute_right_eigenvectors=False)[0].real, (A,), 1),
    ("svd", "svd", lambda x: linalg.svd(x, full_matrices=False), (TALL,), 2),
    ("singular values", "svd", lambda x: linalg.svd(x, compute_uv=False), (WIDE,), 2),
    ("tridiagonal_solve", "tridiagonal_solve", linalg.tridiagonal_solve, (*DIAGONALS, A), 2),
    ("geqrf", "geqrf", lambda x: geqrf(x), (TALL,), 0),
    ("geqp3", "geqp3", lambda x: geqp3(x, np.zeros(3, np.int32)), (TALL,), 0),
    ("householder_product", "householder_product", linalg.householder_product, (TALL, A[0]), 0),
    ("ormqr", "ormqr", linalg.ormqr, (TALL, A[0], TALL), 0),
    ("hessenberg", "hessenberg", lambda x: linalg.hessenberg(x), (A,), 0),
    ("schur", "schur", lambda x: linalg.schur(x), (A,), 0),
    ("tridiagonal", "tridiagonal", lambda x: linalg.tridiagonal(_positive(x)), (A,), 0),
    ("symmetric_product", "symmetric_product", lambda x: linalg.symmetric_product(x, x, alpha=2.0, beta=0.5), (A,), 0),
    ("tridiagonal_eigh", "tridiagonal_eigh", lambda d, e: tridiagonal_eigh_p.bind(d, e), (A[0], A[1, :2]), 0),
    ("pivots", "lu_pivots_to_permutation", lambda p: linalg.lu_pivots_to_permutation(p, 4),
        (np.array([1, 2, 2], np.int32),), 0),
]  # fmt: skip
