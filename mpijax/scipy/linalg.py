"""`jax.scipy.linalg`: factorizations, solutions, functions of matrices, and special matrices."""

from mpijax.scipy.factorizations import (
    cho_factor,
    cho_solve,
    cholesky,
    eigh,
    hessenberg,
    polar,
    qr,
    qr_multiply,
    rsf2csf,
    schur,
    svd,
)
from mpijax.scipy.matrix_functions import expm, expm_frechet, funm, solve_sylvester, sqrtm
from mpijax.scipy.special_matrices import (
    block_diag,
    circulant,
    companion,
    convolution_matrix,
    dft,
    fiedler,
    fiedler_companion,
    hadamard,
    hankel,
    helmert,
    hilbert,
    invhilbert,
    invpascal,
    leslie,
    pascal,
    toeplitz,
)
from mpijax.scipy.systems import det, inv, lu, lu_factor, lu_solve, solve, solve_triangular
from mpijax.scipy.tridiagonal import eigh_tridiagonal

__all__ = [
    "block_diag", "cho_factor", "cho_solve", "cholesky", "circulant", "companion", "convolution_matrix", "det",
    "dft", "eigh", "eigh_tridiagonal", "expm", "expm_frechet", "fiedler", "fiedler_companion", "funm", "hadamard",
    "hankel", "helmert", "hessenberg", "hilbert", "inv", "invhilbert", "invpascal", "leslie", "lu", "lu_factor",
    "lu_solve", "pascal", "polar", "qr", "qr_multiply", "rsf2csf", "schur", "solve", "solve_sylvester",
    "solve_triangular", "sqrtm", "svd", "toeplitz",
]  # fmt: skip
