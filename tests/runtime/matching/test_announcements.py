"""Ends of a message that disagree in dtype, and counts of alltoallv that change: told to who receives, and nobody else."""

from __future__ import annotations

import re

import pytest
from launching import marked
from mpi.jobs import START_ALONE, Job, of_chosen_tests, run_once
from once import shared_folder
from quickly import all_slow_but

from mpijax.compiler.steps.instructions import Fill, Loop, Place, Switch, While
from mpijax.runtime.machine.executable import Call, ExchangeSide, Peers, Report
from mpijax.runtime.machine.routines import Routine
from mpijax.runtime.matching import announcements
from mpijax.runtime.matching.announcements import AnnouncedTransfer, announced, incoming, outgoing
from mpijax.runtime.mpi import mpi_start
from mpijax.runtime.reports.recorder import CommRecord

ALL = CommRecord(8, "all ranks", (5, 6, 7), 0)
ANY = mpi_start.start().MPI.ANY_SOURCE


def comm(op, *, group=ALL, status=0, sent="", received="", source=1, dest=2, sends=(), receives=()):
    report = Report(f"{op} of {sent or received}", group=group, line="model.py:3")
    send, recv = ExchangeSide(count=12, dtype=sent, counts=sends), ExchangeSide(count=8, dtype=received, counts=receives)
    return Call(Routine(op), 0, send, recv, peers=Peers(source, dest, 4, -1, status), report=report)


