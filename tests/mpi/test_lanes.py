"""Messages through memory between ranks of a node are received as MPI would have them, whatever is called around them."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest

import mpijax as jax
from mpijax import lax, mpi
from mpijax import numpy as jnp
from mpijax.runtime.mpi import mpi_start

RANK, SIZE = jax.process_index(), jax.process_count()
PARTNER = RANK ^ 1
in_pairs = [pytest.mark.skipif(SIZE < 2, reason="two ranks"), pytest.mark.skipif(SIZE % 2 == 1, reason="ranks in pairs")]
pytestmark = [pytest.mark.mpi, pytest.mark.many_ranks, *in_pairs]  # who sends to whom depends on their number
TURNS = 40
COUNT = 150


def through_lanes(fun, *args, patience=10**10):
    """(result of a run, how many messages it received through lanes). Senders wait for readers however busy the machine."""
    ext = mpi_start.start().ext
    before, times = ext.lane_messages(), ext.set_lane_patience(patience, patience)
    try:
        out = fun(*args)
    finally:
        ext.set_lane_patience(*times)
    return out, ext.lane_messages() - before


def has_lanes():
    return mpi_start.start().lanes


def values(n, *key):
    return np.random.default_rng(key).integers(0, 1000, n).astype(np.float32)


def comm_world():
    from mpi4py import MPI

    return MPI.COMM_WORLD


# ---------------------------------------------------------------- programs


def exchange(x, comm, **tags):
    return lax.fori_loop(0, TURNS, lambda i, y: mpi.sendrecv(y + i, y, PARTNER, PARTNER, comm=comm, **tags) * 0.5 + RANK, x)


def send_then_receive(x, comm):
    def turn(i, y):
        mpi.send(y + i, PARTNER, comm=comm)
        return mpi.recv(y, PARTNER, comm=comm) * 0.5 + RANK

    return lax.fori_loop(0, TURNS, turn, x)


def one_after_the_other(x, comm):
    """The odd ranks answer."""

    def turn(i, y):
        if RANK % 2:
            z = mpi.recv(y, PARTNER, comm=comm)
            mpi.send(y + i, PARTNER, comm=comm)
        else:
            mpi.send(y + i, PARTNER, comm=comm)
            z = mpi.recv(y, PARTNER, comm=comm)
        return z * 0.5 + RANK

    return lax.fori_loop(0, TURNS, turn, x)


def with_a_collective(x, comm):
    return lax.fori_loop(
        0, TURNS, lambda i, y: mpi.sendrecv(y + i, y, PARTNER, PARTNER, comm=comm) * 0.5 + RANK + 0 * mpi.allreduce(y, "SUM"), x
    )


def collective_between(x, comm):
    """Each rank sends, meets all others, and receives then."""

    def turn(i, y):
        mpi.send(y + i, PARTNER, comm=comm)
        total = mpi.allreduce(y, "SUM")
        return mpi.recv(y, PARTNER, comm=comm) * 0.5 + RANK + 0 * total

    return lax.fori_loop(0, TURNS, turn, x)


def python_between(x, comm):
    def turn(i, y):
        z = mpi.sendrecv(y + i, y, PARTNER, PARTNER, comm=comm)
        z = jax.pure_callback(lambda v: np.asarray(v) * 0.5, jax.ShapeDtypeStruct(z.shape, z.dtype), z)
        return z + RANK

    return lax.fori_loop(0, TURNS, turn, x)


def in_a_while_loop(x, comm):
    def body(state):
        i, y = state
        return i + 1, mpi.sendrecv(y + i, y, PARTNER, PARTNER, comm=comm) * 0.5 + RANK

    return lax.while_loop(lambda s: s[0] < TURNS, body, (0, x))[1]


def by_any_source(x, comm):
    """Every other message is received from whoever sends it."""

    def turn(i, y):
        mpi.send(y + i, PARTNER, comm=comm)
        z = lax.cond(i % 2 == 0, lambda: mpi.recv(y, PARTNER, comm=comm), lambda: mpi.recv(y, comm=comm))
        return z * 0.5 + RANK

    return lax.fori_loop(0, TURNS, turn, x)


def two_communicators(x, comm):
    def turn(i, y):
        mpi.send(y + i, PARTNER, comm=comm)
        mpi.send(y, PARTNER)
        other = mpi.recv(y, PARTNER)
        return mpi.recv(y, PARTNER, comm=comm) * 0.5 + RANK + 0 * other

    return lax.fori_loop(0, TURNS, turn, x)


def expected(x):
    """What the exchange leaves on this rank: of its own and its partner's arrays."""
    own, other = x[RANK], x[PARTNER]
    for i in range(TURNS):
        own, other = (other + np.float32(i)) * np.float32(0.5) + RANK, (own + np.float32(i)) * np.float32(0.5) + PARTNER
    return own


