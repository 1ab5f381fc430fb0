"""Gradients through shard_map against the same program on whole arrays, to order 2; on one rank JAX's values too."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import OURS, THEIRS
from spmd.ranks import SIZE, assert_same, real, whole

import mpijax as jax
from mpijax import numpy as jnp

pytestmark = pytest.mark.mpi

ROWS = 2  # of a shard


def _sharded(J, mesh, check, body, ins, outs):
    P = J.sharding.PartitionSpec
    specs = {"s": P("i"), "r": P()}
    return J.shard_map(body, mesh=mesh, in_specs=tuple(specs[c] for c in ins), out_specs=specs[outs], check_vma=check)


def _program(ins, outs, body, finish=None):
    """body(J) is a function of shards of x and w; `ins` says of each whether it is split (s) or replicated (r)."""

    def make(J, mesh, check):
        inner = _sharded(J, mesh, check, body(J), ins, outs)
        return (lambda x, w: finish(J, inner(x, w))) if finish else inner

    return make


def blocks(x):
    return x.reshape(SIZE, ROWS, *x.shape[1:])


# name: (the program over ranks, the program on whole arrays)
PROGRAMS = {
    "psum": (
        _program("sr", "r", lambda J: lambda x, w: J.lax.psum(J.numpy.sum(J.numpy.sin(x * w)), "i")),
        lambda x, w: jnp.sum(jnp.sin(x * w)),
    ),
    "psum of both split": (
        _program("ss", "r", lambda J: lambda x, w: J.lax.psum(J.numpy.sum(J.numpy.sin(x * w)), "i")),
        lambda x, w: jnp.sum(jnp.sin(x * w)),
    ),
    "pmean": (
        _program("sr", "r", lambda J: lambda x, w: J.lax.pmean(J.numpy.mean(J.numpy.sin(x * w) ** 2), "i")),
        lambda x, w: jnp.mean(jnp.sin(x * w) ** 2),
    ),
    "function of a psum": (
        _program("sr", "r", lambda J: lambda x, w: J.numpy.sum(J.lax.psum(x.sum(0) ** 2, "i") * J.numpy.sin(w))),
        lambda x, w: jnp.sum(jnp.sum(blocks(x).sum(1) ** 2, 0) * jnp.sin(w)),
    ),
    "psum of psum": (
        _program("sr", "r", lambda J: lambda x, w: J.lax.psum(J.numpy.sum(J.lax.psum(x * x, "i") * x * w), "i")),
        lambda x, w: jnp.sum(jnp.sum(blocks(x * x), 0) * blocks(x) * w),
    ),
    "split result": (
        _program("sr", "s", lambda J: lambda x, w: J.numpy.sin(x * w), lambda J, y: J.numpy.sum(y**2)),
        lambda x, w: jnp.sum(jnp.sin(x * w) ** 2),
    ),
    "replicated result": (
        _program("sr", "r", lambda J: lambda x, w: J.lax.psum(x, "i") * w, lambda J, y: J.numpy.sum(J.numpy.sin(y))),
        lambda x, w: jnp.sum(jnp.sin(jnp.sum(blocks(x), 0) * w)),
    ),
    "all_gather": (
        _program("sr", "r", lambda J: lambda x, w: J.lax.psum(
            J.numpy.sum(J.lax.all_gather(x, "i", tiled=True) ** 2 * w) * J.numpy.sum(x), "i")),
        lambda x, w: jnp.sum(x**2 * w) * jnp.sum(x),
    ),
    "all_gather stacked": (
        _program("sr", "s", lambda J: lambda x, w: J.numpy.sin(J.lax.all_gather(x, "i", axis=1)) * x[:, None] * w,
                 lambda J, y: J.numpy.sum(y)),
        lambda x, w: jnp.sum(jnp.sin(blocks(x)).sum(0)[None] * blocks(x) * w),
    ),
    "ppermute": (
        _program("sr", "s", lambda J: lambda x, w: J.numpy.sin(
            J.lax.ppermute(x * w, "i", [(k, (k + 1) % SIZE) for k in range(SIZE)])) * x, lambda J, y: J.numpy.sum(y)),
        lambda x, w: jnp.sum(jnp.sin(jnp.roll(x * w, ROWS, axis=0)) * x),
    ),
    "pmax": (
        _program("sr", "r", lambda J: lambda x, w: J.lax.psum(
            J.numpy.sum(J.numpy.exp(x * w - J.lax.pmax(J.numpy.max(x * w, axis=0), "i"))), "i")),
        lambda x, w: jnp.sum(jnp.exp(x * w - jnp.max(x * w, axis=0))),
    ),
    "axis_index": (
        _program("sr", "r", lambda J: lambda x, w: J.lax.psum(
            J.numpy.sum(x * w * w) * (J.lax.axis_index("i") + 1), "i")),
        lambda x, w: jnp.sum((blocks(x) * w * w).sum((1, 2)) * (jnp.arange(SIZE) + 1)),
    ),
}  # fmt: skip

# JAX's pmax has no derivative.
NOT_IN_JAX = {"pmax"}


def arguments(name):
    w_shape = (ROWS * SIZE, 3) if name == "psum of both split" else (3,)
    return real((ROWS * SIZE, 3), 1), real(w_shape, 2)


def derivatives(J, f):
    """Values of orders 0, 1, 2."""

    def second(x, w):
        gx, gw = J.grad(f, (0, 1))(x, w)
        return J.numpy.sum(gx * J.numpy.cos(x)) + J.numpy.sum(gw**2)

    return f, J.grad(f, (0, 1)), J.grad(second, (0, 1))


@pytest.mark.sweep
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("check_vma", [True, False], ids=["vma", "no vma"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.one_in(3)
def test_gradients(name, check_vma, jitted):
    spmd, plain = PROGRAMS[name]
    x, w = arguments(name)
    f = spmd(OURS, jax.make_mesh((SIZE,), ("i",)), check_vma)
    for ours, reference in zip(derivatives(OURS, f), derivatives(OURS, plain), strict=True):
        got = (jax.jit(ours) if jitted else ours)(x, w)
        want = reference(x, w)
        for g, v in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            assert_same(g, np.asarray(v), rtol=2e-4, atol=2e-4)


@pytest.mark.sweep
@pytest.mark.skipif(SIZE > 1, reason="JAX runs on one device here")
@pytest.mark.parametrize("check_vma", [True, False], ids=["vma", "no vma"])
@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - NOT_IN_JAX))
@pytest.mark.one_in(3)
def test_gradients_are_those_of_jax(name, check_vma):
    x, w = arguments(name)
    values = []
    for J in (OURS, THEIRS):
        f = PROGRAMS[name][0](J, J.sharding.Mesh(np.array(J.devices()[:1], dtype=object), ("i",)), check_vma)
        orders = J.jit(lambda x, w, J=J, f=f: [d(x, w) for d in derivatives(J, f)])
        values.append([np.asarray(v) for v in J.tree.leaves(orders(x, w))])
    for ours, theirs in zip(*values, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("check_vma", [True, False], ids=["vma", "no vma"])
def test_jvp(check_vma):
    for name, (spmd, plain) in PROGRAMS.items():
        args = arguments(name)
        tangents = tuple(np.cos(a) for a in args)
        f = spmd(OURS, jax.make_mesh((SIZE,), ("i",)), check_vma)
        for got, want in zip(jax.jvp(f, args, tangents), jax.jvp(plain, args, tangents), strict=True):
            assert_same(got, np.asarray(want), rtol=2e-4, atol=2e-4)


P = jax.sharding.PartitionSpec


def inside(loss, outs, check_vma=True):
    return jax.shard_map(
        jax.grad(loss, (0, 1)), mesh=jax.make_mesh((SIZE,), ("i",)), in_specs=(P("i"), P()), out_specs=outs,
        check_vma=check_vma,
    )  # fmt: skip


def test_grad_within_a_body():
    """With varying-axes types the gradient of a replicated argument is summed over ranks by itself."""
    x, w = real((ROWS * SIZE, 3), 1), real((3,), 2)
    gx, gw = jax.grad(PROGRAMS["psum"][1], (0, 1))(x, w)
    local = inside(lambda x, w: jnp.sum(jnp.sin(x * w)), (P("i"), P()))
    summed = inside(lambda x, w: jax.lax.psum(jnp.sum(jnp.sin(x * w)), "i"), (P("i"), P()))
    for f in (local, summed, jax.jit(local), jax.jit(summed)):
        got = f(x, w)
        assert_same(got[0], np.asarray(gx), rtol=1e-5)
        assert_same(got[1], np.asarray(gw), rtol=1e-5, atol=1e-5)


def test_grad_within_a_body_without_types():
    """Without them the gradient is the rank's own."""
    x, w = real((ROWS * SIZE, 3), 1), real((3,), 2)

    def body(x, w):
        g = jax.grad(lambda w: jnp.sum(jnp.sin(x * w)))(w)
        return g[None], jax.lax.psum(g, "i")

    f = jax.shard_map(body, mesh=jax.make_mesh((SIZE,), ("i",)), in_specs=(P("i"), P()), out_specs=(P("i"), P()),
                      check_vma=False)  # fmt: skip
    own, total = f(x, w)
    want = (np.cos(x * w) * x).reshape(SIZE, ROWS, 3).sum(1)
    assert_same(own, want, rtol=1e-4, atol=1e-5)
    assert_same(total, want.sum(0), rtol=1e-4, atol=1e-5)


