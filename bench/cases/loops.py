"""Loops, stencils and derivatives of whole functions."""

import numpy as np

from bench.case import case
from bench.cases.networks import SIZES, mlp_batch, mlp_loss, mlp_parameters, normal

UNITS, STEPS = 64, 1000


def rnn(backend):
    """A plain recurrent network: `(weights, first state, inputs) -> (last state, all states)`, and its arguments."""
    jnp, lax = backend.jnp, backend.lax

    def run(w, h, xs):
        def step(h, x):
            h = jnp.tanh(h @ w + x)
            return h, h

        return lax.scan(step, h, xs)

    arguments = (
        normal(backend, UNITS, UNITS, scale=UNITS**-0.5),
        backend.array(np.zeros(UNITS, np.float32)),
        normal(backend, STEPS, UNITS),
    )
    return run, arguments


@case("loops/RNN of 64 units, 1000 steps", ratio=1)
def rnn_forward(backend):
    run, arguments = rnn(backend)
    f = backend.jax.jit(run)
    return lambda: f(*arguments)


def rnn_loss_gradient(backend):
    run, arguments = rnn(backend)
    jnp = backend.jnp
    f = backend.jax.jit(backend.jax.grad(lambda w, h, xs: jnp.sum(run(w, h, xs)[1] ** 2)))
    return f, *arguments


@case("loops/RNN of 64 units, 1000 steps, gradient", ratio=1)
def rnn_gradient(backend):
    f, *arguments = rnn_loss_gradient(backend)
    return lambda: f(*arguments)


@case("loops/RNN gradient, vanishing", ratio=1)
def rnn_gradient_vanishing(backend):
    """Of the last state, whose derivatives by earlier ones become denormal, and then zero."""
    run, (_, *arguments) = rnn(backend)
    weights = normal(backend, UNITS, UNITS, scale=UNITS**-0.5 / 2)
    jnp = backend.jnp
    f = backend.jax.jit(backend.jax.grad(lambda w, h, xs: jnp.sum(run(w, h, xs)[0] ** 2)))
    return lambda: f(weights, *arguments)


@case("memory/RNN gradient, 1000 steps", ratio=1, mode="memory")
def rnn_gradient_memory(backend):
    return rnn_loss_gradient(backend)


@case("loops/scalar fori_loop, 100000 iterations", ratio=1)
def scalar_loop(backend):
    f = backend.jax.jit(lambda x: backend.lax.fori_loop(0, 100_000, lambda i, x: x * 0.999 + 1.0, x))
    x = backend.array(np.float32(1))
    return lambda: f(x)


@case("loops/vmapped Newton while_loop, 65536", ratio=1)
def newton(backend):
    jnp, lax = backend.jnp, backend.lax

    def root(a):
        return lax.while_loop(lambda x: jnp.abs(x * x - a) > 1e-3 * a, lambda x: 0.5 * (x + a / x), a)

    f = backend.jax.jit(backend.jax.vmap(root))
    a = backend.array(np.random.default_rng(0).uniform(1, 100, 65536).astype(np.float32))
    return lambda: f(a)


def ten_steps(backend, step, size):
    """A call of ten steps `u -> u` on a square grid."""
    f = backend.jax.jit(lambda u: backend.lax.fori_loop(0, 10, lambda _, u: step(u), u))
    u = normal(backend, size, size)
    return lambda: f(u)


@case("loops/heat stencil 2048x2048, 10 steps", ratio=5, c_ratio=1.3, c="heat 2048")
def heat(backend):
    def step(u):
        near = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        return u.at[1:-1, 1:-1].add(0.1 * (near - 4 * u[1:-1, 1:-1]))

    return ten_steps(backend, step, 2048)


@case("loops/heat stencil by roll 1024x1024, 10 steps", ratio=2)
def heat_by_roll(backend):
    jnp = backend.jnp

    def step(u):
        near = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1)
        return u + 0.1 * (near - 4 * u)

    return ten_steps(backend, step, 1024)


@case("loops/heat stencil by pad 1024x1024, 10 steps", ratio=2)
def heat_by_pad(backend):
    jnp = backend.jnp

    def step(u):
        p = jnp.pad(u, 1)
        near = p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2]
        return u + 0.1 * (near - 4 * u)

    return ten_steps(backend, step, 1024)


