"""Running sums, sorting, windows."""

import numpy as np

from bench.case import F32_4M, case


def floats(backend, *shape):
    return backend.array(np.random.default_rng(0).normal(size=shape).astype(np.float32))


@case("4M/cumsum", ratio=1.5)
def cumsum(backend):
    f = backend.jax.jit(lambda x: backend.jnp.cumsum(x))
    x = floats(backend, F32_4M)
    return lambda: f(x)


@case("4M/cumsum, 2 threads", ratio=5, cores=2)
def cumsum_on_threads(backend):
    return cumsum(backend)


@case("2048x2048/cumsum along columns", ratio=1.5)
def cumsum_columns(backend):
    f = backend.jax.jit(lambda x: backend.jnp.cumsum(x, 0))
    x = floats(backend, 2048, 2048)
    return lambda: f(x)


@case("1M/sort", ratio=20)
def sort(backend):
    f = backend.jax.jit(lambda x: backend.jnp.sort(x))
    x = floats(backend, 1 << 20)
    return lambda: f(x)


@case("1M/sort, 2 threads", ratio=20, cores=2)
def sort_on_threads(backend):
    return sort(backend)


@case("pool/gradient of 2x2 maxima, 32x56x56x64", ratio=2)
def max_pool(backend):
    lax = backend.jax.lax
    window = (1, 2, 2, 1)
    pool = lambda x: lax.reduce_window(x, -np.inf, lax.max, window, window)
    f = backend.jax.jit(backend.jax.grad(lambda x: (pool(x) ** 2).sum()))
    x = floats(backend, 32, 56, 56, 64)
    return lambda: f(x)
