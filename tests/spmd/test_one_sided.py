"""`psend` and `precv`: both halves together are `ppermute`; what has no other half is told."""

from __future__ import annotations

import numpy as np
import pytest
from jaxprs import difference
from spmd.ranks import DTYPES, SIZE, P, assert_same, draw, mesh_1d

import mpijax as jax
from mpijax import lax

pytestmark = pytest.mark.mpi

AROUND = [(k, (k + 1) % SIZE) for k in range(SIZE)]
DOWN = [(k, k - 1) for k in range(1, SIZE)]


def over(f, **options):
    return jax.shard_map(f, mesh=mesh_1d(), in_specs=P("i"), out_specs=P("i"), **options)


def halves(x, perm):
    return lax.precv(lax.psend(x, "i", perm), x, "i", perm)


def permuted(x, perm):
    return lax.ppermute(x, "i", perm)


def plain(exchange):
    return lambda x: exchange(x, AROUND) - exchange(2 * x, DOWN)


def late(send, receive):
    """Two messages on their way, with work and another message between the halves."""

    def f(x):
        first, second = send(x, AROUND), send(x * x, AROUND)
        y = receive(first, x, AROUND)
        other = send(y, DOWN)
        return y + 3 * receive(second, x, AROUND) + receive(other, x, DOWN)

    return f


def in_control_flow(exchange):
    def body(total, _):
        return total + exchange(total, DOWN), None

    def f(x):
        total, _ = lax.scan(body, x, None, length=3)
        return lax.cond(lax.psum(x.sum(), "i") < np.inf, lambda t: exchange(t, AROUND), lambda t: t, total)

    return f


# name: (with halves, with ppermute)
PROGRAMS = {
    "plain": (plain(halves), plain(permuted)),
    "late": (
        late(lambda x, perm: lax.psend(x, "i", perm), lambda t, x, perm: lax.precv(lax.after_all(t), x, "i", perm)),
        late(permuted, lambda y, x, perm: y),
    ),
    "token of nobody": (
        late(lambda x, perm: lax.psend(x, "i", perm), lambda t, x, perm: lax.precv(lax.create_token(), x, "i", perm)),
        late(permuted, lambda y, x, perm: y),
    ),
    "in loops and branches": (in_control_flow(halves), in_control_flow(permuted)),
    "across functions": (
        lambda x: jax.jit(lambda t: lax.precv(t, x, "i", DOWN))(jax.jit(lambda v: lax.psend(v, "i", DOWN))(x)),
        lambda x: permuted(x, DOWN),
    ),
}


@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.one_in(3)
def test_both_halves_are_a_permutation(name, check_vma):
    x = draw((3 * SIZE, 2))
    ours, whole = (over(f, check_vma=check_vma) for f in PROGRAMS[name])
    assert_same(jax.jit(ours)(x), np.asarray(jax.device_get(gathered(whole, x))))
    assert_same(ours(x), np.asarray(jax.device_get(gathered(whole, x))))


def gathered(f, x):
    """The result of a program on every rank."""
    every = jax.shard_map(
        lambda part: lax.all_gather(part, "i", tiled=True), mesh=mesh_1d(), in_specs=P("i"), out_specs=P(),
        check_vma=False,
    )  # fmt: skip
    return every(f(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_trees_and_dtypes(dtype):
    x = {"a": draw((SIZE, 3), dtype), "b": draw((2 * SIZE,), dtype, seed=1)}

    def both(tree):
        tokens = jax.tree.map(lambda v: lax.psend(v, "i", AROUND), tree)
        return jax.tree.map(lambda t, v: lax.precv(t, v, "i", AROUND), tokens, tree)

    got = jax.jit(over(both))(x)
    for name, part in x.items():
        assert_same(got[name], np.roll(part, part.shape[0] // SIZE, axis=0))


def test_jaxprs_are_jaxs():
    def make(J):
        def f(x):
            return J.lax.precv(J.lax.psend(x, "i", [(0, 0)]), x, "i", [(0, 0)])

        mesh = J.sharding.Mesh(J.devices()[:1], "i")
        specs = J.sharding.PartitionSpec("i")
        return J.shard_map(f, mesh=mesh, in_specs=specs, out_specs=specs, check_vma=False)

    assert difference(make, np.arange(3, dtype=np.float32)) == ""


X = np.arange(2.0 * SIZE, dtype=np.float32)
SELF = [(k, k) for k in range(SIZE)]
ODD = {
    "never received": (lambda x: (lax.psend(x, "i", SELF), x)[1], ValueError, r"psend of f32\[2\].*never received"),
    "never sent": (lambda x: lax.precv(lax.create_token(), x, "i", SELF), ValueError, "Call psend with the same axis_name and perm before it"),
    "received first": (
        lambda x: lax.precv(lax.create_token(), x, "i", SELF) + halves(x, SELF), ValueError, "all shards run the same program"
    ),
    "another shape": (
        lambda x: lax.precv(lax.psend(x[:1], "i", SELF), x, "i", SELF), ValueError, r"expects f32\[2\].*sends f32\[1\]"
    ),
    "no token": (lambda x: lax.precv(x, x, "i", SELF), TypeError, "The first argument of precv must be a token"),
    "twice to one": (lambda x: lax.psend(x, "i", SELF * 2), ValueError, "psend sources and destinations"),
    "another axis": (lambda x: lax.psend(x, "j", SELF), NameError, "unbound axis name: j"),
    "derivative": (lambda x: jax.grad(lambda v: halves(v, SELF).sum())(x), NotImplementedError, "ppermute"),
    "batch": (lambda x: jax.vmap(lambda v: halves(v, SELF))(x), NotImplementedError, "ppermute"),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_what_does_not_fit_is_told(name):
    f, error, message = ODD[name]
    with pytest.raises(error, match=message):
        jax.jit(over(f))(X)
