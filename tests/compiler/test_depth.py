"""No recursion gets deeper with the number of operations: programs have more of them than Python may have frames."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from quickly import one_in

import mpijax
import mpijax.numpy as jnp
from mpijax import export, lax
from mpijax.experimental import checkify
from mpijax.extend.core import jaxpr_as_fun

# Operations of a program, and frames that Python may have beyond those of the caller.
OPERATIONS, FRAMES = 660, 350
X = np.full(3, 0.5, np.float32)


def line(x):
    for _ in range(OPERATIONS // 3):
        x = jnp.sin(x) * 0.5 + x
    return x


def total(x):
    return line(x).sum()


def jaxpr():
    return mpijax.make_jaxpr(line)(X)


USES = {
    "trace": jaxpr,
    "jit": lambda: mpijax.jit(line)(X),
    "one by one": lambda: line(jnp.asarray(X)),
    "jvp": lambda: mpijax.jvp(line, (X,), (X,)),
    "vjp": lambda: mpijax.vjp(line, X)[1](X),
    "linearize": lambda: mpijax.linearize(line, X)[1](X),
    "grad": lambda: mpijax.jit(mpijax.grad(total))(X),
    "hessian": lambda: mpijax.make_jaxpr(mpijax.hessian(total))(X),
    "vmap": lambda: mpijax.jit(mpijax.vmap(line))(X),
    "checkpoint": lambda: mpijax.jit(mpijax.grad(lambda x: mpijax.checkpoint(line)(x).sum()))(X),
    "scan": lambda: lax.scan(lambda c, _: (line(c), None), X, None, length=2),
    "while": lambda: mpijax.jit(lambda x: lax.while_loop(lambda x: x[0] < 0, line, x))(X),
    "cond": lambda: mpijax.jit(lambda x: lax.cond(x[0] > 0, line, jnp.cos, x))(X),
    "sum of arguments": lambda: mpijax.jit(lambda xs: sum(xs))([X] * OPERATIONS),
    "shard_map": lambda: mpijax.jit(
        mpijax.shard_map(line, mesh=mpijax.make_mesh((1,), ("i",)), in_specs=mpijax.P(), out_specs=mpijax.P())
    )(X),
    "checkify": lambda: mpijax.jit(checkify.checkify(line))(X),
    "text of the Jaxpr": lambda: str(jaxpr()),
    "text of the loop nests": lambda: mpijax.jit(line).lower(X).as_text(),
    "LLVM": lambda: mpijax.jit(line).lower(X).as_text("llvm"),
    "text of the program": lambda: mpijax.jit(line).lower(X).compile().as_text(),
    "cost": lambda: mpijax.jit(line).lower(X).cost_analysis(),
    "hash": lambda: hash(jaxpr()),
    "comparison": lambda: jaxpr() == jaxpr(),
    "as a function": lambda: jaxpr_as_fun(jaxpr())(X),
    "export": lambda: export.deserialize(export.export(mpijax.jit(line))(X).serialize()).call(X),
}


@pytest.mark.parametrize("name", one_in(3, USES))
@pytest.mark.one_in(3)
def test_frames_do_not_grow_with_the_program(name):
    USES[name]()  # imports have frames of their own
    mpijax.clear_caches()
    frame, used = sys._getframe(), 0
    while frame is not None:
        frame, used = frame.f_back, used + 1
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(used + FRAMES)
    try:
        del frame
        USES[name]()
    finally:
        sys.setrecursionlimit(usual)


def value(x, operations):
    """`line` with NumPy, in double precision: its value and its derivative."""
    x, slope = x.astype(np.float64), np.ones(x.shape)
    for _ in range(operations // 3):
        x, slope = np.sin(x) * 0.5 + x, (np.cos(x) * 0.5 + 1) * slope
    return x, slope


def test_what_it_computes():
    want, slope = value(X, OPERATIONS)
    np.testing.assert_allclose(mpijax.jit(line)(X), want, rtol=1e-5)
    near = X * 1e-30  # where the slope is not yet zero
    np.testing.assert_allclose(mpijax.jit(mpijax.grad(total))(near), value(near, OPERATIONS)[1], rtol=1e-4)


@pytest.mark.slow
def test_the_gradient_of_ten_thousand_operations():
    def f(x):
        for _ in range(5000):
            x = x + 1e-4 * jnp.sin(x)
        return x

    x, slope = X.astype(np.float64), np.ones(3)
    for _ in range(5000):
        x, slope = x + 1e-4 * np.sin(x), slope * (1 + 1e-4 * np.cos(x))
    value, derivative = mpijax.jit(lambda x: mpijax.jvp(f, (x,), (jnp.ones(3),)))(X)
    np.testing.assert_allclose(value, x, rtol=1e-3)
    np.testing.assert_allclose(derivative, slope, rtol=1e-3)
    np.testing.assert_allclose(mpijax.jit(mpijax.grad(lambda x: f(x).sum()))(X), slope, rtol=1e-3)


@pytest.mark.slow
def test_a_hundred_thousand_operations_of_several_kinds():
    def f(x):
        for _ in range(25_000):
            x = jnp.cos(x) * 0.5 + x * 0.5
        return x

    fixed = 0.7390851332151607  # of cos, to which this converges
    np.testing.assert_allclose(mpijax.jit(f)(X), fixed, rtol=1e-5)
