"""Large programs: the time of the first call, which traces, compiles and runs an unrolled loop. Nothing is cached.

The number in a case's name is about the number of operations in the program, before `grad` adds its own.
"""

import numpy as np

from bench.case import case

STEP = np.float32(0.01)


def chain(backend, n):
    jnp = backend.jnp

    def f(x):
        for i in range(n // 2):
            x = jnp.sin(x) + i
        return x

    return f, (backend.array(np.ones(1000, np.float32)),)


def euler(backend, n):
    jnp = backend.jnp

    def f(x):
        for _ in range(n // 5):
            x = x + STEP * (jnp.sin(x) - x * x)
        return x

    return f, (backend.array(np.ones(1000, np.float32)),)


def runge_kutta(backend, n):
    def slope(x):
        return x * (1 - x)

    def f(x):
        for _ in range(n // 24):
            k1 = slope(x)
            k2 = slope(x + STEP / 2 * k1)
            k3 = slope(x + STEP / 2 * k2)
            k4 = slope(x + STEP * k3)
            x = x + STEP / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return x

    return f, (backend.array(np.ones(1000, np.float32)),)


def recurrent(backend, n):
    jnp, turns = backend.jnp, n // 5

    def f(h, w, u, xs):
        for i in range(turns):
            h = jnp.tanh(h @ w + xs[i] @ u)
        return h

    ones = [np.ones((8, 16)), np.full((16, 16), 0.1), np.ones((4, 16)), np.ones((turns, 8, 4))]
    return f, tuple(backend.array(x.astype(np.float32)) for x in ones)


def layers(backend, n):
    jax = backend.jax

    def f(parameters, x):
        for w, b in parameters:
            x = jax.nn.relu(x @ w + b)
        return x

    w, b = backend.array(np.full((64, 64), 0.01, np.float32)), backend.array(np.ones(64, np.float32))
    return f, ([(w, b)] * (n // 3), backend.array(np.ones((32, 64), np.float32)))


def leaves(backend, n):
    jnp = backend.jnp

    def f(xs):
        return sum(jnp.sum(x**2) for x in xs)

    return f, ([backend.array(np.ones(10, np.float32))] * (n // 3),)


PROGRAMS = {
    "elementwise chain": chain, "Euler steps": euler, "Runge-Kutta steps": runge_kutta,
    "unrolled RNN": recurrent, "layers": layers, "sum over leaves": leaves,
}  # fmt: skip


def _register(name, program, n):
    @case(f"size/{name}, {n:,}", ratio=2, mode="first", cache="empty")
    def value(backend):
        f, args = program(backend, n)
        run = backend.jax.jit(f)
        return [lambda: run(*args)]

    @case(f"size/{name}, gradient, {n:,}", ratio=2, mode="first", cache="empty")
    def gradient(backend):
        f, args = program(backend, n)
        run = backend.jax.jit(backend.jax.grad(lambda *args: f(*args).sum()))
        return [lambda: run(*args)]


for _name, _program in PROGRAMS.items():
    for _n in (100, 1_000, 10_000):
        _register(_name, _program, _n)
