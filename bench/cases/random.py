"""Random numbers: threefry bits, the same on every system."""

from bench.case import F32_4M, case


@case("random/uniform 4M", ratio=4)
def uniform(backend):
    f = backend.jax.jit(lambda key: backend.random.uniform(key, (F32_4M,)))
    key = backend.random.key(0)
    return lambda: f(key)


@case("random/bits 4M, 2 threads", ratio=4, cores=2)
def bits(backend):
    f = backend.jax.jit(lambda key: backend.random.bits(key, (F32_4M,)))
    key = backend.random.key(0)
    return lambda: f(key)


@case("random/normal 4M", ratio=4)
def normal(backend):
    f = backend.jax.jit(lambda key: backend.random.normal(key, (F32_4M,)))
    key = backend.random.key(0)
    return lambda: f(key)


@case("random/first gamma of a shape", mode="first", seconds=1.5, cache="empty")
def first_gamma(backend):
    key = backend.random.key(0)
    return [lambda: backend.random.gamma(key, 0.7, (1000,))]
