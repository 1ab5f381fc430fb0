"""Messages that only one of two ranks differentiates: told before anything waits, or soon after, and never where all is right."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from operator import itemgetter

import pytest
from launching import has_status, marked
from mpi.jobs import START_ALONE, Job, of_chosen_tests, run_once
from once import shared_folder
from quickly import all_slow_but

import mpijax as jax
from mpijax import mpi
from mpijax import numpy as jnp
from mpijax.compiler.steps.instructions import Loop, Place, Switch, While
from mpijax.ops.ranks.messages import COTANGENT, PRIMAL, TANGENT, VALUE
from mpijax.runtime.machine.executable import Call, ExchangeSide, Peers, Report
from mpijax.runtime.machine.routines import Routine
from mpijax.runtime.matching import pairing
from mpijax.runtime.reports.recorder import CommRecord

RANK = jax.process_index()
ALL = CommRecord(8, "all ranks", (0, 1, 2), 0)


def comm(op, role, source=-2, dest=-2, tag=0, nbytes=12):
    report = Report(f"{op} {role}", group=ALL, line="model.py:3", role=role)
    both = ExchangeSide(count=nbytes)
    return Call(Routine(op), 0, both, both, peers=Peers(source, dest, tag, tag), report=report)


SEND, BACK = comm("send", PRIMAL, dest=1), comm("recv", COTANGENT, source=1)


def test_edges():
    [edge] = pairing.edges((SEND, Loop(3, (BACK,)), comm("send", VALUE, dest=2)))
    assert (edge.peer, edge.whole, edge.counted, edge.items) == (1, True, True, {("from", 0, 12): 3})
    assert edge.lines == {("from", 0, 12): "recv cotangent at model.py:3"}
    assert [e.whole for e in pairing.edges((BACK,))] == [False]
    assert not pairing.edges((SEND, comm("recv", VALUE, source=1), Loop(0, (BACK,))))
    for unknown in (While((), Place(0), (BACK,)), Switch(Place(0), ((BACK,), ()))):
        [edge] = pairing.edges((SEND, unknown))
        assert edge.text() == b"?" and not edge.counted
    both = comm("sendrecv", TANGENT, source=2, dest=1)
    assert [(e.peer, dict(e.items)) for e in pairing.edges((both,))] == [(1, {("to", 0, 12): 1}), (2, {("from", 0, 12): 1})]


# (derivatives here, derivatives of the peer, how many differ)
LISTS = [
    ((BACK,), (comm("send", COTANGENT, dest=1),), 0),
    ((BACK, BACK), (Loop(2, (comm("send", COTANGENT, dest=1),)),), 0),
    ((BACK, BACK), (comm("send", COTANGENT, dest=1),), 1),
    ((BACK,), (comm("send", COTANGENT, dest=1, tag=4),), 2),
    ((BACK,), (comm("send", COTANGENT, dest=1, nbytes=8),), 2),
    ((BACK,), (BACK,), 2),
    ((comm("recv", TANGENT, source=1, tag=-1),), (comm("send", TANGENT, dest=1, tag=7),), 0),
    ((comm("recv", TANGENT, source=1, tag=-1),) * 2, (comm("send", TANGENT, dest=1, tag=7),), 1),
    ((BACK, comm("recv", TANGENT, source=1, tag=-1)), (comm("send", TANGENT, dest=1, tag=7), comm("send", TANGENT, dest=1)), 0),
]  # fmt: skip


@pytest.mark.parametrize("here, there, number", LISTS)
def test_differences(here, there, number):
    [mine], [theirs] = pairing.edges(here), pairing.edges(there)
    assert len(pairing.differences(mine, json.loads(theirs.text()))) == number
    assert len(pairing.differences(theirs, json.loads(mine.text()))) == number


def test_what_both_ends_see_alike():
    def kind(*instructions):
        [edge] = pairing.edges((SEND, *instructions))
        return edge.kind()

    elsewhere = replace(BACK, report=replace(BACK.report, line="other.py:5"), peers=replace(BACK.peers, sendtag=3, recvtag=-1))
    assert kind(BACK) == kind(elsewhere) != kind(comm("recv", COTANGENT, source=1, nbytes=8))
    assert kind(BACK, elsewhere) == kind(Loop(2, (BACK,))) != kind(BACK)
    assert kind(BACK) != kind(comm("send", COTANGENT, dest=1))


START = START_ALONE + """
from mpijax import numpy as jnp
x = jnp.arange(3.0)
def told(f):
    try:
        f(x)
        sys.stdout.write(f"passed on {rank}\\n")
    except JaxRuntimeError as error:
        sys.stdout.write(f"told to {rank}: {str(error)}\\n".replace("\\n", "|")[:-1] + "\\n")
    sys.stdout.flush()
