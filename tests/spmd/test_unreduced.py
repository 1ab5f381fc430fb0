"""Sums over ranks that wait for the operation that reads them: the same results, and fewer or smaller messages."""

from __future__ import annotations

import pytest
from spmd.ranks import SIZE, P, mesh_1d, real
from spmd.test_global_arrays import N, check, placed

import mpijax as jax
from mpijax import NamedSharding, lax
from mpijax import numpy as jnp
from mpijax.runtime.program.traffic import sent

pytestmark = pytest.mark.mpi

# A product over a split axis: x[N, N] split by columns, w[N, 8] by rows.
X, W, SPECS = (N, N), (N, 8), [P(None, "i"), P("i")]


def split_rows(x):
    return lax.with_sharding_constraint(x, NamedSharding(mesh_1d(), P("i")))


def summed_in_loop(x, w):
    return lax.fori_loop(0, 3, lambda k, a: a + (x @ w).sum(0) + k, jnp.zeros(8))


PROGRAMS = {
    "sum": (lambda x, w: (x @ w).sum(0), [], {"allreduce_sum": 1}),
    "sum of sums": (lambda x, w: (x @ w).sum(0).sum(), [], {"allreduce_sum": 1}),
    "mean": (lambda x, w: (x @ w).mean(0), [], {"allreduce_sum": 1}),
    "two products": (lambda x, w: x @ w + (2 * x) @ w, [], {"allreduce_sum": 1}),
    "difference": (lambda x, w: x @ w - (2 * x) @ w, [], {"allreduce_sum": 1}),
    "beside split rows": (lambda x, w, r: x @ w + r, [(N, 8)], {"reduce_scatter": 1}),
    "constraint": (lambda x, w: split_rows(x @ w).max(0), [], {"reduce_scatter": 1, "allreduce_max": 1}),
    "two readers": (lambda x, w: (lambda y: y.sum(0) + abs(y).max(0))(x @ w), [], {"allreduce_sum": 1}),
    "read by no sum": (lambda x, w: jnp.tanh(x @ w), [], {"allreduce_sum": 1}),
    "rows summed over ranks too": (lambda x, w, r: (x @ w).sum() + r.sum(0).sum(), [(N, 8)], {"allreduce_sum": 1}),
    "gradient": (jax.grad(lambda x, w, r: ((x @ w) * r).sum(), 2), [(N, 8)], {"allreduce_sum": 1}),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_message(name):
    f, others, expected = PROGRAMS[name]
    arrays = [real(shape) for shape in (X, W, *others)]
    check(f, arrays, [*SPECS, *(P("i") for _ in others)], expected=expected)


def test_inside_a_loop():
    check(summed_in_loop, [real(X), real(W)], SPECS)


@pytest.mark.skipif(SIZE < 2, reason="one rank sends nothing")
def test_the_smaller_array_is_sent():
    args = placed([real(X), real(W)], SPECS, mesh_1d())
    steps = [sent(jax.jit(f).lower(*args).compiler_ir()) for f in (lambda x, w: (x @ w).sum(0), lambda x, w: x @ w)]
    small, large = (sum(s.nbytes for s in each) for each in steps)
    assert small * N == large
