"""checkpoint and communication: gradients are those without it, and only what the derivative needs is sent again."""

import re

import numpy as np
import pytest
from spmd.ranks import SIZE, assert_same, mesh_1d, real, whole

import mpijax as jax
from mpijax import numpy as jnp
from mpijax.ad_checkpoint import checkpoint_name
from mpijax.sharding import PartitionSpec as P

pytestmark = [pytest.mark.mpi, pytest.mark.two_ranks]  # what is kept does not depend on their number

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


@pytest.mark.sweep
@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("wrap", [jax.checkpoint, dots])
@pytest.mark.one_in(2)
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


def normed_layer(w, x):
    """A norm over all ranks (a scalar), a product, a loop."""
    norm = jnp.sqrt(checkpoint_name(jax.lax.psum((x**2).sum(), "i"), "squares"))
    h, _ = jax.lax.scan(lambda h, _: (jnp.tanh(h @ w), None), jnp.sin(x @ w) / norm, None, length=2)
    return h


POLICIES = {
    "names": (jax.checkpoint_policies.save_only_these_names("squares"), ["sin", "dot_general"]),
    "products": (jax.checkpoint_policies.dots_saveable, ["psum", "sin"]),
    "sines": (lambda primitive, *_, **__: str(primitive) == "sin", ["psum", "dot_general"]),
    "nothing": (jax.checkpoint_policies.nothing_saveable, ["psum", "sin", "dot_general"]),
}


@pytest.mark.sweep
@pytest.mark.parametrize("jitted", [True, False])
@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.one_in(2)
def test_policies_keep_values_of_the_body(name, check_vma, jitted):
    w, x = real((3, 3)), real((2 * SIZE, 3), 1)
    policy, again = POLICIES[name]
    f = jax.shard_map(normed_layer, mesh=mesh_1d(), in_specs=(P(), P("i")), out_specs=P("i"), check_vma=check_vma)
    kept = jax.checkpoint(jax.jit(f) if jitted else f, policy=policy)
    got, want = (jax.jit(jax.grad(lambda w, x, g=g: (g(w, x) ** 2).sum(), (0, 1)))(w, x) for g in (kept, f))
    for a, b in zip(got, want, strict=True):
        assert_same(a, whole(b), rtol=1e-4, atol=1e-5)
    linear = str(jax.make_jaxpr(jax.linearize(kept, w, x)[1])(w, x))
    found = [made for made in ("psum", "sin", "dot_general") if computed_again(linear, made, w, x, f)]
    assert found == again


def computed_again(linear: str, made: str, w, x, f) -> bool:
    """Whether the derivative has more such operations than the one of the function itself."""
    return linear.count(f" {made}") > str(jax.make_jaxpr(jax.linearize(f, w, x)[1])(w, x)).count(f" {made}")