def link(x, tag=0):                     # a value of each rank goes to the next one
    y = x if rank == 0 else mpi.recv(x, rank - 1, tag=tag)
    if rank + 1 < size: mpi.send(y * y, rank + 1, tag=tag)
    return jnp.sum(y * x)
"""
# Nothing is on its way here that could end such a waiting later.
STUCK_SOON = "from mpijax.runtime.reports import deadlock; deadlock.STUCK = 2.0\n"
JOBS = {
    "right": Job("""
for k in range(3): jax.jit(jax.value_and_grad(lambda x: k * link(x)))(x)
jax.jit(jax.jacfwd(link))(x); jax.jit(jax.hessian(link))(x); jax.grad(jax.jit(link))(x); jax.grad(link)(x)
def ring(x): return jnp.sum(lax.fori_loop(0, 3, lambda i, y: mpi.sendrecv(y * x, y, (rank - 1) % size, (rank + 1) % size), x))
jax.jit(jax.grad(ring))(x)
def both(f): return jax.jit(lambda x: (f(x), jax.grad(f)(x)))
def again(x):
    if rank + 1 < size: mpi.send(x, rank + 1)
    return jnp.sum(x if rank == 0 else mpi.recv(x, rank - 1))
jax.jit(jax.grad(link))(x); both(link if rank == 1 else again)(x)  # by other lines
(jax.jit(jax.grad(link)) if rank == 0 else jax.grad(link))(x)  # by operations
print('all right', flush=True)
""", 3),
    "tags": Job("""
told(jax.jit(jax.grad(lambda x: link(x, 5 if rank == 0 else None))))
total(x); told(jax.jit(jax.grad(link)))
"""),
    "after pieces": Job("""
def mixed(alone, f=link): (jax.grad(f) if rank == alone else jax.jit(jax.grad(f)))(x)
mixed(0); mixed(0, lambda x: 2 * link(x[:2]))
told(jax.jit(jax.grad(lambda x: link(x, 5 if rank == 0 else None))))
mixed(1); mixed(0)
told(jax.jit(jax.grad(lambda x: link(x, 5 if rank == 1 else 0))))
total(x); told(jax.jit(jax.grad(link)))
"""),
    "counts": Job("""
def pair(x):
    if rank == 0: mpi.send(x, 1); mpi.send(x * x, 1); return jnp.sum(x)
    y = mpi.recv(x, 0)
    return jnp.sum(x * y)
