"""Generators that keep their state, against JAX's."""

import importlib

import numpy as np
import pytest
from oracle import OURS, THEIRS, leaves_of, run
from quickly import one_in

import mpijax as jax
import mpijax.numpy as jnp
from mpijax.experimental.random import StatefulPRNG, stateful_rng


def drawn(J, draw):
    rng = importlib.import_module(f"{J.name}.experimental.random").stateful_rng(42)
    return run(lambda: [np.asarray(x) for _ in range(2) for x in leaves_of(draw(J, rng))])


CASES = {
    "random": lambda J, r: [r.random(), r.random(3), r.random((2, 1), "float16")],
    "uniform": lambda J, r: [r.uniform(), r.uniform(-1, np.arange(3.0, 6.0)), r.uniform(2, 3, (4,), dtype="float16")],
    "normal": lambda J, r: [r.normal(), r.normal(np.zeros((2, 1)), np.arange(3.0)), r.normal(1, 2, 5, dtype="float16")],
    "integers": lambda J, r: [r.integers(6), r.integers(-3, np.array([4, 5])), r.integers(9, size=4, dtype="int8")],
    "keys": lambda J, r: [J.random.key_data(r.key()), J.random.key_data(r.key((2, 3)))],
    "children": lambda J, r: [child.uniform(size=2) for child in r.spawn(3)],
    "parts": lambda J, r: J.vmap(lambda part, x: x + part.normal())(r.split(3), np.zeros(3)),
    "parts of parts": lambda J, r: J.vmap(J.vmap(lambda part: part.random()))(r.split((2, 3))),
    "jit": lambda J, r: [J.jit(r.uniform)(), J.jit(lambda rng: rng.integers(99))(r), r.uniform()],
    "scan": lambda J, r: J.lax.scan(lambda c, _: (c, r.uniform()), 0, length=4)[1],
    "made inside": lambda J, r: J.jit(lambda s: type(r)(J.random.key(s), J.new_ref(0)).normal())(7),
    "one for all examples": lambda J, r: J.vmap(lambda rng, x: x + rng.uniform(), in_axes=(None, 0))(r, np.zeros(3)),
    "split": lambda J, r: r.split(3).uniform(),
    "no key": lambda J, r: type(r)(np.zeros(2, np.uint32), J.new_ref(0)),
    "no count": lambda J, r: type(r)(J.random.key(0), 0),
}


@pytest.mark.parametrize("name", one_in(3, CASES))
@pytest.mark.one_in(2)
def test_draws_are_jaxs(name):
    theirs, ours = drawn(THEIRS, CASES[name]), drawn(OURS, CASES[name])
    assert ours[0] == theirs[0], (theirs, ours)
    if theirs[0] == "value":
        for a, b in zip(theirs[1], ours[1], strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(b, a, rtol=1e-6)


def test_seeds():
    assert stateful_rng().random() != stateful_rng().random()
    assert stateful_rng(3, impl="rbg").key().dtype == jax.random.key(0, impl="rbg").dtype
    with pytest.raises(TypeError, match="requires an explicit seed"):
        jax.jit(lambda: stateful_rng().random())()


def test_generators_are_trees():
    rng = stateful_rng(1)
    leaves, structure = jax.tree.flatten(rng)
    again = jax.tree.unflatten(structure, leaves)
    assert isinstance(again, StatefulPRNG)
    first = rng.random()
    np.testing.assert_array_equal(again._counter[...], 1)
    assert again.random() != first
    assert jnp.shape(again.random(2)) == (2,)


WRITES = {
    "a number": lambda J, r: lambda x: (r.__setitem__(..., 5), x)[1],
    "its own": lambda J, r: lambda x: (r.__setitem__(..., r[...] + 1), x)[1],
    "in jit": lambda J, r: J.jit(lambda x: (r.__setitem__(..., 5), x)[1]),
    "in a loop": lambda J, r: lambda x: J.lax.fori_loop(0, 3, lambda i, c: (r.__setitem__(..., i), c)[1], x),
}


@pytest.mark.parametrize("name", WRITES)
def test_vmap_does_not_write_references_from_outside(name):
    """All examples would write, and in which order would be open."""
    for J in (THEIRS, OURS):
        with pytest.raises(Exception, match="unbatched array reference"):
            J.vmap(WRITES[name](J, J.new_ref(0)))(np.zeros(3))
