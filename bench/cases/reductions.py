"""Reductions of a float32 matrix of 4096 x 1024, alone and inside the usual normalisations."""

import numpy as np

from bench.case import F32_4M, case


def matrix(backend, rows=4096, columns=1024, seed=0):
    return backend.array(np.random.default_rng(seed).normal(size=(rows, columns)).astype(np.float32))


def on_matrix(backend, function):
    f = backend.jax.jit(function)
    x = matrix(backend)
    return lambda: f(x)


@case("4096x1024/sum axis 0", ratio=1, c=f"sum {F32_4M}")
def sum_columns(backend):
    return on_matrix(backend, lambda x: backend.jnp.sum(x, axis=0))


@case("4096x1024/sum, 2 threads", ratio=1, cores=2)
def sum_threads(backend):
    return on_matrix(backend, lambda x: backend.jnp.sum(x))


@case("4096x1024/sum axis 0, 2 threads", ratio=1, cores=2)
def sum_columns_threads(backend):
    return on_matrix(backend, lambda x: backend.jnp.sum(x, axis=0))


@case("4096x1024/sum axis 1", ratio=1, c=f"sum {F32_4M}")
def sum_rows(backend):
    return on_matrix(backend, lambda x: backend.jnp.sum(x, axis=1))


@case("4096x1024/argmax axis 0", ratio=10, c=f"sum {F32_4M}")
def argmax_columns(backend):
    return on_matrix(backend, lambda x: backend.jnp.argmax(x, axis=0))


@case("4096x1024/argmax axis 1", ratio=10, c=f"sum {F32_4M}")
def argmax_rows(backend):
    return on_matrix(backend, lambda x: backend.jnp.argmax(x, axis=1))


@case("4096x1024/softmax", ratio=2, c=f"copy {F32_4M}")
def softmax(backend):
    return on_matrix(backend, backend.nn.softmax)


@case("4096x1024/logsumexp", ratio=2, c=f"sum {F32_4M}")
def logsumexp(backend):
    return on_matrix(backend, lambda x: backend.nn.logsumexp(x, axis=-1))


@case("4096x1024/layer norm", ratio=2, c=f"copy {F32_4M}")
def layer_norm(backend):
    jnp, lax = backend.jnp, backend.lax

    def normalise(x):
        mean = jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean((x - mean) ** 2, axis=-1, keepdims=True)
        return (x - mean) * lax.rsqrt(variance + 1e-5)

    return on_matrix(backend, normalise)


@case("2048x2048/x + y.T", ratio=10, c=f"axpy {F32_4M}")
def transpose_add(backend):
    f = backend.jax.jit(lambda x, y: x + y.T)
    x, y = matrix(backend, 2048, 2048, 0), matrix(backend, 2048, 2048, 1)
    return lambda: f(x, y)
