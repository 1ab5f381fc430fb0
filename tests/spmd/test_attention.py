"""Attention whose sequence is split over the ranks: keys and values are sent, scores are not, backwards either."""

from __future__ import annotations

import pytest
from quickly import all_slow_but, one_in
from spmd.ranks import SIZE, P, assert_same, mesh_1d, real
from spmd.test_global_arrays import CLOSE, check, placed

import mpijax as jax
from mpijax import numpy as jnp
from mpijax.compiler.graph import by_parts
from mpijax.runtime.program.traffic import sent

pytestmark = pytest.mark.mpi

T = 12  # positions: 1, 2, 3 and 4 divide them
FOUR, TWO, KEYS = (2, T, 4, 8), (T, 8), (2, T, 2, 8)


def attend(q, k, v, mask=None):
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(q.shape[-1])
    scores = scores if mask is None else jnp.where(mask, scores, -1e9)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)


ATTENTION = {
    "einsum": (attend, [FOUR] * 3),
    "causal": (lambda q, k, v: attend(q, k, v, jnp.tril(jnp.ones((T, T), bool))), [FOUR] * 3),
    "softmax(q k^T) v": (lambda q, k, v: jax.nn.softmax(q @ k.T / 3) @ v, [TWO] * 3),
    "dot_product_attention": (jax.nn.dot_product_attention, [FOUR] * 3),
    "dot_product_attention, causal": (lambda *x: jax.nn.dot_product_attention(*x, is_causal=True), [FOUR] * 3),
    "dot_product_attention, fewer keys": (jax.nn.dot_product_attention, [FOUR, KEYS, KEYS]),
}


def case(name):
    f, shapes = ATTENTION[name]
    arrays = [real(shape, seed=k) for k, shape in enumerate(shapes)]
    return f, arrays, [P("i") if x.ndim == 2 else P(None, "i") for x in arrays]


def gradient(f):
    return jax.grad(lambda q, k, v: (f(q, k, v) ** 2).sum(), (0, 1, 2))


@pytest.mark.parametrize("name", one_in(2, ATTENTION))
def test_keys_and_values_are_sent(name):
    f, arrays, specs = case(name)
    check(f, arrays, specs, expected={"allgather": 2})


@pytest.mark.parametrize("name", one_in(2, ATTENTION))
@pytest.mark.one_in(3)
@pytest.mark.two_ranks  # keys and values above are sent around four
def test_gradients_are_split_as_what_they_are_of(name):
    """Each rank adds up its part of the gradients of keys and values: half the bytes of sums that all have."""
    f, arrays, specs = case(name)
    check(gradient(f), arrays, specs, rtol=1e-4, atol=1e-4, expected={"allgather": 2, "reduce_scatter": 2})
    args = placed(arrays, specs, mesh_1d())
    lowered = jax.jit(gradient(f)).lower(*args)
    if SIZE > 1:
        least = 2 * sum(x.nbytes for x in arrays[1:]) * (SIZE - 1) / SIZE
        assert sum(s.total for s in sent(lowered.compiler_ir())) == least
    for got, arg in zip(jax.jit(gradient(f))(*args), args, strict=True):
        assert got.sharding.is_equivalent_to(arg.sharding, got.ndim)


def test_a_gradient_that_is_read_whole():
    """What reads the gradient may need all of it: it is put together then."""
    f, arrays, specs = case("softmax(q k^T) v")

    def step(q, k, v):
        return jnp.sort(gradient(f)(q, k, v)[1], axis=0)

    args = placed(arrays, specs, mesh_1d())
    assert_same(jax.jit(step)(*args), jax.jit(step)(*map(jnp.asarray, arrays)), **CLOSE)


@pytest.mark.two_ranks  # the turns are those of one rank
@pytest.mark.parametrize("name", all_slow_but(("causal", "dot_product_attention, fewer keys"), ATTENTION))
@pytest.mark.one_in(2)
def test_in_turns_on_each_rank(name, monkeypatch):
    """A rank that would have large scores of its queries has them part by part."""
    f, arrays, specs = case(name)
    args = placed(arrays, specs, mesh_1d())
    for option, value in {"LARGE": 64, "PART": 64, "ROWS": 1, "TIMES": 0}.items():
        monkeypatch.setattr(by_parts, option, value)
    check(lambda *x: gradient(f)(*x), arrays, specs, rtol=1e-4, atol=1e-4)
    lowered = jax.jit(lambda *x: gradient(f)(*x)).lower(*args)
    assert "loop" in lowered.compile().as_text()