def test_value_and_grad_of_a_training_step():
    """Data parallel: split batch, replicated weights; the loss falls and all ranks keep the same weights."""
    x, w = real((ROWS * SIZE, 3), 1), real((3, 1), 2)
    y = np.sin(x @ np.ones((3, 1), np.float32))

    def loss(w, x, y):
        return jax.lax.pmean(jnp.mean((x @ w - y) ** 2), "i")

    step = jax.jit(
        jax.shard_map(
            lambda w, x, y: (lambda v, g: (v, w - 0.1 * g))(*jax.value_and_grad(loss)(w, x, y)),
            mesh=jax.make_mesh((SIZE,), ("i",)), in_specs=(P(), P("i"), P("i")), out_specs=(P(), P()),
        )
    )  # fmt: skip
    mine = w
    for _ in range(3):
        value, w = step(w, x, y)
        error = x @ mine - y
        np.testing.assert_allclose(float(value), np.mean(error**2), rtol=1e-4)
        mine = mine - 0.1 * 2 * x.T @ error / len(x)
        np.testing.assert_allclose(whole(w), mine, rtol=1e-4, atol=1e-5)


def test_transpose_of_a_linear_program():
    mesh = jax.make_mesh((SIZE,), ("i",))
    x = real((SIZE, 2))
    total = jax.shard_map(lambda x: jax.lax.psum(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P())
    [ct] = jax.vjp(total, x)[1](x[:1])
    assert_same(ct, np.tile(x[:1], (SIZE, 1)), rtol=1e-6)


def test_remat_and_custom_derivatives_within_a_body():
    @jax.custom_jvp
    def f(x):
        return jnp.sin(x)

    f.defjvp(lambda p, t: (f(p[0]), jnp.cos(p[0]) * t[0]))
    x, w = real((ROWS * SIZE, 3), 1), real((3,), 2)
    mesh = jax.make_mesh((SIZE,), ("i",))
    g = jax.shard_map(
        lambda x, w: jax.lax.psum(jnp.sum(f(x * w)), "i"), mesh=mesh, in_specs=(P("i"), P()), out_specs=P()
    )
    for got, want in zip(jax.grad(g, (0, 1))(x, w), jax.grad(PROGRAMS["psum"][1], (0, 1))(x, w), strict=True):
        assert_same(got, np.asarray(want), rtol=1e-4, atol=1e-5)
