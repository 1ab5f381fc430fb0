"""Scans along a split axis: the ranks run their iterations in turn, and send the carry on."""

from __future__ import annotations

import numpy as np
import pytest
from spmd.ranks import SIZE, P, assert_same, mesh_1d, mesh_2d, real

import mpijax as jax
from mpijax import NamedSharding, lax
from mpijax import numpy as jnp
from mpijax.runtime.program.traffic import sent

pytestmark = pytest.mark.mpi
many = pytest.mark.skipif(SIZE == 1, reason="one rank has all of every array")

N = 6 * SIZE
X, W = real((N, 4)), real((4, 4), 1)


def split(x, spec=None, mesh=None):
    return jax.device_put(x, NamedSharding(mesh or mesh_1d(), P("i") if spec is None else spec))


def traffic(f, *xs):
    return sent(jax.jit(f).lower(*xs).compiler_ir())


def recurrence(w, x, reverse=False, unroll=1):
    """Two carries of different types, and two stacked results."""

    def step(c, row):
        h, n = c
        h = jnp.tanh(h @ w + row)
        return (h, n + (row[0] > 0)), (h * 2, n)

    return lax.scan(step, (jnp.ones(4), 0), x, reverse=reverse, unroll=unroll)


def check(f, *xs, **tolerance):
    for got, want in zip(jax.tree.leaves(jax.jit(f)(*map(split, xs))), jax.tree.leaves(f(*xs)), strict=True):
        assert_same(got, np.asarray(want), **(tolerance or {"rtol": 1e-5, "atol": 1e-6}))


@pytest.mark.parametrize("rows", [slice(None), slice(1, None), slice(0, SIZE), slice(0, 1), slice(0, 0)], ids=str)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.one_in(3)
def test_carries_and_stacked_results(rows, reverse):
    check(lambda x: recurrence(jnp.asarray(W), x[rows], reverse), X)


@pytest.mark.parametrize("unroll", [2, N])
def test_unrolled(unroll):
    check(lambda x: recurrence(jnp.asarray(W), x, unroll=unroll), X)


@pytest.mark.sweep
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("cut_off", [0, 1])
def test_gradients(reverse, cut_off):
    def loss(w, x):
        (h, _), (hs, _) = recurrence(w, x[cut_off:], reverse)
        return jnp.sum(jnp.sin(hs)) + jnp.sum(h**2)

    w = jax.device_put(W, NamedSharding(mesh_1d(), P()))
    for transformed in (jax.grad(loss, (0, 1)), jax.grad(jax.checkpoint(loss), (0, 1))):
        got = jax.jit(transformed)(w, split(X))
        for g, v in zip(got, jax.grad(loss, (0, 1))(W, X), strict=True):
            assert_same(g, np.asarray(v), rtol=1e-4, atol=1e-5)
    tangents = jax.jit(lambda x: jax.jvp(lambda x: loss(jnp.asarray(W), x), (x,), (x,)))(split(X))
    for g, v in zip(tangents, jax.jvp(lambda x: loss(jnp.asarray(W), x), (X,), (X,)), strict=True):
        assert_same(g, np.asarray(v), rtol=1e-4, atol=1e-5)


def test_batches():
    x = real((N, 3, 4))
    f = jax.vmap(lambda x: recurrence(jnp.asarray(W), x), in_axes=1)
    check(f, x)


def test_a_loop_around_and_a_loop_inside():
    def f(x):
        def again(_, x):
            c, ys = lax.scan(lambda c, row: (lax.fori_loop(0, 3, lambda _, c: jnp.sin(c + row), c), c), x.mean(0), x)
            return ys + c

        return lax.fori_loop(0, 2, again, x)

    check(f, X)


def test_keys_and_bools_are_carried():
    def f(x):
        def step(c, row):
            key, seen = c
            key, new = jax.random.split(key)
            return (key, seen | (row[0] > 0.9)), row + jax.random.uniform(new, (4,))

        (key, seen), ys = lax.scan(step, (jax.random.key(1), False), x)
        return jax.random.key_data(key), seen, ys

    check(f, X)


def test_over_two_mesh_axes():
    mesh = mesh_2d((SIZE // 2, 2) if SIZE % 2 == 0 else (SIZE, 1))
    f = jax.jit(lambda x: recurrence(jnp.asarray(W), x))
    for spec in (P("i"), P("j"), P(("j", "i"))):
        got = jax.tree.leaves(f(split(X, spec, mesh)))
        for g, v in zip(got, jax.tree.leaves(recurrence(jnp.asarray(W), X)), strict=True):
            assert_same(g, np.asarray(v), rtol=1e-5, atol=1e-6)


def test_bodies_that_communicate_run_on_all_ranks():
    """Such a body reads a split array, or asks for a sharding."""
    v = real((N, N))

    def reads(x, v):
        return lax.scan(lambda c, row: (jnp.tanh(v @ c + row[0]), c), jnp.ones(N), x)

    def asks(x):
        def step(c, row):
            c = lax.with_sharding_constraint(c + row[0], NamedSharding(mesh_1d(), P("i")))
            return c, c.sum()

        return lax.scan(step, jnp.ones(N), x)

    check(reads, X, v, rtol=1e-4, atol=1e-5)
    check(asks, X, rtol=1e-4, atol=1e-5)


@many
def test_only_carries_are_sent():
    x = split(X)
    found = traffic(lambda x: recurrence(jnp.asarray(W), x), x)
    assert not any("gather" in s.kind for s in found)
    assert sum(s.total for s in found) <= 2 * (4 * 4 + 4)
    _, (hs, _) = jax.jit(lambda x: recurrence(jnp.asarray(W), x))(x)
    assert not hs.is_fully_replicated
    gradient = traffic(jax.grad(lambda x: recurrence(jnp.asarray(W), x)[0][0].sum()), x)
    assert not any("gather" in s.kind for s in gradient)
