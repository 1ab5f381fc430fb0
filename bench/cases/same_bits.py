"""Sums and products under MPIJAX_SAME_BITS=1, beside JAX's ordinary ones: what the same bits on any ranks cost."""

import numpy as np

from bench.case import F32_4M, case
from bench.cases.reductions import matrix, on_matrix

SAME_BITS = (("MPIJAX_SAME_BITS", "1"),)


@case("same bits/4096x1024 sum", c=f"sum {F32_4M}", env=SAME_BITS)
def sum_all(backend):
    return on_matrix(backend, backend.jnp.sum)


@case("same bits/4096x1024 sum axis 0", c=f"sum {F32_4M}", env=SAME_BITS)
def sum_columns(backend):
    return on_matrix(backend, lambda x: backend.jnp.sum(x, axis=0))


@case("same bits/4096x1024 sum axis 1", c=f"sum {F32_4M}", env=SAME_BITS)
def sum_rows(backend):
    return on_matrix(backend, lambda x: backend.jnp.sum(x, axis=1))


@case("same bits/4096x1024 softmax axis 1", env=SAME_BITS)
def softmax(backend):
    return on_matrix(backend, lambda x: backend.nn.softmax(x, axis=1))


@case("same bits/4096x1024 matrix by vector", env=SAME_BITS)
def matrix_by_vector(backend):
    return on_matrix(backend, lambda x: x @ x[0])


@case("same bits/1024x1024 product", env=SAME_BITS)
def product(backend):
    f = backend.jax.jit(lambda x: x @ x)
    x = matrix(backend, 1024, 1024)
    return lambda: f(x)


@case("same bits/segment_sum of 1M", env=SAME_BITS)
def segment_sum(backend):
    rng = np.random.default_rng(0)
    x, rows = rng.normal(size=1 << 20).astype(np.float32), rng.integers(0, 1000, 1 << 20).astype(np.int32)
    f = backend.jax.jit(lambda x, rows: backend.jax.ops.segment_sum(x, rows, 1000))
    x, rows = backend.array(x), backend.array(rows)
    return lambda: f(x, rows)
