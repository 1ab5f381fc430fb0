"""Branches and loops over ranks: ranks that decide alike communicate, ranks that decide each for itself may not."""

from __future__ import annotations

import numpy as np
import pytest
from spmd.ranks import SIZE, assert_same, mesh_1d, real

import mpijax as jax
from mpijax import lax
from mpijax import numpy as jnp
from mpijax.sharding import PartitionSpec as P

pytestmark = pytest.mark.mpi

W = real((4,), 1)
X = real((SIZE, 4), 2)
FORMS = pytest.mark.parametrize("form", [lambda f: f, jax.jit], ids=["eager", "jit"])


def mapped(f, *, equal_results: bool = False):
    return jax.shard_map(f, mesh=mesh_1d(), in_specs=(P(), P("i")), out_specs=P() if equal_results else P("i"))


def varying(x):
    """For a branch beside one whose result varies: branches have results of one type."""
    return lax.pcast(x, "i", to="varying")


def own_choice(w, x):
    """The branch depends on the rank's own numbers; operands are the same on all ranks, and closed over."""
    return lax.cond(x[0, 0] > 0, lambda w: jnp.sin(w) * x[0], lambda w: varying(w * W + 1.0), w)[None]


def own_choices_on_whole_arrays(w, x):
    return jnp.where(x[:, :1] > 0, jnp.sin(w) * x, w * W + 1.0)


def common_choice(w, x):
    """All ranks take the branch that the sum over them says."""
    total = lax.psum(x.sum(), "i")
    return lax.cond(total > w[0], lambda x: lax.psum(x * w, "i") * total, lambda x: lax.psum(jnp.sin(x), "i"), x[0])


def common_choice_on_whole_arrays(w, x):
    total = x.sum()
    return jnp.where(total > w[0], (x * w).sum(0) * total, jnp.sin(x).sum(0))


CASES = {
    "own": (mapped(own_choice), own_choices_on_whole_arrays),
    "common": (mapped(common_choice, equal_results=True), common_choice_on_whole_arrays),
}


@FORMS
@pytest.mark.parametrize("case", CASES)
def test_branches(case, form):
    program, expected = CASES[case]
    assert_same(form(program)(W, X), np.asarray(expected(W, X)), rtol=2e-5)
    assert_same(form(program)(W * -9, X), np.asarray(expected(W * -9, X)), rtol=2e-5)


