"""checkpoint and communication: gradients are those without it, and only what the derivative needs is sent again."""

import re

import numpy as np
import pytest
from spmd.ranks import SIZE, assert_same, mesh_1d, real, whole

import mpijax as jax
from mpijax import numpy as jnp
from mpijax.sharding import PartitionSpec as P

pytestmark = pytest.mark.mpi

WIDTH = 2  # hidden units of a rank


def layer(x, up, down):
    """A layer whose hidden units are spread over the ranks."""
    return x + jax.lax.psum(jnp.tanh(x @ up) @ down, "i")


def network(wrap, check_vma=True):
    """The loss of three layers, as a function of whole arrays."""

    def body(x, up, down):
        for _ in range(3):
            x = wrap(layer)(x, up, down)
        return jnp.sum(x**2)

    specs = P(), P(None, "i"), P("i", None)
    return jax.shard_map(body, mesh=mesh_1d(), in_specs=specs, out_specs=P(), check_vma=check_vma)


def arguments():
    return real((5, 4), 1), real((4, WIDTH * SIZE), 2), real((WIDTH * SIZE, 4), 3)


def dots(f):
    return jax.checkpoint(f, policy=jax.checkpoint_policies.dots_saveable)


@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("wrap", [jax.checkpoint, dots])
def test_gradients_are_those_without(wrap, check_vma):
    argnums = (0, 1, 2)
    want = jax.jit(jax.grad(network(lambda f: f, check_vma), argnums))(*arguments())
    inside = jax.grad(network(wrap, check_vma), argnums)
    outside = jax.grad(lambda *args: wrap(network(lambda f: f, check_vma))(*args), argnums)
    for got in (jax.jit(inside)(*arguments()), inside(*arguments()), jax.jit(outside)(*arguments())):
        for a, b in zip(got, want, strict=True):
            assert_same(a, whole(b), rtol=1e-4, atol=1e-5)


def test_a_sum_the_derivative_does_not_read_is_not_sent_again():
    def sums(wrap):
        """How many reductions over ranks the gradient's backward pass does, by the Jaxpr of one layer."""
        mesh = mesh_1d()
        f = jax.shard_map(
            lambda x: jnp.sum(wrap(lambda x: jax.lax.psum(jnp.sin(x), "i"))(x)),
            mesh=mesh, in_specs=P("i"), out_specs=P(), check_vma=True,
        )  # fmt: skip
        return len(re.findall(r"= psum", str(jax.make_jaxpr(jax.grad(f))(real((SIZE, 3))))))

    assert sums(jax.checkpoint) == sums(lambda f: f) == 1


def test_a_sum_the_derivative_reads_is_sent_again():
    f = jax.shard_map(
        jax.checkpoint(lambda x: jnp.sin(jax.lax.psum(jnp.sin(x), "i"))),
        mesh=mesh_1d(), in_specs=P("i"), out_specs=P(),
    )  # fmt: skip
    x = real((SIZE, 3))
    text = str(jax.make_jaxpr(jax.grad(lambda x: f(x).sum()))(x))
    assert len(re.findall(r"= psum", text)) == 2
    want = np.cos(np.sin(x).sum(0)) * np.cos(x)
    assert_same(jax.jit(jax.grad(lambda x: f(x).sum()))(x), want, rtol=1e-5, atol=1e-6)
