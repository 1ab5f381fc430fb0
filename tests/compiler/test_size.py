"""Programs of many operations: they compile, in a time that grows with their size, to few different kernels."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from quickly import one_in

import mpijax
import mpijax.numpy as jnp
from mpijax.compiler.fusion import roots
from mpijax.compiler.fusion.depth import LEVELS, Shallow
from mpijax.compiler.steps.arena import Room, first_fit
from mpijax.compiler.steps.instructions import KernelCall
from mpijax.compiler.steps.planner import plan_program

RNG = np.random.default_rng(0)


def plan(fun, *args):
    return plan_program(mpijax.make_jaxpr(fun)(*args))


def plus_one(n):
    def f(x):
        for _ in range(n):
            x = x + 1
        return x

    return f


def affine(n):
    def f(x):
        y, c = x, x * 0.5
        for _ in range(n):
            y = y * x + c
        return y

    return f


def sines(n):
    def f(x):
        for i in range(n):
            x = jnp.sin(x) + i
        return x

    return f


def euler(n):
    def f(x):
        for _ in range(n):
            x = x + 0.01 * (jnp.sin(x) - x * x)
        return x

    return f


def turned(n):
    """Index maps between operations."""

    def f(x):
        for _ in range(n):
            x = (x.T + 1)[::-1]
        return x

    return f


def squared_leaves(xs):
    return sum(jnp.sum(x**2) for x in xs)


def reference(fun, x):
    """The same with NumPy in double precision."""

    class Numbers:
        sin = staticmethod(np.sin)

    original = fun.__globals__["jnp"]
    fun.__globals__["jnp"] = Numbers
    try:
        return fun(np.asarray(x, np.float64))
    finally:
        fun.__globals__["jnp"] = original


@pytest.mark.parametrize("make, n", one_in(2, [(plus_one, 1100), (affine, 600), (sines, 400), (euler, 250), (turned, 300)], rows=True))
@pytest.mark.one_in(3)
def test_long_lines_of_operations_compile(make, n):
    x = RNG.uniform(0, 0.9, (5, 5)).astype(np.float32)
    np.testing.assert_allclose(mpijax.jit(make(n))(x), reference(make(n), x), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("make, n", [(plus_one, 1000), (affine, 200), (euler, 80)])
@pytest.mark.one_in(3)
def test_gradients_of_long_lines_compile(make, n):
    x = RNG.uniform(0, 0.5, 4)
    step = 1e-6
    slope = (reference(make(n), x + step) - reference(make(n), x - step)) / (2 * step)
    got = mpijax.jit(mpijax.grad(lambda x: make(n)(x).sum()))(x.astype(np.float32))
    np.testing.assert_allclose(got, slope, rtol=1e-3)


def test_sum_over_many_leaves():
    xs = [RNG.standard_normal(3).astype(np.float32) for _ in range(320)]
    value, slope = mpijax.jit(mpijax.value_and_grad(squared_leaves))(xs)
    np.testing.assert_allclose(value, sum((x.astype(np.float64) ** 2).sum() for x in xs), rtol=1e-4)
    np.testing.assert_allclose(np.stack(slope), 2 * np.stack(xs), rtol=1e-6)


def test_positions_computed_in_a_long_line():
    """Indices known when compiling, of which there is a long line too."""

    def f(x):
        at = jnp.zeros((), jnp.int32)
        for _ in range(500):
            at = jnp.where(at == 2, 0, at + 1)
        return x[at]

    assert mpijax.jit(f)(jnp.arange(3.0)) == 500 % 3


def test_loop_bodies_of_many_operations():
    x = RNG.uniform(0, 0.4, 5).astype(np.float32)
    got = mpijax.jit(lambda x: mpijax.lax.fori_loop(0, 3, lambda i, x: affine(400)(x), x))(x)
    want = x
    for _ in range(3):
        want = reference(affine(400), want)
    np.testing.assert_allclose(got, want, rtol=1e-3)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.one_in(2)
def test_calls_a_thousand_deep(cached, monkeypatch):
    """Jitted functions in each other; each is traced before the next one is made."""
    monkeypatch.setenv("MPIJAX_CACHE", str(int(cached)))
    x = np.ones(3, np.float32)
    f = mpijax.jit(lambda x: x + 1)
    for _ in range(1000):
        f = mpijax.jit(lambda x, g=f: g(x) + 1)
        f.trace(x)
    np.testing.assert_array_equal(f(x), np.full(3, 1002))


def test_deep_stacks_of_the_caller_do_not_matter():
    """Compilation needs a number of frames that does not grow with the program."""

    def below(n):
        return mpijax.jit(affine(300))(np.float32(0.5)) if n == 0 else below(n - 1)

    frame, used = sys._getframe(), 0
    while frame is not None:
        frame, used = frame.f_back, used + 1
    below(sys.getrecursionlimit() // 2 - used)


def test_kernels_that_differ_in_constants_are_one():
    p = plan(sines(400), jnp.ones(100))
    calls = [s for s in p.instructions if isinstance(s, KernelCall)]
    assert len(calls) > 10
    assert len(p.kernels) <= 3
    assert len({tuple(s.params) for s in calls}) > 10


def test_ordinary_kernels_keep_their_constants():
    p = plan(lambda x: jnp.tanh(x) * 1.5 + 2.5, jnp.ones(100))
    [call] = p.instructions
    assert call.params == ()


def test_kernels_are_cut_at_a_bound():
    for f in (sines(300), euler(200), affine(1500)):
        p = plan(f, jnp.ones(100))
        assert max(len(k.expressions) for k in p.nests) <= 3 * roots.MAX_WORK


@pytest.mark.parametrize("fun", [euler(40), lambda x: mpijax.grad(lambda x: euler(40)(x).sum())(x)])
def test_alike_kernels_have_the_text_they_would_have_alone(fun, monkeypatch):
    """What a kernel is taken for says all that its text depends on."""
    from mpijax.compiler.loops import alike

    x = jnp.ones((6, 7))
    shared = plan(fun, x)
    monkeypatch.setattr(alike, "FEW", 10**9)
    alone = plan(fun, x)
    names = [[s.code for s in p.instructions if isinstance(s, KernelCall)] for p in (shared, alone)]
    pointers = [[(s.ptrs, s.params) for s in p.instructions if isinstance(s, KernelCall)] for p in (shared, alone)]
    assert names[0] == names[1] and pointers[0] == pointers[1]


def test_shallow_calls():
    seen = {}
    deepest = 0

    def total(n):
        nonlocal deepest
        deepest = max(deepest, walk.level)
        below = 0 if n == 0 else seen[n - 1] if n - 1 in seen else walk(n - 1)
        seen[n] = below + n
        return seen[n]

    walk = Shallow(total)
    assert walk(50_000) == 50_000 * 50_001 // 2
    assert deepest <= LEVELS
    assert walk.level == 0


def test_room_is_first_fit():
    live, last = [], 40
    room = Room([])
    for t in range(400):
        live = [x for x in live if x[2] >= t]
        room.leave(t - 1)
        nbytes = int(RNG.choice([1, 64, 100, 4096, 2 << 20]))
        end = t + int(RNG.integers(0, last))
        at = first_fit(live, nbytes)
        assert room.place(nbytes, end) == at
        live.append((at, at + nbytes, end))


@pytest.mark.slow
@pytest.mark.parametrize("make", [plus_one, affine])
def test_a_hundred_thousand_operations(make):
    x = np.full(3, 0.5, np.float32)
    got = mpijax.jit(make(100_000 if make is plus_one else 50_000))(x)
    np.testing.assert_allclose(got, reference(make(100_000 if make is plus_one else 50_000), x), rtol=1e-3)