@pytest.mark.parametrize("argument", [0, 1], ids=["replicated", "split"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.one_in(2)
def test_gradients_of_branches(case, argument):
    """What all ranks read gets the sum of their cotangents, whichever branch each one took."""
    found, expected = (
        jax.jit(jax.grad(lambda w, x, f=f: (f(w, x) ** 2).sum(), argument))(W, X) for f in CASES[case]
    )
    assert_same(found, np.asarray(expected), rtol=1e-4, atol=1e-5)


def test_results_that_vary_in_one_branch_alone():
    def f(w, x):
        return lax.cond(w[0] > 0, lambda: x[0], lambda: varying(w * 2))[None]

    for w in (abs(W), -abs(W)):
        assert_same(jax.jit(mapped(f))(w, X), X if w[0] > 0 else np.tile(w * 2, (SIZE, 1)))


@FORMS
def test_ranks_take_different_numbers_of_turns(form):
    def f(w, x):
        return lax.while_loop(lambda c: c[0] < 20 * x[0, 0], lambda c: (c[0] + 1, c[1] * w), (0.0, w))[1][None]

    turns = np.maximum(np.ceil(20 * X[:, :1]), 0)
    assert_same(form(mapped(f))(W, X), W * W**turns, rtol=1e-4, atol=1e-6)


@FORMS
def test_a_loop_that_communicates(form):
    """Conjugate gradients and their like: all ranks go on until the norm over all of them is small."""

    def f(w, x):
        def unfinished(state):
            return lax.psum((state**2).sum(), "i") > 0.1

        return lax.while_loop(unfinished, lambda x: x / 2 - lax.pmean(x, "i") / 8, x)

    x = X
    while (x**2).sum() > 0.1:
        x = x / 2 - x.mean(0) / 8
    assert_same(form(mapped(f))(W, X), x, rtol=1e-4, atol=1e-6)


@FORMS
@pytest.mark.parametrize("loop", ["scan", "fori_loop"])
@pytest.mark.one_in(2)
def test_a_carry_varies_from_the_start_where_ranks_decide_how_it_goes_on(form, loop):
    """In JAX the carry keeps its type, since a predicate does not make the result of `cond` vary."""

    def turn(w):
        return lax.cond(lax.axis_index("i") == 0, lambda w: w * 3.0, lambda w: w + 1.0, w)

    def f(w, x):
        if loop == "scan":
            return lax.scan(lambda c, _: (turn(c), c[0]), w, None, length=2)[0][None]
        return lax.fori_loop(0, 2, lambda k, c: turn(c), w)[None]

    def on_whole_arrays(w, x):
        return jnp.concatenate([w[None] * 9.0, jnp.tile(w + 2.0, (SIZE - 1, 1))])

    assert_same(form(mapped(f))(W, X), np.asarray(on_whole_arrays(W, X)), rtol=1e-6)
    found, expected = (jax.grad(lambda w, g=g: (g(w, X) ** 2).sum())(W) for g in (mapped(f), on_whole_arrays))
    assert_same(found, np.asarray(expected), rtol=1e-5)


def test_a_carry_keeps_its_type_where_no_rank_decides():
    def f(w, x):
        return lax.scan(lambda c, v: (c + v, None), w, x)[0][None]

    with pytest.raises(TypeError, match="so the manual axis types do not match"):
        mapped(f)(W, X)


def test_the_rank_may_be_asked_for_in_a_branch():
    def f(w, x):
        rank = lax.axis_index("i")
        return lax.cond(rank % 2 == 0, lambda: x * lax.axis_index("i"), lambda: x)

    ranks = np.arange(SIZE)[:, None]
    assert_same(jax.jit(mapped(f))(W, X), np.where(ranks % 2 == 0, X * ranks, X).astype(np.float32))


REFUSED = {
    "branch": (
        lambda w, x: lax.cond(x[0, 0] > 0, lambda: lax.psum(x, "i"), lambda: lax.psum(2 * x, "i")),
        r"predicate of cond varies over the mesh axis 'i', but a branch communicates.*psum.*test_branches.py",
    ),
    "nested": (
        lambda w, x: lax.cond(x[0, 0] > 0, *(lambda k=k: jax.jit(lambda x: lax.pmax(k * x, "i"))(x) for k in (1, 2))),
        r"predicate of cond varies over the mesh axis 'i'.*pmax",
    ),
    "switch": (
        lambda w, x: lax.switch(lax.axis_index("i"), [lambda: x, lambda: lax.ppermute(x, "i", [(0, 0)])]),
        r"predicate of cond varies over the mesh axis 'i'.*ppermute",
    ),
    "body": (
        lambda w, x: lax.while_loop(lambda x: x[0, 0] > 0, lambda x: x - lax.psum(x, "i"), x),
        r"condition of while_loop varies over the mesh axis 'i', but the loop communicates.*psum",
    ),
    "condition": (
        lambda w, x: lax.while_loop(lambda x: lax.pmax(x, "i")[0, 0] > x[0, 0], lambda x: x + 1, x),
        r"condition of while_loop varies over the mesh axis 'i'.*pmax",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_ranks_that_decide_for_themselves_may_not_communicate(name):
    """An error while tracing, on every rank, in place of ranks that wait for each other forever."""
    f, words = REFUSED[name]
    with pytest.raises(ValueError, match=rf"(?s){words}.*so that all ranks decide alike"):
        jax.jit(mapped(f)).trace(W, X)
