"""Reads and writes at a million random places."""

import numpy as np

from bench.case import case

SIZE = 1 << 20


def arrays(backend):
    rng = np.random.default_rng(0)
    values = rng.normal(size=SIZE).astype(np.float32)
    return backend.array(values), backend.array(rng.integers(0, SIZE, SIZE).astype(np.int32))


@case("index/gather 1M", ratio=1, c=f"gather {SIZE}")
def gather(backend):
    f = backend.jax.jit(lambda x, indices: x[indices])
    x, indices = arrays(backend)
    return lambda: f(x, indices)


@case("index/scatter-add 1M", ratio=1, c=f"scatter {SIZE}")
def scatter_add(backend):
    f = backend.jax.jit(lambda x, indices, y: x.at[indices].add(y))
    x, indices = arrays(backend)
    return lambda: f(x, indices, x)


@case("index/scatter-add 65536 rows of 64, 2 threads", ratio=1, cores=2)
def scatter_add_rows(backend):
    f = backend.jax.jit(lambda x, indices, y: x.at[indices].add(y))
    rng = np.random.default_rng(0)
    rows = backend.array(rng.normal(size=(1 << 16, 64)).astype(np.float32))
    indices = backend.array(rng.integers(0, 1 << 12, 1 << 16).astype(np.int32))
    table = backend.array(np.zeros((1 << 12, 64), np.float32))
    return lambda: f(table, indices, rows)
