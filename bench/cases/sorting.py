"""Orders and largest elements. (1M/sort stands with the running sums.)"""

import numpy as np

from bench.case import case
from bench.cases.scans import floats


@case("1M/argsort", ratio=8)
def argsort(backend):
    f = backend.jax.jit(backend.jnp.argsort)
    x = floats(backend, 1 << 20)
    return lambda: f(x)


@case("1024x1024/sort along columns", ratio=8)
def sort_columns(backend):
    f = backend.jax.jit(lambda x: backend.jnp.sort(x, axis=0))
    x = floats(backend, 1024, 1024)
    return lambda: f(x)


@case("1M/sort of keys with values", ratio=8)
def sort_key_val(backend):
    f = backend.jax.jit(lambda x, y: backend.lax.sort_key_val(x, y))
    x, y = floats(backend, 1 << 20), floats(backend, 1 << 20)
    return lambda: f(x, y)


@case("1M/top_k of 10", ratio=2)
def top_k(backend):
    f = backend.jax.jit(lambda x: backend.lax.top_k(x, 10))
    x = floats(backend, 1 << 20)
    return lambda: f(x)


@case("1M/top_k of 1000", ratio=2)
def top_k_many(backend):
    f = backend.jax.jit(lambda x: backend.lax.top_k(x, 1000))
    x = floats(backend, 1 << 20)
    return lambda: f(x)


@case("64x32000/top_k of 50 in each row", ratio=2)
def top_k_rows(backend):
    f = backend.jax.jit(lambda x: backend.lax.top_k(x, 50))
    x = floats(backend, 64, 32000)
    return lambda: f(x)


@case("100k/searchsorted", ratio=2)
def searchsorted(backend):
    f = backend.jax.jit(backend.jnp.searchsorted)
    x = floats(backend, 100_000)
    grid = backend.array(np.sort(np.asarray(x)))
    return lambda: f(grid, x)