PROGRAMS = [
    exchange, send_then_receive, one_after_the_other, with_a_collective, collective_between, python_between,
    in_a_while_loop, by_any_source, two_communicators,
]  # fmt: skip
# Others receive something else while a message is unread: then it goes by MPI, after a while.
THROUGH_LANES = {exchange, send_then_receive, one_after_the_other, in_a_while_loop, two_communicators}


CASES = [(f, n) for f in PROGRAMS for n in (0, 1, 7, 900)] + [(f, 5000) for f in (exchange, one_after_the_other)]


@pytest.mark.parametrize("program, n", CASES, ids=lambda c: getattr(c, "__name__", str(c)))
def test_programs(program, n):
    x = [values(n, r, n) for r in range(SIZE)]
    fun = jax.jit(lambda v: program(v, comm_world()))
    counts = []
    for _ in range(4):
        out, count = through_lanes(fun, x[RANK], **({} if program in THROUGH_LANES else {"patience": 20000}))
        np.testing.assert_array_equal(out, expected(x))
        counts.append(count)
    if has_lanes() and program in THROUGH_LANES:
        assert max(counts) == 0 if n == 5000 else max(counts) > 0


COMMUNICATORS = {
    "its own": lambda: None,
    "a duplicate": lambda: comm_world().Dup(),
    "a duplicate of one": lambda: mpi.split(0, RANK).Clone(),
    "split": lambda: mpi.split(0, RANK, comm=comm_world()),
    "a grid": lambda: mpi.create_cart(1, True),
    "of mpi4py alone": lambda: comm_world().Split(0, RANK),
}


