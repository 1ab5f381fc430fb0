"""Stalls, ranks that fail in all the ways there are, and the flight recorder, in jobs with time limits."""

from __future__ import annotations

import json
import re
from operator import itemgetter

import numpy as np
import pytest
from launching import has_status, is_open_mpi, marked
from mpi.jobs import START, START_ALONE, Job, of_chosen_tests, run_once
from once import shared_folder
from quickly import all_slow_but

from mpijax._ext import record
from mpijax.cli import main
from mpijax.runtime.reports import watchdog
from mpijax.runtime.reports.recorder import REGION, CommRecord, Recorder, Site, ranges

# MPI runs, and mpijax has not started.
MPI4PY_FIRST = START.replace("jax.process_index(), jax.process_count()", "MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size")
TWO_THREADS = """
total(x)
def first():
    try: total(x)
    except RuntimeError as error: print('told:', error, flush=True)
if rank == 1: time.sleep(3)
t = threading.Thread(target=first); t.start(); time.sleep(1)
if rank == 0: first()
t.join()
"""
# Rank 1 starts MPI 2.5 s after rank 0 does, however long rank 0 takes to load its modules.
RANK = "os.environ.get('PMI_RANK', os.environ.get('OMPI_COMM_WORLD_RANK'))"
BEGUN = "os.environ['MPIJAX_TRACE_DIR'] + ' begun'"
LATE = f"""import os, time
if {RANK} == '1':
    while not os.path.exists({BEGUN}): time.sleep(0.05)
    time.sleep(2.5)
"""
START_LATE = LATE + START_ALONE.replace("rank, size = ", f"if {RANK} == '0': open({BEGUN}, 'w').close()\nrank, size = ", 1)
LINES = START_ALONE.count("\n")
SOON = {"MPIJAX_STALL_SECONDS": "1"}
JOBS = {
    "asleep": Job("total(x)\nif rank == 1: time.sleep(2.5)\nprint(total(x))", 3, SOON),
    "absent": Job("total(x)\nif rank == 0: total(x)\nelse: time.sleep(100)", settings=SOON | {"MPIJAX_STALL_ABORT": "1"}),
    "receives": Job(
        "if rank == 0: jax.jit(lambda x: mpi.recv(x, source=1))(x)\nelse: time.sleep(100)",
        settings=SOON | {"MPIJAX_STALL_ABORT": "1"},
    ),
    "killed": Job("total(x)\nif rank == 1: os.kill(os.getpid(), signal.SIGKILL)\ntotal(x)"),
    "raises": Job("total(x)\nprint('before', flush=True)\nif rank == 1: raise ValueError('unwell')\ntotal(x)"),
    "says much": Job("total(x)\nif rank == 1: print('x' * 300000 + 'end'); raise ValueError('unwell')\ntotal(x)"),
    "exits": Job("total(x)\nprint(f'before {rank}')\nif rank == 1: sys.exit(3)\ntotal(x)"),
    "exits, started by mpi4py": Job("total(x)\nprint(f'before {rank}')\nif rank == 1: sys.exit(3)\ntotal(x)", start=START),
    "raises before it starts": Job("if rank == 1: raise ValueError('unwell')\ntotal(x)", start=MPI4PY_FIRST),
    "ends before it starts": Job("if rank == 0: total(x)", start=MPI4PY_FIRST),
    "does not start": Job(
        "if rank == 0: total(x)\nelse: time.sleep(100)", settings=SOON | {"MPIJAX_STALL_ABORT": "1"}, start=MPI4PY_FIRST
    ),
    "leaves": Job("import io\ntotal(x)\nsys.stderr = io.StringIO()\nif rank == 0: total(x)"),
    "from anybody": Job("total(x)\nif rank == 0: mpi.recv(x)", 3),
    "later call": Job(
        "mpi.allreduce(x, 'SUM')\nif rank == 0:\n    mpi.allreduce(x, 'SUM')\ntime.sleep(100)",
        settings=SOON | {"MPIJAX_STALL_ABORT": "1"},
    ),
    "starts late": Job("total(x)", settings=SOON, start=START_LATE),
    "never starts": Job(
        "total(x)", settings=SOON | {"MPIJAX_STALL_ABORT": "1"}, start=START_LATE.replace("2.5", "100")
    ),
    "ends before MPI starts": Job("total(x)", 3, start=START_LATE.replace("time.sleep(2.5)", "os._exit(0)")),
    "one rank indexes": Job(
        "split = jax.device_put(x, jax.NamedSharding(jax.sharding.Mesh(jax.devices(), 'i'), jax.P('i')))\nif rank == 0: split[0]"
    ),
    "left alone, in sleep": Job("total(x)\nif rank == 1: os._exit(7)\ntime.sleep(100)", lets_run=True, limit=30),
    "left alone, at the end": Job("total(x)\nif rank == 1: time.sleep(1); os._exit(7)", lets_run=True, limit=30),
    "left alone by Ctrl-C": Job(
        "total(x)\nif rank: time.sleep(100)\nthreading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()\ntotal(x)",
        lets_run=True, limit=30,
    ),
    "all exit": Job("total(x)\nsys.exit(5)"),
    "interrupted": Job(
        "total(x)\nif rank: time.sleep(100)\nthreading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()\ntotal(x)"
    ),
    "interrupted in a loop": Job("""
forever = jax.jit(lambda x: lax.fori_loop(0, 10**9, lambda i, y: mpi.allreduce(y, op='MAX'), x))
total(x)
compiled = forever.lower(x).compile()
if rank == 0: threading.Timer(2, os.kill, (os.getpid(), signal.SIGINT)).start()
compiled(x)
"""),
    "callback": Job("""
def check(y):
    if rank == 1: raise KeyError('bad value')
@jax.jit
def f(x):
    jax.debug.callback(check, x)
    return mpi.allreduce(x, op='SUM')
total(x); f(x); total(x)
"""),
    "values": Job(
        """
from mpijax import distributed
from mpijax.experimental import multihost_utils as hosts
assert hosts.process_allgather(np.full(3, rank)).tolist() == [[0, 0, 0], [1, 1, 1]]
assert hosts.broadcast_one_to_all({'a': np.arange(3) * (1 - rank)})['a'].tolist() == [0, 1, 2]
distributed.should_stop()
pair = mpi.split(0)
if rank == 0: hosts.sync_global_devices('there')
else: time.sleep(0.5); total(x)  # rank 0 is the first to wait
""", settings=SOON | {"MPIJAX_STALL_ABORT": "1", "MPIJAX_GUARD": "0"},
    ),
    "truncated": Job(TWO_THREADS + """
def told(f):
    try: f(x)
    except RuntimeError as error: print('told', rank, str(error).replace('\\n', '|'), flush=True)
told(jax.jit(lambda x: mpi.send(x, dest=1) if rank == 0 else mpi.recv(x[:2], source=0)))
total(x)
pair = MPI.COMM_WORLD.Dup()
freed = jax.jit(lambda x: mpi.allreduce(x, op=MPI.SUM, comm=pair))
freed(x)
pair.Free()
time.sleep(0.5 * rank)  # so that the ranks' lines do not mix
told(freed)
""", start=START),
    "known, in another order": Job("""
total(x); largest = jax.jit(lambda x: mpi.allreduce(x, 'MAX')); largest(x)
for f in (total, largest)[::-1 if rank else 1]: f(x)
print('went on')
"""),
    "known, in another order, by MPI": Job("""
largest, least = jax.jit(lambda x: mpi.allreduce(x, 'MAX')), jax.jit(lambda x: mpi.allreduce(x, 'MIN'))
largest(x); least(x)
for f in (largest, least)[::-1 if rank else 1]: f(x)
""", settings={"MPIJAX_SHARED_MEMORY": "0"}),
    "communicators, in another order": Job("""
a, b = MPI.COMM_WORLD.Dup(), MPI.COMM_WORLD.Dup()
print(mpi.allreduce(x, MPI.SUM, comm=b if rank else a))
""", start=START),
    "communicators, crossed in a program": Job("""
a, b = MPI.COMM_WORLD.Dup(), MPI.COMM_WORLD.Dup()
first, second = (b, a) if rank else (a, b)
print(jax.jit(lambda x: mpi.allreduce(mpi.allreduce(x, MPI.SUM, comm=first), MPI.SUM, comm=second))(x))
""", start=START),
    "message after the end": Job("if rank == 0: time.sleep(1); mpi.send(x, dest=1)"),
    "thread at the end": Job("""
def receive(): mpi.recv(x, source=1 - rank)
total(x); threading.Thread(target=receive, daemon=True).start(); time.sleep(1)
"""),
    "rows and columns": Job("""
from mpijax.runtime.reports import deadlock; deadlock.STUCK = 2.0  # nothing is on its way that could end the waiting later
row, column = mpi.split(rank // 2), mpi.split(rank % 2)
rows = jax.jit(lambda x: mpi.allreduce(x, 'SUM', comm=row))
columns = jax.jit(lambda x: mpi.allreduce(x, 'MAX', comm=column))
rows(x); columns(x); total(x)
for f in (rows, columns)[:: 1 if rank in (0, 3) else -1]: f(x)
""", 4),
    "forked": Job("""
total(x)
if rank == 1 and os.fork() == 0:
    for f in (total, lambda x: mpi.allgather(x)):
        try: f(x)
        except RuntimeError as error: print('told', rank, str(error).replace('\\n', '|'), flush=True)
    raise ValueError('in the copy')
if rank == 1: os.wait(); time.sleep(4)  # longer than a rank that has ended is waited for
print(total(x), 'still there', flush=True)
"""),
    "goes on": Job(
        """
total(x)
named = [line for line in open('/proc/self/maps') if '/dev/shm/mpich' in line and 'deleted' not in line]
sys.stdout.write(f'named: {named}\\n')
def fail(): raise ValueError('in a thread')
t = threading.Thread(target=fail); t.start(); t.join(); total(x); print('went on')
"""
        + TWO_THREADS
        + """
loop = jax.jit(lambda x: lax.fori_loop(0, 600, lambda i, y: mpi.allreduce(y, op='MAX'), x))
loop(x); loop(x)
if rank == 1: time.sleep(2)
else: threading.Timer(1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
jax.jit(lambda x: mpi.allreduce(x, op='MIN'))(x)
from mpi4py import MPI
mpi.allreduce(x, 'SUM'); MPI.Finalize(); time.sleep(0.5 * rank)
for f in (total, lambda x: mpi.allreduce(x, 'SUM'), lambda x: mpi.split(0), jax.jit(lambda x: mpi.bcast(x, 0))):
    try: f(x)
    except RuntimeError as error: print('told', rank, error, flush=True)
"""
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return shared_folder(tmp_path_factory, "watchdog")


@pytest.fixture(scope="module")
def outcomes(folder, request):
    return run_once(of_chosen_tests(JOBS, request, "asleep", "all exit", "goes on", "values"), folder)


# (job, exit status or None for any but 0, patterns of the output)
EXPECTED = [
    ("asleep", 0, [
        r"rank 0\] mpijax: rank 0 has waited 1 s in allreduce float32\[4\] sum on all ranks at <string>:\d+",
        r"rank [02]\] mpijax:     its operation number \d+, 16 bytes",
        r"rank [02]\] mpijax:     rank 1 has not arrived: it computes.* ago it finished allreduce float32\[4\] sum",
        r"\[ ?0\. +3\. +6\. +9\.\]",
    ]),
    ("absent", 1, [r"rank 1 has not arrived", r"ended after 1 s in allreduce.*, because MPIJAX_STALL_ABORT is set: ending the job"]),
    ("receives", 1, [r"waited 1 s in recv float32\[4\] source=1 on all ranks", r"rank 1 is needed: .*it has not communicated"]),
    ("killed", None, []),
    ("raises", 1, [r"\[rank 1\] ValueError: unwell", r"before"]),
    ("says much", 1, [r"x{300000}end\n", r"\[rank 1\] ValueError: unwell\n"]),
    ("exits", 3, [r"before 0", r"before 1", r"rank 1\b.*ending the job"]),
    ("exits, started by mpi4py", None, [r"before 1", r"rank 1 has ended, but rank 0 waits for it in allreduce"]),
    ("leaves", 1, [r"rank 1 has ended, but rank 0 waits for it in allreduce float32\[4\] sum on all ranks at <string>"]),
    ("from anybody", None, [r"ranks 1-2 have ended, but rank 0 waits for one of them in recv float32\[4\] source=any on all ranks"]),
    ("later call", 1, [rf"rank 0 has waited 1 s in allreduce float32\[4\] sum on all ranks at <string>:{1 + LINES + 2} \(<module>\)"]),
    ("starts late", 0, [r"rank 0\] mpijax: rank 0 has waited 1 s for MPI to start at <string>:\d+ \(<module>\)"]),
    ("never starts", None, [
        r"rank 0\] mpijax: rank 0 has waited 1 s for MPI to start at <string>:\d+ \(<module>\)", r'Timeout[\s\S]*File "<string>"',
    ]),
    ("ends before MPI starts", None, [
        r"rank [02] waits for MPI to start at <string>:\d+ \(<module>\), but \d of the 3 processes on this node ended before: ending the job"
        r'|did not call "init" before exiting',
    ]),
    ("one rank indexes", 1, [
        r"rank 1 has ended, but rank 0 waits for it in agreement on the collectives of 'slice' on all ranks at <string>:\d+ \(<module>\)",
    ]),
    ("known, in another order, by MPI", 1, [
        r"at or before its operation number 3: rank 0 ran allreduce float32\[4\] max .* at <string>:\d+ .*rank 1 ran allreduce float32\[4\] min",
    ]),
    ("communicators, in another order", 1, [
        r"ranks do not use the same communicator of all ranks: .*Rank [01]: program.*\n.*allreduce float32\[4\] sum +at <string>",
    ]),
    ("communicators, crossed in a program", 1, [
        r"ranks use the communicators of all ranks in different orders: .*Rank [01]: program.*\n.*allreduce float32\[4\] sum",
    ]),
    ("message after the end", 0, [
        r"rank 1\] mpijax: the program has ended, but a message of rank 0 \(16 bytes\) has not been received: a `send` without",
    ]),
    ("thread at the end", 1, [
        r"rank \d\] mpijax: the program has ended while another of its threads communicates: ending the job",
    ]),
    ("rows and columns", None, [
        r"(rank \d waits for rank \d in allreduce float32\[4\] (sum|max) on ranks \d[-,]\d at <string>:\d+ .*?){4}: deadlock",
    ]),
    ("raises before it starts", 1, [r"\[rank 1\] ValueError: unwell"]),
    ("ends before it starts", 1, [r"rank 1 has ended, but rank 0 waits for it in agreement .* at <string>:\d+"]),
    ("does not start", 1, [
        r"rank 0\] mpijax: rank 0 has waited 1 s for all 2 ranks to start at <string>:\d+ \(<lambda>\)", r"MPIJAX_STALL_ABORT is set, so the job ends",
    ]),
    ("left alone, in sleep", None, [] if is_open_mpi() else [
        r"rank 0\] mpijax: the process of rank 1 has ended without MPI_Finalize: ending the job",
    ]),
    ("left alone, at the end", None, [] if is_open_mpi() else [
        r"rank 0\] mpijax: the program has ended, but the process of another rank ended without MPI_Finalize: ending the job",
    ]),
    ("left alone by Ctrl-C", 130, [
        r"rank 0\] mpijax: interrupted by Ctrl-C in allreduce", *([] if is_open_mpi() else [r"rank 1\] mpijax: the process of rank 0 has ended"]),
    ]),
    ("all exit", 5, []),
    ("interrupted", 130, [r"rank 0\] mpijax: interrupted by Ctrl-C in allreduce"]),
    ("interrupted in a loop", 130, [r"rank 0\] mpijax: interrupted by Ctrl-C in a program that still communicates, in allreduce"]),
    ("callback", 1, [r"\[rank 1\].*bad value"]),
    ("values", 1, [
        r"rank 0 has waited 1 s in multihost_utils.sync_global_devices on all ranks at <string>:\d+ \(<module>\)",
        r"rank 1 has not arrived: .*in allreduce float32\[4\] sum on all ranks at <string>",
    ]),
    ("truncated", 0, [
        r"told: another thread of this rank communicates",
        r"told 1 MPI error in recv on rank 1 \(0 elements to send, 8 to receive\): .*truncate.*\|at <string>:\d+",
        r"told 0 allreduce on rank 0: invalid communicator: it was freed.*\|at <string>:\d+", r"told 1 allreduce",
    ]),
    ("known, in another order", None, [r"(another rank does another operation|different operations)[\s\S]*at <string>:\d+"]),
    ("forked", 0, [
        r"told 1 this process is a fork of rank 1, .*allreduce", "ValueError: in the copy", r"told 1 this process is a fork of rank 1, .*allgather.* at <string>:\d+",
        r"still there[\s\S]*still there",
    ]),
    ("goes on", 0, [
        r"named: \[\]\n[\s\S]*named: \[\]\n",
        r"ValueError: in a thread", r"went on[\s\S]*went on",
        r"told: another thread of this rank communicates", r"at <string>:\d+",
        r"rank 0\] mpijax: the last operations are in .*json",
        r"told 0 rank 0 called MPI.Finalize\(\) .*: allreduce float32\[4\] sum on all ranks at <string>:\d+",
        r"(told 1 .*MPI.Finalize\(\).*\n){4}",
    ]),
]  # fmt: skip
# In the default run: what leaves records, and promises of docs/stalls.md that tests/faults leaves to this file.
OFTEN = (
    "asleep", "exits", "starts late", "communicators, in another order", "left alone by Ctrl-C", "all exit", "values", "truncated",
    "goes on",
)  # fmt: skip


@marked
@pytest.mark.parametrize("name, status, patterns", all_slow_but(OFTEN, EXPECTED, itemgetter(0)))
def test_jobs_end_and_tell(outcomes, name, status, patterns):
    found = outcomes[name]
    assert found.seconds < JOBS[name].limit, found.output
    assert has_status(found.status, status), found.output
    for pattern in patterns:
        assert re.search(pattern, found.output), (pattern, found.output)


@marked
def test_no_job_leaves_a_process_behind(outcomes):
    assert {name: found.left for name, found in outcomes.items() if found.left} == {}


@marked
def test_only_stalls_are_told(outcomes):
    assert "has waited" not in outcomes["goes on"].output + outcomes["all exit"].output


@marked
def test_records(outcomes, folder, capsys):
    """A stall leaves the records of all ranks, which show who waited for whom.

    They are written when the first rank has waited for a second. Another may have begun to wait later.
    """
    files = sorted(map(str, (folder / "records of asleep").glob("mpijax-record-*.json")))
    assert len(files) == 3 and outcomes["asleep"].status == 0
    assert main(["trace", *files, "-o", str(folder / "merged")]) == 0
    told = capsys.readouterr().out
    waited = {int(rank) for rank in re.findall(r"rank ([02]) waited \d{4}\.\d+ ms for rank 1 in", told)}
    assert waited and "rank 1 is still" not in told, told
    events = json.loads((folder / "merged.json").read_text())["traceEvents"]
    assert {e["pid"] for e in events} == {0, 1, 2}
    for rank in waited:
        assert f"rank {rank} is still in allreduce float32[4] sum" in told
        last = [e for e in events if e["pid"] == rank][-1]
        assert last["name"].endswith("(not finished)") and last["args"]["waited for rank"] == 1 and last["dur"] > 5e5
    page = (folder / "merged.html").read_text()
    assert "rank 2, operation" in page and "://" not in page.split("<script>")[0]
    files = list((folder / "records of goes on").glob("*.json"))
    [written] = [json.loads(f.read_text()) for f in files]
    numbers = [o[0] for o in written["operations"]]
    assert written["rank"] == 0 and len(numbers) == 1023 and numbers == list(range(numbers[0], numbers[0] + 1023))
    times = [t for o in written["operations"][:-1] for t in o[4:]]
    assert times == sorted(times) and written["operations"][-1][5] is None
    assert sum(o[3] for o in written["operations"]) == 16 * 1022  # and one agreement, of the last program


@marked
def test_what_python_communicates_is_recorded(outcomes, folder):
    records = [json.loads(f.read_text()) for f in (folder / "records of values").glob("*.json")]
    for r in records:
        labels = [r["sites"][str(o[1])]["label"].removeprefix("multihost_utils.") for o in r["operations"]]
        last = "sync_global_devices" if r["rank"] == 0 else "allreduce float32[4] sum"
        gathered = ["process_allgather", "broadcast_one_to_all", "broadcast_one_to_all", "distributed.should_stop", "split"]
        assert labels == [*gathered, last]
        assert r["operations"][0][3] > 24 and all(o[5] for o in r["operations"][:-1])
    assert records


def test_trace_refuses_what_is_no_record(tmp_path, capsys):
    file = tmp_path / "x.json"
    for content in ("{}", "[", json.dumps({"job": "a", "size": 2, "rank": 0, "written": 0, "operations": [[1]]})):
        file.write_text(content)
        assert main(["trace", str(file)]) == 1
        assert "is not a record of mpijax" in capsys.readouterr().err
    assert main(["trace", str(tmp_path / "absent")]) == 1
    assert main(["dance"]) == 2 and "trace" in capsys.readouterr().err


def test_layout_and_names():
    assert REGION.itemsize == record.REGION_BYTES
    assert [ranges(r) for r in ([], [3], [0, 1, 2, 7, 9, 8])] == ["", "3", "0-2,7-9"]


def test_more_places_than_are_kept():
    """Places beyond those that are kept take the room of earlier ones, whose text is then not shown for them."""
    own = Recorder()
    own.regions = np.zeros(1, REGION)
    group = CommRecord(8, "all ranks", (0,), 0)
    for n in range(record.SITES + 3):
        assert own.site(Site(f"allreduce {n}", "a" * 300, group), 0)[0] == n
    assert own.text_of(own.mine, record.SITES + 1).startswith(f"allreduce {record.SITES + 1} on all ranks at aaa")
    assert own.text_of(own.mine, 1) == "an operation" and own.text_of(own.mine, 5).startswith("allreduce 5 ")
    assert own.site(Site("allreduce 0", "a" * 300, group), 0) == (0, 0)


@pytest.mark.parametrize(
    "name, value, said",
    [
        ("MPIJAX_STALL_SECONDS", "soon", "must be a number of seconds"),
        ("MPIJAX_STALL_ABORT", "30", "MPIJAX_STALL_SECONDS sets the time"),
    ],
)
def test_settings_that_mean_nothing_are_errors(name, value, said, monkeypatch):
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=said):
        watchdog.settings()


@pytest.mark.parametrize("value, abort", [("", False), ("0", False), ("off", False), ("1", True), ("Yes", True)])
def test_words_that_say_whether_a_stall_ends_the_job(value, abort, monkeypatch):
    monkeypatch.setenv("MPIJAX_STALL_ABORT", value)
    assert watchdog.settings()[1] is abort
