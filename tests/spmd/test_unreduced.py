"""Sums over ranks that wait for the operation that reads them: the same results, and fewer or smaller messages."""

from __future__ import annotations

import numpy as np
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
@pytest.mark.one_in(3)
def test_one_message(name):
    f, others, expected = PROGRAMS[name]
    arrays = [real(shape) for shape in (X, W, *others)]
    check(f, arrays, [*SPECS, *(P("i") for _ in others)], expected=expected)


def test_inside_a_loop():
    check(summed_in_loop, [real(X), real(W)], SPECS)


def explicit_mesh():
    return jax.make_mesh((SIZE,), ("i",), axis_types=(jax.sharding.AxisType.Explicit,))


def test_summands_in_bodies():
    """Shards that are summands: summed where they leave, by `psum` and by `psum_scatter`, and their gradients."""
    x, w = real((SIZE, SIZE, 3)), real((SIZE, 3))
    with jax.set_mesh(explicit_mesh()):
        split, same = jax.device_put(x, P("i")), jax.device_put(w, P(reduced={"i"}))
        pending = jax.shard_map(lambda x, w: lax.pcast((x * w)[0], "i", to="unreduced"), out_specs=P(unreduced={"i"}))
        total = jax.shard_map(lambda u: lax.psum(u + u, "i"), out_specs=P())
        parts = jax.shard_map(lambda u: lax.psum_scatter(u, "i", tiled=True), out_specs=P("i"))

        def loss(x, w):
            return (total(pending(x, w)) ** 2).sum()

        whole = (x * w).sum(0)
        np.testing.assert_allclose(jax.reshard(jax.jit(pending)(split, same), P()), whole, rtol=1e-5)
        np.testing.assert_allclose(jax.jit(lambda x, w: total(pending(x, w)))(split, same), 2 * whole, rtol=1e-5)
        scattered = jax.jit(lambda x, w: parts(pending(x, w)))(split, same)
        np.testing.assert_allclose(jax.reshard(scattered, P()), whole, rtol=1e-5)
        of_x, of_w = jax.jit(jax.grad(loss, (0, 1)))(split, same)
        assert of_w.sharding.spec == P(None, None, unreduced={"i"})
        np.testing.assert_allclose(jax.reshard(of_x, P()), np.broadcast_to(8 * whole * w, x.shape), rtol=1e-4)
        np.testing.assert_allclose(jax.reshard(of_w, P()), (8 * whole * x).sum(0), rtol=1e-4)


def test_gradients_of_batches_take_one_message():
    """The sum over ranks waits for the end of the loop, and is scattered if the result is split."""
    x, w = real((3, 2 * SIZE, 4)), real((4, SIZE))
    with jax.set_mesh(explicit_mesh()):
        batches, weights = jax.device_put(x, P(None, "i")), jax.device_put(w, P(reduced={"i"}))
        gradient = jax.grad(lambda w, x: (jnp.sin(x @ w) ** 2).sum())

        def f(spec, batches, weights):
            def step(total, x):
                return total + gradient(weights, x), None

            zeros = jax.reshard(jnp.zeros(w.shape), P(unreduced={"i"}))
            return jax.reshard(lax.scan(step, zeros, batches)[0], spec)

        whole = sum(np.asarray(jax.grad(lambda w, x: (jnp.sin(x @ w) ** 2).sum())(w, b)) for b in x)
        for spec, message in ((P(), "allreduce_sum"), (P(None, "i"), "reduce_scatter")):
            program = jax.jit(f, static_argnums=0)
            out = program(spec, batches, weights)
            np.testing.assert_allclose(jax.reshard(out, P()), whole, rtol=1e-4, atol=1e-4)
            messages = sent(program.lower(spec, batches, weights).compiler_ir())
            assert SIZE == 1 or [(s.kind, s.times) for s in messages] == [(message, 1)]


@pytest.mark.skipif(SIZE < 2, reason="one rank sends nothing")
def test_the_smaller_array_is_sent():
    args = placed([real(X), real(W)], SPECS, mesh_1d())
    steps = [sent(jax.jit(f).lower(*args).compiler_ir()) for f in (lambda x, w: (x @ w).sum(0), lambda x, w: x @ w)]
    small, large = (sum(s.nbytes for s in each) for each in steps)
    assert small * N == large
