"""Kernels of Pallas over a grid of blocks. JAX interprets them on CPUs."""

import importlib

import numpy as np

from bench.case import case
from bench.cases.networks import normal

N, BLOCK = 512, 128


def pallas(backend):
    """The module, and how it runs a kernel for results like one of its operands."""
    pl = importlib.import_module(f"{backend.jax.__name__}.experimental.pallas")

    def compiled(kernel, like, **options):
        shape = backend.jax.ShapeDtypeStruct(like.shape, like.dtype)
        return backend.jax.jit(pl.pallas_call(kernel, shape, interpret=True, **options))

    return pl, compiled


@case("pallas/exp(x) + y, 1024 x 1024 in blocks of 128 x 128", ratio=5)
def elementwise(backend):
    pl, compiled = pallas(backend)
    x, y = normal(backend, 1024, 1024), normal(backend, 1024, 1024)

    def kernel(x, y, o):
        o[...] = backend.jnp.exp(x[...]) + y[...]

    block = pl.BlockSpec((BLOCK, BLOCK), lambda i, j: (i, j))
    f = compiled(kernel, x, grid=(8, 8), in_specs=[block, block], out_specs=block)
    return lambda: f(x, y)


@case("pallas/softmax of 1024 rows of 1024, 8 at a time", ratio=5)
def softmax(backend):
    pl, compiled = pallas(backend)
    x = normal(backend, 1024, 1024)

    def kernel(x, o):
        e = backend.jnp.exp(x[...] - x[...].max(axis=-1, keepdims=True))
        o[...] = e / e.sum(axis=-1, keepdims=True)

    rows = pl.BlockSpec((8, 1024), lambda i: (i, 0))
    f = compiled(kernel, x, grid=(128,), in_specs=[rows], out_specs=rows)
    return lambda: f(x)


@case("pallas/product of 512 x 512 in blocks of 128 x 128", ratio=2)
def product(backend):
    pl, compiled = pallas(backend)
    a, b = normal(backend, N, N), normal(backend, N, N)

    def kernel(a, b, o):
        @pl.when(pl.program_id(2) == 0)
        def _():
            o[...] = backend.jnp.zeros_like(o)

        o[...] += a[...] @ b[...]

    shape = BLOCK, BLOCK
    f = compiled(
        kernel, a, grid=(N // BLOCK,) * 3,
        in_specs=[pl.BlockSpec(shape, lambda i, j, k: (i, k)), pl.BlockSpec(shape, lambda i, j, k: (k, j))],
        out_specs=pl.BlockSpec(shape, lambda i, j, k: (i, j)),
    )  # fmt: skip
    return lambda: f(a, b)


@case("pallas/attention, 4 heads of 1024 x 64, blocks of 128", ratio=1)
def attention(backend):
    pl, compiled = pallas(backend)
    jnp, lax = backend.jnp, backend.jax.lax
    q, k, v = (normal(backend, 4, 1024, 64) for _ in range(3))

    def kernel(q, k, v, o):
        def turn(j, carry):
            acc, high, norm = carry
            here = pl.ds(j * BLOCK, BLOCK)
            s = q[...] @ k[here, :].T / 8
            top = jnp.maximum(high, s.max(axis=-1))
            p, old = jnp.exp(s - top[:, None]), jnp.exp(high - top)
            return acc * old[:, None] + p @ v[here, :], top, norm * old + p.sum(axis=-1)

        first = jnp.zeros(q.shape), jnp.full(BLOCK, -np.inf, np.float32), jnp.zeros(BLOCK)
        acc, _, norm = lax.fori_loop(0, k.shape[0] // BLOCK, turn, first)
        o[...] = acc / norm[:, None]

    part = pl.BlockSpec((None, BLOCK, 64), lambda h, i: (h, i, 0))
    head = pl.BlockSpec((None, 1024, 64), lambda h, i: (h, 0, 0))
    f = compiled(kernel, q, grid=(4, 1024 // BLOCK), in_specs=[part, head, head], out_specs=part)
    return lambda: f(q, k, v)


@case("pallas/sums of 1024 columns, 8 rows at a time", ratio=5)
def column_sums(backend):
    pl, compiled = pallas(backend)
    x = normal(backend, 1024, 1024)

    def kernel(x, o):
        @pl.when(pl.program_id(0) == 0)
        def _():
            o[...] = backend.jnp.zeros_like(o)

        o[...] += x[...].sum(axis=0, keepdims=True)

    rows, total = pl.BlockSpec((8, 1024), lambda i: (i, 0)), pl.BlockSpec((1, 1024), lambda i: (0, 0))
    f = compiled(kernel, x[:1], grid=(128,), in_specs=[rows], out_specs=total)
    return lambda: f(x)
