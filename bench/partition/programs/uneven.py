"""Sizes that the devices do not divide: 255 rows, cut from 256 as JAX asks for arguments that it divides."""

from bench.partition.modules import jnp
from bench.partition.program import program, rows, whole

ROW = 64 * 4


@program("uneven/elementwise", rows(256, 64), least=lambda n: ROW)
def elementwise(x):
    return jnp.sin(x[1:]) * 2


@program("uneven/matmul and sum", rows(256, 64), whole(64, 32), least=lambda n: 2 * 32 * 4)
def matmul_and_sum(x, w):
    return (x[:255] @ w).sum(axis=0)


@program("uneven/cumsum", rows(256, 64), least=lambda n: 2 * ROW)
def cumsum(x):
    return jnp.cumsum(x[1:], axis=0)


@program("uneven/sort", rows(4096), least=lambda n: 4096 * 4 / n * (n - 1) / n)
def sort(x):
    return jnp.sort(x[1:])


@program("uneven/append a row", rows(256, 64), whole(1, 64))
def append(x, row):
    return jnp.concatenate([x, row]) * 2


@program("uneven/softmax", rows(256, 64))
def softmax(x):
    e = jnp.exp(x[:-1] - x[:-1].max(axis=0))
    return e / e.sum(axis=0)


@program("uneven/whole argument of 255 rows", whole(255, 64), rows(64, 64))
def whole_argument(x, w):
    return (x @ w).max(axis=1)
