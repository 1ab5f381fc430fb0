"""Matrix products, by rows, columns and blocks."""

from bench.partition.modules import jnp
from bench.partition.program import columns, grid, program, rows, whole

SHARD = 128 * 128 * 4  # bytes of a matrix


@program("matmul/rows", rows(128, 128), whole(128, 64))
def by_rows(x, w):
    return x @ w


@program("matmul/columns", whole(64, 128), columns(128, 128))
def by_columns(x, w):
    return x @ w


@program("matmul/contracted", columns(64, 256), rows(256, 64))
def contracted(x, w):
    return x @ w


@program("matmul/rows by rows", rows(128, 128), rows(128, 128), least=lambda n: SHARD * (n - 1) / n)
def rows_by_rows(x, y):
    return x @ y


@program("matmul/rows by rows, large", rows(512, 512), rows(512, 512), least=lambda n: 512 * 512 * 4 * (n - 1) / n)
def large_rows_by_rows(x, y):
    return x @ y


@program("matmul/2-D", grid(128, 128), grid(128, 128))
def in_blocks(x, y):
    return x @ y


@program("matmul/batched", rows(16, 32, 32), rows(16, 32, 32))
def batched(x, y):
    return x @ y


@program("matmul/einsum", rows(32, 16, 8), whole(16, 8, 24))
def einsum(x, w):
    return jnp.einsum("bij,ijk->bk", x, w)


@program("matmul/matrix by vector", grid(256, 256), whole(256))
def matrix_by_vector(a, x):
    return a @ x


@program("matmul/chain of two", rows(128, 64), columns(64, 256), rows(256, 64))
def chain_of_two(x, v, w):
    return x @ v @ w


@program("matmul/power iteration", rows(128, 128), whole(128))
def power_iteration(a, x):
    for _ in range(4):
        x = a @ x
        x = x / jnp.linalg.norm(x)
    return x
