"""Linear algebra: of many small matrices, and of one that is split."""

from bench.partition.modules import jax, jnp
from bench.partition.program import program, rows, whole

WHOLE = 128 * 128 * 4  # bytes of the split matrix, whose blocks of columns every rank passes on


@program("linalg/batched solve", rows(64, 8, 8, drawn="definite"), rows(64, 8, 1))
def batched_solve(a, b):
    return jnp.linalg.solve(a, b)


@program("linalg/batched cholesky", rows(64, 8, 8, drawn="definite"))
def batched_cholesky(a):
    return jnp.linalg.cholesky(a)


@program("linalg/batched eigh", rows(64, 8, 8, drawn="definite"))
def batched_eigh(a):
    values, vectors = jnp.linalg.eigh(a)
    return values, jnp.abs(vectors)


@program("linalg/batched svd", rows(64, 8, 8))
def batched_svd(a):
    return jnp.linalg.svd(a, compute_uv=False)


@program("linalg/batched inverse and determinant", rows(64, 8, 8, drawn="definite"))
def batched_inverse(a):
    return jnp.linalg.inv(a), jnp.linalg.det(a)


@program("linalg/tall QR", rows(1024, 16), least=lambda n: 16 * 16 * 4)
def tall_qr(a):
    q, r = jnp.linalg.qr(a)
    return jnp.abs(q), jnp.abs(r)


@program("linalg/Cholesky of a split matrix", rows(128, 128, drawn="definite"), least=lambda n: WHOLE / 2 * (n - 1) / n)
def cholesky(a):
    return jnp.linalg.cholesky(a)


@program(
    "linalg/solve with a split matrix", rows(128, 128, drawn="definite"), rows(128), least=lambda n: WHOLE * (n - 1) / n
)
def solve(a, b):
    return jnp.linalg.solve(a, b)


@program(
    "linalg/inverse of a split matrix", rows(128, 128, drawn="definite"), least=lambda n: 1.5 * WHOLE * (n - 1) / n
)
def inverse(a):
    return jnp.linalg.inv(a)


@program("linalg/determinant of a split matrix", rows(128, 128, drawn="definite"), least=lambda n: WHOLE * (n - 1) / n)
def determinant(a):
    return jnp.linalg.slogdet(a)


@program("linalg/gradient of a solve", rows(128, 128, drawn="definite"), rows(128), least=lambda n: WHOLE * (n - 1) / n)
def gradient_of_solve(a, b):
    return jax.grad(lambda a, b: (jnp.linalg.solve(a, b) ** 2).sum(), (0, 1))(a, b)


@program("linalg/triangular solve, split matrix", rows(128, 128, drawn="definite"), rows(128), least=lambda n: 128 * 4)
def triangular_solve_split(a, b):
    return jax.scipy.linalg.solve_triangular(a, b, lower=True)


@program("linalg/svd of a tall matrix", rows(1024, 16), least=lambda n: 16 * 16 * 4)
def tall_svd(a):
    u, s, vt = jnp.linalg.svd(a, full_matrices=False)
    return jnp.abs(u), s, jnp.abs(vt)


@program("linalg/eigh of a split matrix", rows(128, 128, drawn="definite"), least=lambda n: WHOLE * (n - 1) / n)
def eigh_split(a):
    values, vectors = jnp.linalg.eigh(a)
    return values, vectors @ jnp.diag(values**2) @ vectors.T


@program("linalg/QR of a split matrix", rows(128, 128), least=lambda n: 2 * WHOLE * (n - 1) / n, rtol=1e-3)
def square_qr(a):
    return jnp.linalg.qr(a)


@program("linalg/triangular solve, right sides split", whole(64, 64, drawn="definite"), rows(256, 64))
def triangular_solve(a, b):
    return jax.scipy.linalg.solve_triangular(a, b.T, lower=True)


@program("linalg/least squares by normal equations", rows(1024, 16), rows(1024))
def least_squares(a, b):
    return jnp.linalg.solve(a.T @ a, a.T @ b)


@program("linalg/trace and diagonal", rows(128, 128))
def trace(a):
    return jnp.trace(a), jnp.diagonal(a)
