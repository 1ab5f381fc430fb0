"""Small messages that leave past receives: which do, and that every rank gets what the program's order says."""

from __future__ import annotations

import numpy as np
import pytest

import mpijax as jax
from mpijax import lax, mpi
from mpijax import numpy as jnp
from mpijax.compiler.steps.instructions import Communicate, walk
from mpijax.compiler.steps.planner import plan_program
from mpijax.compiler.steps.posting import POSTED
from mpijax.core.base import config

pytestmark = pytest.mark.mpi

RANK, SIZE = jax.process_index(), jax.process_count()
PARTNER = RANK ^ 1
needs_two = pytest.mark.skipif(SIZE % 2 == 1, reason="ranks in pairs")


def edge_of_partner(field):
    """Each rank's last row becomes the first row of its partner; columns are periodic on each rank."""
    field = field.at[:, 0].set(mpi.sendrecv(field[:, -2], field[:, 0], source=RANK, dest=RANK))
    if RANK % 2 == 0:
        mpi.send(field[-1], PARTNER)
        return field.at[0].set(mpi.recv(field[0], PARTNER))
    row = mpi.recv(field[0], PARTNER)
    mpi.send(field[-1], PARTNER)
    return field.at[0].set(row)


def step(fields):
    fields = [edge_of_partner(f) for f in fields]
    return [0.5 * f + 0.25 * jnp.roll(f, 1, 0) for f in fields]


def fields_of(rank, n=3, shape=(6, 5)):
    return [np.random.default_rng((rank, k)).standard_normal(shape).astype(np.float32) for k in range(n)]


def expected(turns):
    """What all ranks' fields become, computed here."""
    everyone = [fields_of(r) for r in range(SIZE)]
    for _ in range(turns):
        for fields in everyone:
            for f in fields:
                f[:, 0] = f[:, -2]
        last = [[f[-1].copy() for f in fields] for fields in everyone]
        for r, fields in enumerate(everyone):
            for k, f in enumerate(fields):
                f[0] = last[r ^ 1][k]
        everyone = [[0.5 * f + 0.25 * np.roll(f, 1, 0) for f in fields] for fields in everyone]
    return everyone[RANK]


def messages(fun, *args):
    """The messages of a program in their order, as it would run."""
    steps = walk(plan_program(jax.make_jaxpr(fun)(*args)).instructions)
    return [("post " if s.posted else "") + s.lower.name for s in steps if isinstance(s, Communicate)]


@needs_two
def test_all_edges_leave_before_one_is_waited_for():
    found = [m for m in messages(step, fields_of(RANK)) if m != "sendrecv"]
    if RANK % 2 == 0:
        assert found == ["send", "post send", "post send"] + 3 * ["recv"]
    with config.overlap(False):
        assert [m for m in messages(lambda f: step(f), fields_of(RANK)) if "post" in m] == []


@needs_two
@pytest.mark.parametrize("turns", (1, 30))
def test_the_values_are_those_of_the_programs_order(turns):
    got = jax.jit(lambda f: lax.fori_loop(0, turns, lambda i, f: step(f), f))(list(map(jnp.asarray, fields_of(RANK))))
    for mine, want in zip(got, expected(turns), strict=True):
        np.testing.assert_allclose(mine, want, rtol=1e-5, atol=1e-6)


@needs_two
def test_messages_to_one_rank_keep_their_order():
    """All have the same tag; one rank takes turns, the other sends all at once."""

    def numbers(x):
        out = []
        for k in range(40):
            if RANK % 2 == 0:
                mpi.send(x + k, PARTNER)
                out.append(mpi.recv(x, PARTNER))
            else:
                out.append(mpi.recv(x, PARTNER))
                mpi.send(x + k, PARTNER)
        return jnp.stack(out)

    x = jnp.full(3, 1000.0 * RANK)
    np.testing.assert_array_equal(jax.jit(numbers)(x), 1000.0 * PARTNER + np.arange(40)[:, None] + np.zeros(3))
    found = messages(numbers, x)
    assert RANK % 2 or found.index("recv") == 40


def stays(fun):
    return all("post" not in m for m in messages(fun, jnp.ones(8)))


@needs_two
def test_what_a_send_does_not_pass():
    def answer(x):
        y = mpi.recv(x, PARTNER)
        mpi.send(2 * y, PARTNER)
        return y

    def after_all_have_met(x):
        y = mpi.recv(x, PARTNER)
        z = mpi.allreduce(x, "SUM")
        mpi.send(x, PARTNER)
        return y, z

    def exchange_with_the_same_rank(x):
        y = mpi.sendrecv(x, x, source=PARTNER, dest=PARTNER)
        mpi.send(x, PARTNER)
        return y

    def large(x):
        x = jnp.zeros(POSTED // 4 + 1)
        y = mpi.recv(x, PARTNER)
        mpi.send(x, PARTNER)
        return y

    def with_a_status(x):
        from mpi4py import MPI

        y = mpi.recv(x, PARTNER, status=MPI.Status())
        mpi.send(x, PARTNER)
        return y

    def to_itself(x):
        y = mpi.recv(x, PARTNER)
        mpi.send(x, RANK)
        return y, mpi.recv(x, RANK)

    def when_another_rank_has_spoken(x):
        """Who gets it may take it for the word of both."""
        y = mpi.recv(x, (RANK - 1) % SIZE)
        mpi.send(x, (RANK + 1) % SIZE)
        return y

    programs = (answer, after_all_have_met, exchange_with_the_same_rank, large, with_a_status, to_itself)
    assert [f.__name__ for f in programs if not stays(f)] == []
    assert SIZE == 2 or stays(when_another_rank_has_spoken)
    assert not stays(lambda x: (mpi.recv(x, PARTNER), mpi.send(x, PARTNER))[0])


@needs_two
def test_a_gradient_through_posted_messages():
    def cost(fields):
        return sum((f**2).sum() for f in step(fields))

    fields = list(map(jnp.asarray, fields_of(RANK)))
    got = jax.jit(jax.grad(cost))(fields)
    with config.overlap(False):
        want = jax.jit(jax.grad(lambda f: cost(f)))(fields)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)


def test_a_rank_exchanges_with_itself_what_it_sent_before():
    """A message of this rank that waits to be received comes first, as in MPI."""
    x = jnp.arange(5.0)
    plain = jax.jit(lambda x: mpi.sendrecv(x, x, source=RANK, dest=RANK))
    np.testing.assert_array_equal(plain(x + 1), x + 1)
    mpi.send(x + 5, RANK)
    np.testing.assert_array_equal(plain(x + 2), x + 5)
    np.testing.assert_array_equal(mpi.recv(x, RANK), x + 2)
    np.testing.assert_array_equal(plain(x + 3), x + 3)