SEND, RECV = comm("send", sent="f4"), comm("recv", received="i4")
SENT, EXPECTED = AnnouncedTransfer(7, (4, 12, False), "f4", "send of f4 at model.py:3"), AnnouncedTransfer(6, (-1, 8, False), "i4", "recv of i4 at model.py:3")
BLOCKS = comm("alltoallv", sent="f4", sends=(4, 0, 8), receives=(0, 0, 12))
# (instructions, what is sent, what is expected)
PROGRAMS = {
    "messages": ((SEND, Fill(Place(0), 4, b"\0"), RECV), [SENT], [EXPECTED]),
    "loop": ((Loop(3, (SEND, RECV)),), [SENT], [EXPECTED]),
    "loop of no turns": ((Loop(0, (RECV,)),), [], []),
    "branches": ((Switch(Place(0), ((SEND,), (RECV,))),), [SENT], []),
    "while": ((While((RECV,), Place(0), (SEND, comm("recv", received="f4"))),), [SENT], [EXPECTED]),
    "of any length": ((comm("recv", received="i4", status=1),), [], []),
    "nobody": ((comm("sendrecv", sent="f4", received="i4", source=-9, dest=-9),), [], []),
    "anybody": ((comm("recv", received="i4", source=ANY),), [], [AnnouncedTransfer(None, (-1, 8, False), "i4", EXPECTED.text)]),
    "ranks of another job": ((comm("send", sent="f4", group=None),), [], []),
    "blocks": ((BLOCKS,), [AnnouncedTransfer(r, (BLOCKS.report.label,), n, f"{BLOCKS.report.label} at model.py:3") for r, n in ((5, 4), (7, 8))],
               [AnnouncedTransfer(7, (BLOCKS.report.label,), 12, f"{BLOCKS.report.label} at model.py:3")]),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_sent_and_expected(name):
    instructions, sent, expected = PROGRAMS[name]
    assert list(outgoing(instructions)) == sent
    assert list(incoming(instructions)) == expected


def test_what_was_announced(monkeypatch):
    monkeypatch.setattr(announcements, "_heard", {6: {(4, 8, False): {"i4": "a", "f4": "b"}, (5, 8, False): {"u4": "c"}, (5, 16, False): {"i8": "d"}}, 7: {}})

    def found(*transfer):
        peer, tag, nbytes = transfer
        return [(t.peer, t.value, t.text) for t in announced(AnnouncedTransfer(peer, (tag, nbytes, False), "", ""))]

    assert found(6, 4, 8) == [(6, "i4", "a"), (6, "f4", "b")]
    assert found(6, -1, 8) == found(None, -1, 8) == [(6, "i4", "a"), (6, "f4", "b"), (6, "u4", "c")]
    assert found(7, 4, 8) == found(8, 4, 8) == found(6, 4, 16) == []


# ---------------------------------------------------------------- in jobs

START = START_ALONE + """
i, counts = x.astype(np.int32), [[1, 2], [2, 1]][rank]
other = 1 - rank
def told(name, f, *args):
    try:
        f(*args)
        text = "passed"
    except JaxRuntimeError as error:
        text = str(error).replace("\\n", "|")
    sys.stdout.write(f"{name} on {rank}: {text}\\n")
    sys.stdout.flush()
"""
BODY = """
told("messages", lambda: mpi.send(x, 1) if rank == 0 else mpi.recv(i, 0))
y = i if rank else x
told("compiled", jax.jit(lambda y: lax.fori_loop(0, 2, lambda k, y: mpi.sendrecv(y, y, other, other, sendtag=3, recvtag=3), y)), y)
told("anybody", lambda: mpi.send(x.astype(np.float16), 1, tag=4) if rank == 0 else mpi.recv(i.astype(np.int16), tag=4))
mpi.send(x, rank, tag=5)
told("to itself", lambda: mpi.recv(i, rank, tag=5))
told("first counts", lambda: mpi.alltoallv(x[:3], counts, counts))
told("other counts", lambda: mpi.alltoallv(x[:2], [1, 1], [1, 1]))
told("counts", lambda: mpi.alltoallv(x[:2], [1, 1], [3, 1] if rank else [1, 1]))
"""
RIGHT = """
for dtype in (np.float32, np.int32, np.float32):
    told("right", lambda y: mpi.send(y, 1) if rank == 0 else mpi.recv(y, 0), x.astype(dtype))
both = jax.jit(lambda x, i: (mpi.sendrecv(x, x, other, other), mpi.sendrecv(i, i, other, other)))
told("right", both, x, i)
def short(y):
    if rank == 0: mpi.send(i[:2], 1, tag=6); mpi.send(i, 1, tag=6)
    else: mpi.recv(y, 0, tag=6, status=MPI.Status()); mpi.recv(i, 0, tag=6)
told("right", short, x)
comm = MPI.COMM_WORLD
told("right", lambda: (mpi.send(i, 1, tag=7, comm=comm), comm.Send(x, 1, 8)) if rank == 0 else
    (comm.Recv(np.empty(4, np.int32), 0, 7), mpi.recv(x, 0, tag=8, comm=comm)))
told("right", jax.jit(jax.grad(lambda x: jnp.sum(mpi.sendrecv(x, x, other, other, sendtag=3) ** 2))), x)
def from_mpi4py_first():  # a message that nobody announced, and one of another dtype that is announced before it is received
    if rank == 0: comm.Send(x, 1, 9); mpi.send(i, 1, tag=9, comm=comm); comm.Barrier()
    else: comm.Barrier(); mpi.recv(x, 0, tag=9, comm=comm); mpi.recv(i, 0, tag=9, comm=comm)
told("right", from_mpi4py_first)
"""
JOBS = {
    "wrong": Job(BODY, start=START),
    "right": Job(RIGHT, start=START.replace("from mpijax.errors", "from mpi4py import MPI\nfrom mpijax import numpy as jnp\nfrom mpijax.errors")),
    "off": Job(BODY, start=START, settings={"MPIJAX_GUARD": "0"}),
}
AT = "at <string>:"
TOLD = [
    rf"messages on 1: rank 1 received a message of another type .*\|  rank 1 expects int32: recv int32\[4\] source=0 {AT}.*\|  rank 0 sends float32: send float32\[4\] dest=1 {AT}",
    r"compiled on 0: .*rank 0 expects float32: sendrecv float32\[4\].*\|  rank 1 sends int32: sendrecv int32\[4\]",
    r"compiled on 1: .*rank 1 expects int32.*\|  rank 0 sends float32",
    r"anybody on 1: .*expects int16: recv int16\[4\].*\|  rank 0 sends float16: send float16\[4\]",
    r"to itself on 0: .*rank 0 expects int32: recv.*\|  rank 0 sends float32: send",
    rf"counts on 1: .*rank 1 expects 12 bytes: alltoallv float32 {AT}.*\|  rank 0 sends 4 bytes: alltoallv float32 {AT}",
]  # fmt: skip
PASSED = ["messages on 0", "anybody on 0", "first counts on 0", "first counts on 1", "other counts on 0", "other counts on 1", "counts on 0"]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, request):
    return run_once(of_chosen_tests(JOBS, request, "wrong"), shared_folder(tmp_path_factory, "announcements"))


@marked
def test_who_receives_is_told(outcomes):
    found = outcomes["wrong"]
    assert found.status == 0, found.output
    for pattern in TOLD:
        assert re.search(pattern, found.output), (pattern, found.output)
    for name in PASSED:
        assert f"{name}: passed" in found.output, (name, found.output)


@marked
@pytest.mark.parametrize("name", all_slow_but(("right",), ["right", "off"]))
def test_nobody_is_told(outcomes, name):
    found = outcomes[name]
    assert ("unless mpi4py sent it, rank 1 received" in found.output) == (name == "right")
    number = 2 * JOBS[name].body.count("told(") + (2 * 2 if name == "right" else 0)
    assert found.status == 0 and found.output.count(": passed") == number, found.output
