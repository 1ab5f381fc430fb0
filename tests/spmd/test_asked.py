"""Propagation back from `out_shardings` and constraints: whole arguments, and each rank computes its part only."""

from __future__ import annotations

import numpy as np
import pytest
from spmd.ranks import SIZE, P, assert_same, mesh_1d, mesh_2d, real
from spmd.test_global_arrays import CLOSE, kinds

import mpijax as jax
from mpijax import NamedSharding, lax
from mpijax import numpy as jnp

pytestmark = pytest.mark.mpi

M = 64 * SIZE
A, B, C = real((M, 36)), real((36, 48), 1), real((48, 24), 2)


def flops(compiled) -> float:
    return compiled.cost_analysis()["flops"]


def constrained(a, b):
    return lax.with_sharding_constraint(a @ b, NamedSharding(mesh_1d(), P("i"))).sum(1)


PROGRAMS = {
    "product": (lambda a, b, c: a @ b, {}),
    "two products": (lambda a, b, c: jnp.tanh(a @ b) @ c, {}),
    "softmax of rows": (lambda a, b, c: jax.nn.softmax(a @ b, axis=1), {}),
    "reduced": (lambda a, b, c: (a @ b).sum(1), {}),
    "transposed": (lambda a, b, c: (b.T @ a.T).T, {}),
    "called": (lambda a, b, c: jax.jit(lambda a: jax.nn.relu(a @ b))(a), {}),
    "two readers": (lambda a, b, c: (lambda y: y + y.sum(0))(a @ b), {"allreduce_sum": 1}),
    "loop": (lambda a, b, c: lax.fori_loop(0, 3, lambda i, a: jnp.tanh(a @ b[:, :36]), a), {}),
    "gradient": (jax.grad(lambda a, b, c: jnp.tanh(a @ b).sum()), {}),
    "examples": (lambda a, b, c: jnp.linalg.cholesky(jax.vmap(jnp.outer)(a, a) + 9 * jnp.eye(36)), {}),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.one_in(3)
def test_out_shardings(name):
    f, expected = PROGRAMS[name]
    out = NamedSharding(mesh_1d(), P("i"))
    split = jax.jit(f, out_shardings=out)
    got = split(A, B, C)
    assert_same(got, f(*map(jnp.asarray, (A, B, C))), rtol=2e-5, atol=1e-4)
    assert got.sharding.is_equivalent_to(out, got.ndim)
    if SIZE > 1:
        assert kinds(split, A, B, C) == expected
        assert flops(split.lower(A, B, C).compile()) <= 1.1 * flops(jax.jit(f).lower(A, B, C).compile()) / SIZE


def test_constraint_inside():
    assert_same(jax.jit(constrained)(A, B), (A @ B).sum(1), **CLOSE)
    if SIZE > 1:
        whole = jax.jit(lambda a, b: (a @ b).sum(1))
        parts, all_of_it = (flops(jax.jit(f).lower(A, B).compile()) for f in (constrained, whole))
        assert parts <= 1.1 * all_of_it / SIZE


def test_two_mesh_axes():
    grid = (2, SIZE // 2) if SIZE % 2 == 0 else (1, SIZE)
    out = NamedSharding(mesh_2d(grid), P("i", "j"))
    f = jax.jit(lambda a, b: jnp.sin(a @ b), out_shardings=out)
    assert_same(f(A, B), np.sin(A @ B), rtol=2e-4, atol=2e-4)
    assert kinds(f, A, B) == {}


def test_a_result_that_is_whole_too_is_computed_whole():
    """Two results of one value: it would have to be gathered for the second one."""
    mesh = mesh_1d()
    f = jax.jit(lambda a, b: (lambda y: (y, y))(a @ b), out_shardings=tuple(NamedSharding(mesh, s) for s in (P("i"), P())))
    first, second = f(A, B)
    assert_same(first, A @ B, **CLOSE)
    assert_same(second, A @ B, **CLOSE)
    assert kinds(f, A, B) == {}


def test_split_arguments_go_by_their_own_rules():
    mesh = mesh_1d()
    a = jax.device_put(A, NamedSharding(mesh, P(None, "i")))
    f = jax.jit(lambda a, b: a @ b, out_shardings=NamedSharding(mesh, P("i")))
    assert_same(f(a, B), A @ B, **CLOSE)
