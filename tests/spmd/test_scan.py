"""Loops whose bodies communicate, against the same loops on whole arrays."""

from __future__ import annotations

import numpy as np
import pytest
from spmd.ranks import SIZE, assert_same, mesh_1d, real, whole

import mpijax as jax
from mpijax import lax
from mpijax import numpy as jnp
from mpijax.sharding import PartitionSpec as P

pytestmark = [pytest.mark.mpi, pytest.mark.two_ranks]  # bodies of loops are programs as others

TURNS = 3
W = real((4,), 1)
XS = real((TURNS, SIZE, 4), 2)


def over_ranks(w, x):
    """Every iteration sums over ranks, and hands a value on to the next rank."""

    def step(carry, x):
        total, own = carry
        total = lax.psum(jnp.sin(total) * x * w, "i")
        ring = [(r, (r + 1) % SIZE) for r in range(SIZE)]
        return (total, lax.ppermute(own, "i", ring) + x), x * w + total

    start = jnp.ones(4), lax.pcast(jnp.zeros(4), "i", to="varying")
    (total, own), ys = lax.scan(step, start, x[:, 0])
    return total, own[None], ys[:, None]


def on_whole_arrays(w, xs):
    total, own, ys = jnp.ones(4), jnp.zeros((SIZE, 4)), []
    for x in xs:
        total = (jnp.sin(total) * x * w).sum(0)
        own = jnp.roll(own, 1, 0) + x
        ys.append(x * w + total)
    return total, own, jnp.stack(ys)


def mapped():
    specs = P(), P(None, "i")
    return jax.shard_map(over_ranks, mesh=mesh_1d(), in_specs=specs, out_specs=(P(), P("i"), P(None, "i")))


def loss(program):
    def call(w, xs):
        total, own, ys = program(w, xs)
        return (total**2).sum() + jnp.cos(own).sum() + (ys * ys).sum()

    return call


@pytest.mark.parametrize("form", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_values(form):
    for a, b in zip(form(mapped())(W, XS), on_whole_arrays(W, XS), strict=True):
        assert_same(a, np.asarray(b), rtol=2e-5)


@pytest.mark.parametrize("argument", [0, 1], ids=["replicated", "split"])
def test_gradient(argument):
    found = jax.jit(jax.grad(loss(mapped()), argument))(W, XS)
    assert_same(found, np.asarray(jax.grad(loss(on_whole_arrays), argument)(W, XS)), rtol=1e-4)


def test_second_order():
    def bent(program):
        return lambda w: (jax.grad(loss(program))(w, XS) ** 2).sum()

    found = jax.jit(jax.grad(bent(mapped())))(W)
    np.testing.assert_allclose(whole(found), np.asarray(jax.grad(bent(on_whole_arrays))(W)), rtol=1e-3, atol=1e-4)


def test_communication_stays_though_nobody_reads_it():
    """What the ranks do together does not depend on what each one does with the result."""

    def f(x):
        lax.scan(lambda c, x: (c, lax.psum(x, "i")), 0.0, x[:, 0])
        return x * 2

    program = jax.jit(jax.shard_map(f, mesh=mesh_1d(), in_specs=P(None, "i"), out_specs=P(None, "i")))
    assert SIZE == 1 or "communicate psum" in program.lower(XS).compile().as_text()
    assert_same(program(XS), XS * 2)


def test_a_carry_that_starts_equal_and_does_not_stay_so():
    def f(x):
        return lax.scan(lambda total, x: (total + x, None), jnp.zeros(4), x[:, 0])[0][None]

    program = jax.shard_map(f, mesh=mesh_1d(), in_specs=P(None, "i"), out_specs=P("i"))
    with pytest.raises(TypeError, match=r"(?s)input carry total has type float32\[4\] .*\{V:i\}.*pcast.*to='varying'"):
        program(XS)