@case("loops/7-point stencil 256x256x256, 10 steps", ratio=10)
def seven_points(backend):
    inside = (slice(1, -1),) * 3

    def step(u):
        near = sum(
            u[tuple(slice(1 + by * (d == axis), u.shape[d] - 1 + by * (d == axis)) for d in range(3))]
            for axis in range(3)
            for by in (-1, 1)
        )
        return u.at[inside].set(0.4 * u[inside] + 0.1 * near)

    f = backend.jax.jit(lambda u: backend.lax.fori_loop(0, 10, lambda _, u: step(u), u))
    u = normal(backend, 256, 256, 256)
    return lambda: f(u)


@case("loops/n-body forces, 512 bodies", ratio=2)
def n_body(backend):
    jnp = backend.jnp

    def forces(p):
        d = p[:, None] - p[None]
        r2 = jnp.sum(d * d, -1) + 1e-3
        return jnp.sum(d / (r2 * jnp.sqrt(r2))[..., None], 1)

    f = backend.jax.jit(forces)
    p = normal(backend, 512, 3)
    return lambda: f(p)


@case("loops/Hessian of 100 parameters", ratio=1)
def hessian(backend):
    jnp = backend.jnp

    def f(x):
        return jnp.sum(jnp.sin(x) * jnp.roll(x, 1) ** 2) * jnp.sum(x * x)

    h = backend.jax.jit(backend.jax.hessian(f))
    x = normal(backend, 100)
    return lambda: h(x)


@case("trace/make_jaxpr of an MLP's gradient", ratio=1)
def trace_gradient(backend):
    jax, loss = backend.jax, mlp_loss(backend)
    parameters, batch = mlp_parameters(backend, SIZES), mlp_batch(backend, SIZES, 128)

    def trace():
        # A new function each time: neither system has traced it before.
        jax.make_jaxpr(jax.grad(lambda *args: loss(*args)))(parameters, *batch)
        return parameters[0]["b"]

    return trace


def transformer(backend, layers: int, remat: bool = False):
    """The gradient of a transformer of identical layers, and its arguments."""
    jax, jnp, lax, nn = backend.jax, backend.jnp, backend.lax, backend.nn
    width, heads, tokens = 128, 4, 64

    def norm(x, scale):
        mean = jnp.mean(x, -1, keepdims=True)
        return (x - mean) * lax.rsqrt(jnp.mean((x - mean) ** 2, -1, keepdims=True) + 1e-5) * scale

    def layer(p, x):
        q, k, v = jnp.einsum("btw,wchd->cbhtd", norm(x, p["scale"]), p["qkv"])
        scores = nn.softmax(jnp.einsum("bhtd,bhsd->bhts", q, k) / np.float32((width // heads) ** 0.5))
        mixed = jnp.einsum("bhts,bhsd->bthd", scores, v).reshape(x.shape)
        x = x + mixed @ p["out"]
        return x + nn.gelu(norm(x, p["scale"]) @ p["up"]) @ p["down"]

    one = jax.checkpoint(layer) if remat else layer

    def loss(parameters, x):
        for p in parameters:
            x = one(p, x)
        return jnp.mean(x**2)

    def parameters(seed):
        return {
            "scale": backend.array(np.ones(width, np.float32)),
            "qkv": normal(backend, width, 3, heads, width // heads, seed=seed, scale=width**-0.5),
            "out": normal(backend, width, width, seed=seed, scale=width**-0.5),
            "up": normal(backend, width, 4 * width, seed=seed, scale=width**-0.5),
            "down": normal(backend, 4 * width, width, seed=seed, scale=(4 * width) ** -0.5),
        }

    f = jax.jit(jax.grad(loss))
    return f, [parameters(i) for i in range(layers)], normal(backend, 8, tokens, width, seed=99)


@case("start/first call, gradient of 12 transformer layers", ratio=1.5, mode="first", cache="empty")
def cold_transformer(backend):
    f, *arguments = transformer(backend, 12)
    return [lambda: f(*arguments)]


@case("memory/gradient of 12 transformer layers", ratio=1, mode="memory")
def transformer_memory(backend):
    return transformer(backend, 12)


@case("memory/gradient of 12 checkpointed transformer layers", ratio=1, mode="memory")
def checkpointed_memory(backend):
    return transformer(backend, 12, remat=True)
