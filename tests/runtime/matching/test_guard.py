"""The matching guard: every rank raises where programs do not belong together, and right programs are let through."""

from __future__ import annotations

import itertools

import pytest
from launching import has_status, marked
from mpi.jobs import START, Job, run_once
from once import shared_folder

from mpijax.compiler.steps.instructions import Fill, Loop, Place, Switch, While
from mpijax.runtime.machine.executable import Call, Carrier, Report
from mpijax.runtime.machine.routines import Routine
from mpijax.runtime.matching.guard import groups_of, schedule, text
from mpijax.runtime.reports.recorder import CommRecord

ALL = CommRecord(8, "all ranks", (0, 1, 2, 3), 0)
SOME = CommRecord(12, "ranks 0-1", (0, 1), 0)
OTHERS = CommRecord(16, "ranks 1-2", (1, 2), 0)
FILL = Fill(Place(0), 4, b"\0")


def comm(label, group=ALL, matched=True):
    report = Report(label, group=group, line=f"model.py:{len(label)}")
    return Call(Routine(label.split()[0]), 0, carrier=Carrier(matched=matched), report=report)


SUM, MAX, HALF = comm("allreduce f32[4] sum"), comm("allreduce f32[4] max"), comm("allreduce f32[2] sum", SOME)
SEND = comm("send f32[4]", matched=False)

ALIKE = [
    ((SUM, SUM, SUM, MAX), (Loop(3, (FILL, SUM)), MAX)),
    ((Loop(2, (Loop(3, (SUM, MAX)),)),), (Loop(6, (SUM, MAX)),)),
    ((SUM,), (SEND, FILL, SUM, SEND)),
    ((SUM,), (Switch(Place(0), ((SUM,), (FILL, SUM))),)),
    ((SUM,), (While((FILL,), Place(0), (FILL,)), SUM, Loop(0, (MAX,)))),
    ((SUM, MAX), (SUM, HALF, MAX)),  # ranks 2 and 3 do not know of it
]
DIFFERENT = [
    ((SUM, MAX), (MAX, SUM)),
    ((SUM,), (SUM, SUM)),
    ((SUM,), ()),
    ((SUM,), (comm("allreduce f32[3] sum"),)),
    ((Switch(Place(0), ((SUM,), (MAX,))),), (Switch(Place(0), ((MAX,), (SUM,))),)),
    ((While((), Place(0), (SUM,)),), (SUM,)),
    ((While((SUM,), Place(0), (MAX,)),), (While((MAX,), Place(0), (SUM,)),)),
    ((Loop(3, (SUM,)),), (Loop(2, (SUM,)),)),
]


@pytest.mark.parametrize("a, b", ALIKE)
def test_schedules_alike(a, b):
    assert schedule(a, ALL) == schedule(b, ALL)


@pytest.mark.parametrize("a, b", DIFFERENT)
def test_schedules_that_differ(a, b):
    assert schedule(a, ALL) != schedule(b, ALL)


def test_a_group_compares_what_all_of_its_ranks_do():
    """Ranks 0 and 1 agree also on where their own operations lie between those of all; others' do not count."""
    other = comm("allreduce f32[4] sum", OTHERS)
    assert schedule((HALF, SUM, other), SOME) == schedule((HALF, other, SUM), SOME)
    assert schedule((HALF, SUM), SOME) != schedule((SUM, HALF), SOME)
    assert schedule((HALF, SUM), ALL) == schedule((SUM, HALF), ALL)
    assert groups_of((SEND, Loop(2, (HALF,)), other, SUM, HALF)) == [SOME, OTHERS, ALL]
    assert groups_of((Loop(0, (HALF,)), Switch(Place(0), ((), (SUM,))))) == [ALL]


def test_texts():
    shown = text((SUM, Loop(5, (HALF, MAX)), Switch(Place(0), ((SUM,), (FILL,))), While((FILL,), Place(0), (SUM,))), SOME)
    assert [line.strip().split("  ")[0] for line in shown] == [
        "allreduce f32[4] sum on all ranks", "5 times:", "allreduce f32[2] sum", "allreduce f32[4] max on all ranks",
        "branch 0:", "allreduce f32[4] sum on all ranks", "branch 1:", "nothing", "while:",
        "allreduce f32[4] sum on all ranks",
    ]  # fmt: skip
    assert shown[0].endswith("at model.py:20")