told(jax.jit(jax.grad(pair)))
"""),
    "receiver": Job("(jax.jit(link) if rank else jax.jit(jax.grad(link)))(x)"),
    "sender": Job("(jax.jit(jax.grad(link)) if rank else jax.jit(link))(x); total(x)"),
    "middle": Job("(jax.jit(link) if rank == 1 else jax.jit(jax.grad(link)))(x); total(x)", 3),
    "forward": Job("(jax.jit(jax.jacfwd(link)) if rank == 0 else jax.jit(link))(x); total(x)"),
    "in pieces": Job(STUCK_SOON + "(link if rank == 2 else jax.grad(jax.jit(link)))(x); total(x)", 3),
    "receive both": Job(STUCK_SOON + "jax.jit(lambda x: mpi.recv(x, 1 - rank))(x)"),
    "ring": Job(STUCK_SOON + "jax.jit(lambda x: mpi.recv(x, (rank - 1) % size))(x)", 3),
    "ring, where MPI allows threads": Job(
        STUCK_SOON + "total(x[:1]); jax.jit(lambda x: mpi.recv(x, (rank - 1) % size))(x)", 3, {"MPIJAX_STALL_SECONDS": "4"}, "from mpi4py import MPI\n",
    ),
    "ring with a collective": Job(
        STUCK_SOON + "(jax.jit(lambda x: mpi.recv(x, rank + 1)) if rank < 2 else total)(x)", 4, {"MPIJAX_GUARD": "0"}
    ),
    "ring with an agreement": Job(STUCK_SOON + "total(x[:2]); (total if rank else jax.jit(lambda x: mpi.recv(x, 2)))(x)", 3),
    "crossed": Job(STUCK_SOON + "mpi.sendrecv(x, x, (rank - 1) % size, (rank - 1) % size)", 3),
    "not a derivative": Job(STUCK_SOON + "jax.grad(link)(x) if rank == 0 else [link(x), mpi.send(x, 0), total(x)]"),
    "lost": Job("(jax.grad(jax.jit(link)) if rank else link)(x); total(x)"),
}  # fmt: skip
# (job, exit status or None for any but 0, patterns)
DIFFER = r"do not differentiate the same messages:"
EXPECTED = [
    ("right", 0, [r"all right([\s\S]*all right){2}"]),
    ("tags", 0, [
        rf"told to 0: rank 0 and rank 1 {DIFFER}.*rank 0: recv \(cotangent\) float32\[3\] source=1 at <string>.*rank 1 does not differentiate the other end",
        rf"told to 1: rank 1 and rank 0 {DIFFER}.*rank 1: send \(cotangent\) float32\[3\] dest=0 at <string>.*rank 0 does not differentiate the other end",
        r"passed on 0", r"passed on 1",
    ]),
    ("after pieces", 0, [
        rf"told to 0: rank 0 and rank 1 {DIFFER}[\s\S]*told to 0: rank 0 and rank 1 {DIFFER}",
        rf"told to 1: rank 1 and rank 0 {DIFFER}[\s\S]*told to 1: rank 1 and rank 0 {DIFFER}",
        r"passed on 0", r"passed on 1",
    ]),
    ("counts", 0, [rf"told to 0: rank 0 and rank 1 {DIFFER}", rf"told to 1: rank 1 and rank 0 {DIFFER}\|  rank 0: recv \(cotangent\)"]),
    ("receiver", None, [rf"{DIFFER}\n.*rank 0: recv \(cotangent\) float32\[3\] source=1 at <string>", r"rank 1 waits in recv float32\[3\] source=0"]),
    ("sender", None, [rf"{DIFFER}\n.*rank 1: send \(cotangent\) float32\[3\] dest=0 at <string>", r"rank 0 waits in agreement on the collectives"]),
    ("middle", None, [DIFFER, r"rank 1 waits in recv float32\[3\] source=0"]),
    ("forward", None, [rf"{DIFFER}\n.*rank 0: send \(tangent\) float32\[3.*\] dest=1"]),
    ("in pieces", None, [r"waits for rank \d in .*recv \(cotangent\) float32\[3\] source=2.*: deadlock"]),
    ("receive both", None, [r"rank \d waits for rank \d in recv float32\[3\].*, and rank \d waits for rank \d in recv float32\[3\].*: deadlock"]),
    ("ring", None, [r"rank (\d) waits for rank (\d) in recv float32\[3\] source=\2 on all ranks at <string>.*, rank \2 waits for rank (\d) in .*"
                    r", and rank \3 waits for rank \1 in recv .*: deadlock: ending the job"]),
    ("ring, where MPI allows threads", None, [r"they wait for each other: rank 0 for rank 2, rank 2 for rank 1, rank 1 for rank 0", r": deadlock"]),
    ("ring with a collective", None, [r"rank 2 waits for rank 0 in allreduce|in allreduce float32\[3\] sum .*: deadlock"]),
    ("ring with an agreement", None, [r"rank 0 waits for rank 2 in recv .*, and rank 2 for it in agreement|rank 2 waits for rank 0 in agreement"]),
    ("crossed", None, [r"waits for rank \d in sendrecv float32\[3\] source=.*: deadlock"]),
    ("not a derivative", None, [r"rank 0 waits for rank 1 in recv \(cotangent\)|rank 0 for it in recv \(cotangent\)"]),
    ("lost", 0, [r"rank 0\] mpijax: the program ends, but the derivative of a message of rank 1 with tag 0 \(12 bytes\) has not been received"]),
]  # fmt: skip
# In the default run: right programs, a mistake that is found before anything waits, and one that is found later.
OFTEN = ("right", "tags", "receive both")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, request):
    for job in JOBS.values():
        job.start, job.limit = ("" if job.start == START_ALONE else job.start) + START, 120
    return run_once(of_chosen_tests(JOBS, request), shared_folder(tmp_path_factory, "pairing"))


def test_a_message_to_oneself_that_is_not_received():
    def f(x):
        mpi.send(x * x, RANK)
        return jnp.sum(x)

    with pytest.raises(pairing.MismatchError, match=r"(?s)recv \(cotangent\) float32\[3\].* at .*test_pairing.py.*rank \d does not differentiate the other end"):
        jax.jit(jax.grad(f))(jnp.ones(3))
    with pytest.raises(RuntimeError, match=r"(?s)waits forever for the derivative of a message to itself.*test_pairing.py"):
        jax.grad(f)(jnp.ones(3))
    jax.jvp(f, [jnp.ones(3)], [jnp.ones(3)])
    assert [mpi.recv(jnp.zeros(3), RANK).tolist() for _ in range(2)] == [[1, 1, 1]] * 2
    with pytest.raises(RuntimeError, match=r"(?s)received a derivative instead of a value.*test_pairing.py"):
        mpi.recv(jnp.zeros(3), RANK)
    with pytest.raises(RuntimeError, match=r"(?s)waits forever for a message to itself that it has not sent.*test_pairing.py"):
        jax.jit(lambda x: mpi.recv(x, RANK))(jnp.ones(3))
    with pytest.raises(RuntimeError, match="a message to itself that it has not sent"):
        mpi.sendrecv(jnp.ones(3), jnp.ones(3), RANK, RANK, sendtag=1, recvtag=2)
    assert mpi.recv(jnp.zeros(3), RANK, tag=1).tolist() == [1, 1, 1]


def test_messages_to_oneself_wait_and_keep_their_order():
    def f(x):
        mpi.send(jnp.sin(x), RANK, tag=3)
        mpi.send(x, RANK, tag=3)
        y = mpi.sendrecv(x + 1, x, RANK, RANK, sendtag=3)
        return jnp.sum(y * mpi.recv(x, RANK, tag=3) ** 2 + mpi.recv(x, RANK))

    x = jnp.arange(3.0)
    want = jax.grad(lambda x: jnp.sum(jnp.sin(x) * x**2 + x + 1))(x)
    for g in (jax.grad(f), jax.jit(jax.grad(f)), jax.grad(jax.jit(f))):
        assert g(x).tolist() == want.tolist()


@marked
@pytest.mark.parametrize("name, status, patterns", all_slow_but(OFTEN, EXPECTED, itemgetter(0)))
def test_jobs(outcomes, name, status, patterns):
    found = outcomes[name]
    assert has_status(found.status, status), found.output[-3000:]
    assert found.seconds < JOBS[name].limit, found.output[-3000:]
    for pattern in patterns:
        assert re.search(pattern, found.output), (pattern, found.output[-3000:])
