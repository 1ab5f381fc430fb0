"""Collectives over batch axes against JAX, and vmap of shard_map."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from oracle import OURS, THEIRS
from spmd.ranks import SIZE, P, assert_same, draw, mesh_1d, mesh_2d, real, whole

import mpijax as jax
from mpijax import lax
from mpijax import numpy as jnp

pytestmark = pytest.mark.mpi

BATCHED = {
    "psum": lambda J: lambda x: J.lax.psum(x * 2, "b"),
    "pmean": lambda J: lambda x: x - J.lax.pmean(x, "b"),
    "pmax": lambda J: lambda x: J.lax.pmax(x, "b"),
    "pmin": lambda J: lambda x: x * J.lax.pmin(x, "b"),
    "all_gather": lambda J: lambda x: J.lax.all_gather(x, "b"),
    "all_gather axis": lambda J: lambda x: J.lax.all_gather(x, "b", axis=1),
    "all_gather tiled": lambda J: lambda x: J.lax.all_gather(x, "b", tiled=True),
    "ppermute": lambda J: lambda x: J.lax.ppermute(x, "b", [(0, 1), (1, 2), (2, 3), (3, 0)]),
    "axis_index": lambda J: lambda x: x * J.lax.axis_index("b"),
    "number": lambda J: lambda x: x + J.lax.psum(1, "b"),
}


@pytest.mark.sweep
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", BATCHED)
@pytest.mark.one_in(3)
def test_collectives_over_a_batch(name, axis):
    """Values and gradients, one operation at a time and compiled."""

    def values(J):
        f = J.vmap(BATCHED[name](J), in_axes=axis, axis_name="b")
        g = J.grad(lambda x: J.numpy.sum(J.numpy.sin(f(x))))
        return (lambda x: [f(x)]) if name in ("pmax", "pmin") else (lambda x: [f(x), g(x)])

    x = real((4, 4))
    theirs = THEIRS.jit(values(THEIRS))(x)
    for found in (values(OURS)(x), OURS.jit(values(OURS))(x)):
        for a, b in zip(found, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["pmax", "pmin"])
def test_derivatives_of_extrema_over_a_batch_and_a_mesh(name):
    """What JAX lacks: those of a maximum along array axes, where ties share; also over a batch and a mesh axis."""
    along = {"pmax": jnp.max, "pmin": jnp.min}[name]
    shape = (SIZE, 4, 2, 3)
    for axes, names, x in ((1, "b", draw(shape)), ((0, 1), ("i", "b"), real(shape))):

        def model(x, axes=axes):
            return jnp.sum(jnp.sin(x * along(x, axis=axes, keepdims=True)))

        @functools.partial(jax.shard_map, mesh=mesh_1d(), in_specs=P("i"), out_specs=P("i"))
        def body(x, names=names):
            return jax.vmap(lambda x: jnp.sin(x * getattr(lax, name)(x, names)), axis_name="b")(x[0])[None]

        got = jax.jit(jax.grad(lambda x, body=body: jnp.sum(body(x))))(x)
        assert_same(got, np.asarray(jax.grad(model)(x)), rtol=2e-5, atol=2e-5)


def test_a_permutation_of_a_part_of_a_batch():
    """JAX refuses it; here, as over a mesh, those that nobody sends to get zeros, whatever they had."""
    x = np.array([1, np.inf, np.nan, 2], np.float32)
    assert_same(
        jax.vmap(lambda x: lax.ppermute(x, "b", [(0, 2)]), axis_name="b")(x), np.array([0, 0, 1, 0], np.float32)
    )


def test_vmap_of_shard_map():
    mesh = mesh_1d()
    x = draw((5, 2 * SIZE, 3))
    w = draw((3,))

    def f(x, w):
        return jax.shard_map(
            lambda x, w: (lax.psum(x, "i") * w, x + 1, lax.all_gather(x, "i", tiled=True)), mesh=mesh,
            in_specs=(P("i"), P()), out_specs=(P(), P("i"), P("i")),
        )(x, w)  # fmt: skip

    for g in (jax.vmap(f, (0, None)), jax.jit(jax.vmap(f, (0, None)))):
        total, moved, gathered = g(x, w)
        assert_same(total, x.reshape(5, SIZE, 2, 3).sum(1) * w)
        assert_same(moved, x + 1)
        assert_same(gathered, np.tile(x, (1, SIZE, 1)))
    [total, _, _] = jax.vmap(f, (1, None), 1)(np.moveaxis(x, 0, 1), w)
    assert_same(total, np.moveaxis(x.reshape(5, SIZE, 2, 3).sum(1) * w, 0, 1))


def test_vmap_within_a_body():
    """Over the batch and over the mesh in one call."""
    x = draw((2 * SIZE, 3))

    def body(x):
        return jax.vmap(lambda r: lax.psum(r, ("i", "b")), axis_name="b")(x)

    f = jax.shard_map(body, mesh=mesh_1d(), in_specs=P("i"), out_specs=P())
    assert_same(f(x)[0], x.sum(0))


@pytest.mark.skipif(SIZE % 2 == 1, reason="two ranks share the examples")
@pytest.mark.parametrize("check", [True, False])
def test_gradients_of_examples_split_over_a_mesh_axis(check):
    total = (lambda x: lax.psum(x.sum(), "i")) if check else jnp.sum
    body = functools.partial(jax.shard_map, mesh=mesh_2d((SIZE // 2, 2)), in_specs=P("i"), out_specs=P(), check_vma=check)
    f = body(lambda x: jnp.sin(total(x)))
    x, weights = real((4, SIZE)), jnp.arange(1.0, 5.0)
    each = functools.partial(jax.vmap, spmd_axis_name="j")
    expected = np.stack([whole(w * jax.grad(f)(row)) for w, row in zip(weights, x, strict=True)])
    one = jax.grad(lambda x, w: f(x) * w)
    outside = jax.grad(lambda x: (each(f)(x) * weights).sum())(x)
    for found in (each(one)(x, weights), jax.jit(each(jax.jit(one)))(x, weights), outside):
        assert_same(found, expected, rtol=1e-4)