@pytest.mark.parametrize("made", COMMUNICATORS)
def test_on_other_communicators(made):
    """Messages of each go through lanes if mpijax, or a duplicate, has a number for it."""
    x = [values(5, r) for r in range(SIZE)]
    comm = COMMUNICATORS[made]()
    out, count = through_lanes(jax.jit(lambda v: exchange(v, comm)), x[RANK])
    np.testing.assert_array_equal(out, expected(x))
    assert (count > TURNS // 2) == (made != "of mpi4py alone" and has_lanes())
    if comm is not None:
        comm.Free()


@pytest.mark.skipif(SIZE < 4, reason="four ranks, in two communicators")
def test_in_parts_of_all_ranks_at_once():
    """Ranks have other numbers there: the pairs are (3, 1) and (2, 0)."""
    x = [values(7, r) for r in range(SIZE)]
    comm = mpi.split(RANK % 2, -RANK)
    me, ranks = comm.Get_rank(), comm.Get_size()
    right, left = (me + 1) % ranks, (me - 1) % ranks
    turn = lambda i, y: mpi.sendrecv(y, y, left, right, comm=comm)
    out, count = through_lanes(jax.jit(lambda v: lax.fori_loop(0, TURNS + 1, turn, v)), x[RANK])
    members = [r for r in range(SIZE) if r % 2 == RANK % 2][::-1]
    np.testing.assert_array_equal(out, x[members[(me - TURNS - 1) % ranks]])
    assert (count > 0) == has_lanes()
    comm.Free()


def test_derivatives():
    x = [values(5, r) for r in range(SIZE)]
    value, vjp = jax.vjp(jax.jit(lambda v: exchange(v, comm_world())), x[RANK])
    np.testing.assert_array_equal(value, expected(x))
    [cotangent] = vjp(jnp.ones(5))
    np.testing.assert_allclose(cotangent, np.full(5, 0.5**TURNS))


# ---------------------------------------------------------------- beside mpi4py


def ring_of(messages, comm, tag=0):
    """A program that sends and receives so many messages of one number, each with its number."""

    def turn(i, total):
        mpi.send(i * jnp.ones(1), PARTNER, comm=comm, tag=tag)
        return total * 2 + mpi.recv(jnp.ones(1), PARTNER, comm=comm, tag=tag) % 3

    return lax.fori_loop(0, messages, turn, jnp.zeros(1))


def total_of(numbers):
    total = np.zeros(1, np.float32)
    for number in numbers:
        total = total * 2 + np.float32(number % 3)
    return total


def test_a_message_of_mpi4py_that_was_sent_before_comes_first():
    comm = comm_world()
    fun = jax.jit(lambda: ring_of(20, comm))
    request = comm.Isend(np.array([17], np.float32), PARTNER)
    np.testing.assert_array_equal(fun(), total_of([17, *range(19)]))
    last = np.empty(1, np.float32)
    comm.Recv(last, PARTNER, 0)
    assert last[0] == 19
    request.Wait()


def test_a_receive_of_mpi4py_that_was_posted_before_takes_the_first():
    comm = comm_world()
    fun = jax.jit(lambda: ring_of(20, comm))
    first, other = np.empty(1, np.float32), np.empty(1, np.float32)
    posted = comm.Irecv(first, PARTNER, 0)
    late = comm.Isend(np.array([40], np.float32), PARTNER, 1)
    comm.Barrier()
    mpi.send(jnp.full(1, 20.0), PARTNER, comm=comm)
    np.testing.assert_array_equal(fun(), total_of(range(20)))
    posted.Wait()
    comm.Recv(other, PARTNER, 1)
    late.Wait()
    assert (first[0], other[0]) == (20, 40)


def test_a_message_with_another_tag_that_waits_for_mpi4py():
    comm = comm_world()
    fun = jax.jit(lambda: ring_of(40, comm, tag=5))
    request = comm.Isend(np.array([1], np.int64), PARTNER, 77)
    comm.Barrier()
    out, count = through_lanes(fun)
    found = np.empty(1, np.int64)
    comm.Recv(found, PARTNER, 77)
    request.Wait()
    np.testing.assert_array_equal(out, total_of(range(40)))
    assert count > 20 or not has_lanes()


def test_mpi4py_receives_what_a_program_sent_last():
    """More is sent than received: what lay in memory goes by MPI."""
    comm = comm_world()

    def program():
        total = ring_of(20, comm)
        for k in range(3):
            mpi.send(jnp.full(1, 100.0 + k), PARTNER, comm=comm)
        return total

    fun = jax.jit(program)
    for _ in range(3):
        np.testing.assert_array_equal(fun(), total_of(range(20)))
        for k in range(3):
            found = np.empty(1, np.float32)
            comm.Recv(found, PARTNER)
            assert found[0] == 100 + k


# ---------------------------------------------------------------- anything, in any order


@dataclass
class Message:
    source: int
    tag: int
    size: int
    number: int
    receive: int = -1  # its place among the receives of the other rank


def matches(messages, receives):
    """Which receive gets each message: MPI's rule, by the orders of sending and of posting; None if one gets none."""
    free, found = list(range(len(receives))), []
    for m in messages:
        at = next((k for k in free if receives[k] in (None, m.tag)), None)
        if at is None:
            return None
        free.remove(at)
        found.append(at)
    return found


def schedule(seed):
    """[(rank, "send" or "recv", message, tag asked for, way)] such that no receive comes before its message is sent."""
    pick = random.Random(seed)
    sends, receives = {}, {}
    for r in (0, 1):
        while True:
            messages = [Message(r, pick.choice([0, 0, 0, 0, 0, 3]), pick.choice([1, 1, 3, 40, 900]), k) for k in range(COUNT)]
            asked = [pick.choice([m.tag, m.tag, m.tag, None]) for m in messages]
            for _ in range(3 if seed % 2 else 0):  # some receives are posted out of order
                k = pick.randrange(len(asked) - 1)
                asked[k], asked[k + 1] = asked[k + 1], asked[k]
            found = matches(messages, asked)
            if found is not None:
                break
        sends[r] = messages
        receives[1 - r] = sorted(zip(found, messages, strict=True), key=lambda pair: pair[0])
        receives[1 - r] = [(m, asked[k]) for k, m in receives[1 - r]]
    timeline, sent, nexts, foreign = [], {0: 0, 1: 0}, {0: 0, 1: 0}, {0: 0, 1: 0}
    while any(nexts[r] < COUNT for r in (0, 1)):
        r = pick.choice((0, 1))
        if pick.random() < 0.02:
            foreign[r] = pick.choice([0, 0, 1, 2, 5])  # so many operations of this rank by mpi4py
        for _ in range(pick.choice([1, 1, 2, 6])):
            way = "mpi4py" if foreign[r] > 0 else "program"
            ahead = sent[r] - nexts[1 - r]
            if nexts[r] < COUNT and receives[r][nexts[r]][0].number < sent[1 - r] and (ahead > 1 or pick.random() < 0.6):
                timeline.append((r, "recv", *receives[r][nexts[r]], way))
                nexts[r] += 1
            elif sent[r] < COUNT and (ahead < (2, 4, 30)[seed % 3] or receives[1 - r][nexts[1 - r]][0].number >= sent[r]):
                timeline.append((r, "send", sends[r][sent[r]], None, way))
                sent[r] += 1
            foreign[r] -= 1
    return timeline


def content(m):
    return np.full(m.size, 1000 * m.source + m.number, np.float32)


class Segment:
    """Operations of this rank in one program, which is compiled when it is made."""

    def __init__(self, operations, comm):
        def program(scale):
            out = []
            for _, what, m, tag, _ in operations:
                if what == "send":
                    mpi.send(jnp.asarray(content(m)) * scale, PARTNER, tag=m.tag, comm=comm)
                else:
                    out.append(mpi.recv(jnp.zeros(m.size), PARTNER, tag=tag, comm=comm))
            return out

        self.run = jax.jit(program).lower(np.float32(1)).compile()
        self.wanted = [content(m) for _, what, m, _, _ in operations if what == "recv"]

    def __call__(self, requests):
        for found, wanted in zip(self.run(np.float32(1)), self.wanted, strict=True):
            np.testing.assert_array_equal(found, wanted)


class Foreign:
    """An operation by mpi4py."""

    def __init__(self, operation, comm):
        _, self.what, self.message, tag, _ = operation
        self.tag, self.comm = -1 if tag is None else tag, comm

    def __call__(self, requests):
        data = content(self.message)
        if self.what == "send":
            requests.append((self.comm.Isend(data, PARTNER, self.message.tag), data))
            return
        found = np.empty_like(data)
        self.comm.Recv(found, PARTNER, self.tag)
        np.testing.assert_array_equal(found, data)


@pytest.mark.parametrize("seed", [*range(4), 32, *(pytest.param(s, marks=pytest.mark.slow) for s in range(4, 60) if s != 32)])
def test_any_order(seed):
    comm, requests, parts, segment = comm_world(), [], [], []
    for operation in [o for o in schedule(seed) if o[0] == RANK % 2] + [None]:
        if operation is not None and operation[-1] == "program":
            segment.append(operation)
            continue
        if segment:
            parts.append(Segment(segment, comm))
            segment = []
        if operation is not None:
            parts.append(Foreign(operation, comm))
    for _ in range(3):
        comm.Barrier()
        for part in parts:
            part(requests)
        for request, _ in requests:
            request.Wait()
