"""Linear algebra: one matrix of 512 rows, and stacks of small ones."""

import numpy as np

from bench.case import case
from bench.cases.scans import floats


def definite(backend, n, *stack):
    """Symmetric positive definite matrices [*stack, n, n]."""
    a = np.random.default_rng(0).normal(size=(*stack, n, n)).astype(np.float32)
    return backend.array(a @ a.swapaxes(-1, -2) + n * np.eye(n, dtype=np.float32))


def of_one(name, function, n, *stack, ratio=1, cores=1):
    """A case: a function of `jnp.linalg` of positive definite matrices."""

    @case(name, ratio=ratio, cores=cores)
    def build(backend):
        f = backend.jax.jit(getattr(backend.jnp.linalg, function))
        a = definite(backend, n, *stack)
        return lambda: f(a)


of_one("512/cholesky", "cholesky", 512)
of_one("512/inverse", "inv", 512)
of_one("512/eigh", "eigh", 512)
of_one("512/qr", "qr", 512)
of_one("256/svd", "svd", 256)
of_one("1000x4x4/cholesky", "cholesky", 4, 1000)
of_one("1000x4x4/inverse", "inv", 4, 1000)
of_one("1000x4x4/determinant", "det", 4, 1000)
of_one("1000x4x4/qr", "qr", 4, 1000, ratio=2)
of_one("1000x4x4/svd", "svd", 4, 1000)
of_one("1000x4x4/eigh", "eigh", 4, 1000, ratio=2)
of_one("4096x16x16/cholesky, 2 threads", "cholesky", 16, 4096, cores=2)
of_one("256x32x32/svd, 2 threads", "svd", 32, 256, cores=2)
of_one("32x100x100/eigh, 2 threads", "eigh", 100, 32, cores=2)


@case("512/solve", ratio=1)
def solve(backend):
    f = backend.jax.jit(backend.jnp.linalg.solve)
    a, b = definite(backend, 512), floats(backend, 512)
    return lambda: f(a, b)


@case("1000x4x4/solve", ratio=1)
def solve_stack(backend):
    f = backend.jax.jit(backend.jnp.linalg.solve)
    a, b = definite(backend, 4, 1000), floats(backend, 1000, 4, 1)
    return lambda: f(a, b)