# Each of these raises on all three ranks, and the job goes on.
MISMATCHES = {
    "shapes": "total(x[: 1 + rank])",
    "dtypes": "total(x[:3].astype('f2' if rank == 1 else 'f4'))",
    "operations": "(total if rank else jax.jit(lambda x: mpi.bcast(x, 0)))(x[:2])",
    "eager": "mpi.allreduce(x[:3], op=MPI.SUM if rank else MPI.MAX)",
    "roots": "jax.jit(lambda x: mpi.bcast(x, min(rank, 1)))(x)",
    "order": "order(x)",
    "turns": "jax.jit(lambda x: lax.fori_loop(0, 3 + rank % 2, lambda i, y: mpi.allreduce(y, op=MPI.MAX), x))(x)",
    "pmap": "jax.pmap(lambda y: lax.psum(y, 'i'), 'i')(np.ones((1, 3 + rank)))",
    "counts": "mpi.alltoallv(x[:3], [1, 1, 1], [1, 1 + rank // 2, 1])",
    "nothing": "jax.jit(lambda x: mpi.scan(mpi.allreduce(x, op=MPI.MIN), op=MPI.SUM) if rank else mpi.allreduce(x, op=MPI.MIN))(x)",
}
BODY = f"""
def say(what, text=""):  # in one piece, so that lines of ranks do not mix
    sys.stdout.write(what + text.replace("\\n", "|") + "\\n")
    sys.stdout.flush()
pair = MPI.COMM_WORLD.Split(rank // 2)
@jax.jit
def order(x):
    steps = [lambda y: mpi.allreduce(y, op=MPI.PROD), lambda y: mpi.allgather(y)[0]]
    for step in steps[::-1] if rank == 2 else steps:
        x = step(x)
    return x
for name, code in {MISMATCHES!r}.items():
    try:
        eval(code)
        say(f"{{name}} passed on {{rank}}")
    except JaxRuntimeError as error:
        text = str(error)
        assert "on the communicator of all ranks" in text and text.count("program '") >= 2, text
        assert text.count("rank ") + text.count("ranks ") > 2, text
        say(f"{{name}} told to {{rank}}: ", text)
    assert np.asarray(total(x)).tolist() == (size * x).tolist()
try:  # among ranks 0 and 1 alone; rank 2 has a communicator of its own
    total2 = jax.jit(lambda x: mpi.allreduce(x, op=MPI.SUM, comm=pair))
    total2(x[: 2 + rank])
    say(f"pair passed on {{rank}}")
except JaxRuntimeError as error:
    say(f"pair told to {{rank}}: ", str(error))
# Right programs that ranks compile at different times, with branches that differ, and messages that do.
static = jax.jit(lambda x, k: mpi.allreduce(x * k, op=MPI.SUM), static_argnums=1)
for k in range(4):
    static(x, min(k, rank))
exchange = jax.jit(lambda x: mpi.send(x, dest=1) if rank == 0 else mpi.recv(x, source=0) if rank == 1 else None)
exchange(x)
say(f"right to the end on {{rank}}")
"""
KNOWN = """
low = jax.jit(lambda x: mpi.allreduce(x, op='MIN'))
total(x)
if rank == 0:
    low(x)
else:
    total(x)
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    jobs = {
        "mismatches": Job(BODY, 3, start=START),
        "known": Job(KNOWN),
        "off": Job("total(x); print('done')", settings={"MPIJAX_GUARD": "0"}),
    }
    return run_once(jobs, shared_folder(tmp_path_factory, "guard"))


@marked
@pytest.mark.parametrize("name, rank", [(n, r) for n, r in itertools.product(MISMATCHES, range(3))])
def test_every_rank_is_told(outcomes, name, rank):
    output = outcomes["mismatches"].output
    assert f"{name} told to {rank}: ranks run different collectives" in output, output[-3000:]


@marked
def test_what_is_told(outcomes):
    lines = outcomes["mismatches"].output.splitlines()
    [shapes] = [line for line in lines if line.startswith("shapes told to 0")]
    for r in range(3):
        assert f"|rank {r}: program '<lambda>':|  allreduce float32[{1 + r}] sum   at <string>:" in shapes
    [pmap] = [line for line in lines if line.startswith("pmap told to 0")]
    assert "|  allreduce_sum float32[3] over i   at <string>:" in pmap
    [roots] = [line for line in lines if line.startswith("roots told to 2")]
    assert "|rank 0: " in roots and "|ranks 1-2: " in roots and "bcast float32[4] root=1" in roots
    [turns] = [line for line in lines if line.startswith("turns told to 1")]
    assert "|ranks 0,2: " in turns and "3 times:" in turns and "4 times:" in turns


@marked
def test_groups_and_right_programs(outcomes):
    found = outcomes["mismatches"]
    assert found.status == 0, found.output[-3000:]
    assert all(f"right to the end on {r}" in found.output for r in range(3))
    assert "pair told to 0: " in found.output and "pair told to 1: " in found.output
    assert "on the communicator of ranks 0-1 they" in found.output and "pair passed on 2" in found.output


@marked
def test_a_rank_in_another_collective_is_found(outcomes):
    found = outcomes["known"]
    assert has_status(found.status, 1) and "MismatchError" in found.output
    assert "but rank 1 waits in allreduce float32[4] sum on all ranks at <string>:" in found.output


@marked
def test_off(outcomes):
    assert outcomes["off"].status == 0 and outcomes["off"].output.count("done") == 2
