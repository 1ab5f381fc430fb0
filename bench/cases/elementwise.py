"""Elementwise functions of 4M numbers; the limit is reading and writing them once."""

import numpy as np

from bench.case import F32_4M, case


def data(backend, dtype, low=0.1, high=3.0, seed=0, size=F32_4M):
    return backend.array(np.random.default_rng(seed).uniform(low, high, size).astype(dtype))


def chain(backend):
    jnp = backend.jnp
    return lambda x: jnp.tanh(jnp.sin(x) * jnp.exp(-x) + jnp.log1p(x))


FUNCTIONS = {  # name: (function of a backend that gives the jitted function, arguments, target for float32)
    "exp": (lambda b: b.jnp.exp, 1, 2),
    "tanh": (lambda b: b.jnp.tanh, 1, 2),
    "log": (lambda b: b.jnp.log, 1, 2),
    "erf": (lambda b: b.lax.erf, 1, 2),
    "sin": (lambda b: b.jnp.sin, 1, 5),
    "pow": (lambda b: b.jnp.power, 2, 5),
    "chain of six": (chain, 1, 5),
    "axpy": (lambda b: lambda x, y: 2.5 * x + y, 2, 1),
}


def elementwise(function, arguments, dtype):
    def build(backend):
        f = backend.jax.jit(function(backend))
        xs = [data(backend, dtype, seed=i) for i in range(arguments)]
        return lambda: f(*xs)

    build.__module__ = __name__
    return build


for name, (function, arguments, ratio) in FUNCTIONS.items():
    limit = f"{'axpy' if name == 'axpy' else 'copy'} {F32_4M}"
    case(f"f32 4M/{name}", ratio=ratio, c=limit)(elementwise(function, arguments, np.float32))

for name, (function, arguments, _) in FUNCTIONS.items():
    # Twice the bytes of float32: a copy of 8M float32 is the limit here.
    limit = None if name == "axpy" else f"copy {2 * F32_4M}"
    register = case(
        f"f64 4M/{name}", ratio=1 if name == "axpy" else 1.5, c=limit, env=(("JAX_ENABLE_X64", "1"),)
    )
    register(elementwise(function, arguments, np.float64))
