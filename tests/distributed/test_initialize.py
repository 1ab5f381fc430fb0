"""`distributed.initialize` without a launcher: real processes on this machine, all cases at once."""

import asyncio
import contextlib
import os
import socket
import stat
import subprocess
import sys
import time

import pytest
from once import computed_once, shared_folder
from quickly import slow

from mpijax import distributed
from mpijax.distributed import bootstrap, handshake, launchers, server
from mpijax.runtime.mpi import mpi_start

pytestmark = pytest.mark.skipif(launchers.under_launcher(), reason="starts jobs itself")

START = """
import os, signal, sys, time
import mpijax
from mpijax.distributed import bootstrap
from mpijax.runtime.mpi import mpi_start
folder, came, port, size, rank = sys.argv[1], *map(int, sys.argv[2:])
open(f"{folder}/here{rank}", "w").close()
while len([name for name in os.listdir(folder) if name.startswith("here")]) < came:
    time.sleep(0.02)  # Python starts slowly where many start: no matter of the time-outs below
def join(seconds=60, **more):
    mpijax.distributed.initialize(f"localhost:{port}", size, rank, initialization_timeout=seconds, **more)
def total():
    from mpijax import mpi, numpy as jnp
    return mpi.allreduce(jnp.arange(3.) + mpijax.process_index(), "SUM").tolist()
"""

# name: (ranks that come, ranks expected, program)
CASES = {
    "three": (3, 3, """
join(coordinator_bind_address=f"0.0.0.0:{port}")
print(mpijax.process_count(), mpijax.device_count(), total())
try:
    join()
except RuntimeError as error:
    print(error)
mpijax.distributed.shutdown()
join()
print("again", mpijax.distributed.is_initialized(), "PMI_FD" in os.environ)
"""),
    "missing": (2, 3, "join(3)"),
    "killed": (2, 2, "join(); total()\nif rank: os.kill(os.getpid(), signal.SIGKILL)\ntotal()"),
    "raises": (2, 2, "join(); total()\nif rank: raise ValueError('on rank 1')\ntotal()"),
    "coordinator killed": (2, 2, """
def is_ours(process):
    try:
        command, settings = (open(f"/proc/{process}/{name}").read() for name in ("cmdline", "environ"))
    except OSError:
        return False
    return "mpijax.distributed.server" in command and f"CASE_FOLDER={folder}" in settings
os.environ["CASE_FOLDER"] = folder
join()
total()
if rank == 0:
    [coordinator] = [int(p) for p in os.listdir("/proc") if p.isdigit() and is_ours(p)]
    os.kill(coordinator, signal.SIGKILL)
time.sleep(20)
total()
"""),
}  # fmt: skip
SLOW = ("raises",)  # by default a rank dies only by a signal
# What an allocation's shell and a finished job leave behind.
STRAY = {"PMI_SIZE": "7", "PMI_RANK": "3", "SLURM_PROCID": "3", "SLURM_NTASKS": "9", "SLURM_STEP_NUM_TASKS": "9"}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def environment(**settings):
    return {**launchers.outside(os.environ), **settings}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, request):
    """{case: [(status, output, seconds) per rank]}."""
    folder = shared_folder(tmp_path_factory, "initialize")
    cases = CASES if request.config.getoption("--slow") else {name: case for name, case in CASES.items() if name not in SLOW}
    return computed_once(folder, lambda: run_cases(folder, cases))


def run_cases(shared, cases):
    running = {}
    begin = time.monotonic()
    for case, (ranks, size, program) in cases.items():
        folder = shared / case
        folder.mkdir()
        numbers = [str(number) for number in (ranks, free_port(), size)]
        command = [sys.executable, "-c", START + program, str(folder), *numbers]
        for rank in range(ranks):
            file = (folder / f"output{rank}").open("w+")
            process = subprocess.Popen(
                [*command, str(rank)], env=environment(**STRAY), stdout=file, stderr=subprocess.STDOUT
            )
            running[case, rank] = process, file
    found = {case: [] for case in cases}
    ends = {}
    while len(ends) < len(running) and time.monotonic() - begin < 200:
        for key, (process, _) in running.items():
            if key not in ends and process.poll() is not None:
                ends[key] = time.monotonic() - begin
        time.sleep(0.05)
    for key, (process, file) in running.items():
        if key not in ends:
            process.kill()
        file.seek(0)
        found[key[0]].append((process.wait(), file.read(), ends.get(key, float("inf"))))
        file.close()
    return found


def test_processes_become_ranks_once(outcomes):
    """Also in a process that has variables of other jobs. A second call is an error; after `shutdown`, a check."""
    expected = "3 3 [3.0, 6.0, 9.0]\ndistributed.initialize should only be called once.\nagain True False\n"
    assert [(status, output) for status, output, _ in outcomes["three"]] == [(0, expected)] * 3


def test_a_missing_process_is_named_to_all_that_came(outcomes):
    for status, output, seconds in outcomes["missing"]:
        assert status == 1 and seconds < 100
        assert "process 2 of 3 did not join" in output and "within 3 s" in output


def test_a_coordinator_that_dies_ends_all(outcomes):
    """MPI could not be left any more (MPICH crashes), and nobody would tell the ranks of one that fails."""
    for status, output, seconds in outcomes["coordinator killed"]:
        assert status == 1 and "the coordinator (a process that process 0 started) was killed" in output and seconds < 20


@pytest.mark.parametrize("case", ["killed", *slow(*SLOW)])
def test_a_rank_that_dies_ends_the_others(outcomes, case):
    (status0, output0, seconds0), (status1, output1, _) = outcomes[case]
    assert status0 == 1 and "rank 1 ended the job" in output0 and seconds0 < 100
    assert status1 == -9 if case == "killed" else status1 == 1 and "ValueError: on rank 1" in output1


def test_nobody_listens():
    with pytest.raises(RuntimeError, match=r"Process 1 of 2 could not reach process 0 at 127.0.0.1.*Connection refused"):
        bootstrap.connect(f"127.0.0.1:{free_port()}", None, 2, 1, 0.5)


def test_the_port_is_in_use():
    with socket.create_server(("127.0.0.1", 0)) as server:
        with pytest.raises(RuntimeError, match="process 0 cannot serve .*in use.*Choose a free port"):
            bootstrap.connect(f"127.0.0.1:{server.getsockname()[1]}", None, 2, 0, 0.5)


def test_a_coordinator_without_the_secret_is_no_coordinator():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"mpijax 1 abcd\nwelcome 1234\n")
        with pytest.raises(handshake.Refused, match="does not have the secret of this job"):
            handshake.join(ours, b"secret", "pmi", 0, 2, time.monotonic() + 2)
        assert b"secret" not in theirs.recv(4096)


@pytest.fixture(scope="module")
def coordinator():
    """The address of one that waits 30 s for two processes with the secret b"secret"; it ends with its last guest."""
    with _coordinator() as address:
        yield address


@contextlib.contextmanager
def _coordinator(files=4096):
    """files: how many it may have open."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.set_inheritable(True)
        descriptor = listener.fileno()
        command = [sys.executable, "-m", "mpijax.distributed.server", str(descriptor), "2", "30"]
        subprocess.run(
            ["prlimit", f"--nofile={files}:{files}", *command],
            input=b"secret", pass_fds=[descriptor], env=environment(), check=True, timeout=20,
        )  # fmt: skip
        yield listener.getsockname()


@pytest.mark.parametrize("said", ["GET / HTTP/1.0\r\n", "join pmi 0 2 x y\n", "join pmi\n", "\n", "x" * 100_000 + "\n"])
def test_strangers_are_refused(coordinator, said):
    with socket.create_connection(coordinator, timeout=10) as stranger:
        file = stranger.makefile()
        assert file.readline().startswith("mpijax 1 ")
        stranger.sendall(said.encode())
        assert file.readline().startswith("refused ")


@pytest.mark.parametrize("files", [128, 400])
def test_idle_strangers_delay_nobody(files):
    with contextlib.ExitStack() as open_ones:
        address = open_ones.enter_context(_coordinator(files))
        for _ in range(1000):
            open_ones.enter_context(socket.create_connection(address, timeout=10))
        began = time.monotonic()
        with socket.create_connection(address, timeout=10) as connection:
            with pytest.raises(handshake.Refused, match=r"process_id must be in \[0, 2\), got 7"):
                handshake.join(connection, b"secret", "pmi", 7, 2, time.monotonic() + 30)
        assert time.monotonic() - began < 4


def test_strangers_leave_no_reports(caplog):
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as stranger:
        listener.setblocking(False)
        asyncio.run(server.Coordinator(2, b"secret").run(listener, 0.3))
        assert stranger.recv(100).startswith(b"mpijax 1 ")
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize(
    "secret, role, rank, count, reason",
    [
        (b"other", "pmi", 0, 2, "the secret differs from that of process 0"),
        (b"secret", "pmi", 0, 3, "process 0 expects 2 processes, this one 3"),
        (b"secret", "pmi", 2, 2, r"process_id must be in \[0, 2\), got 2"),
        (b"secret", "other", 0, 2, r"process_id must be in \[0, 2\), got 0"),
    ],
)
def test_who_does_not_belong_is_told_why(coordinator, secret, role, rank, count, reason):
    with socket.create_connection(coordinator, timeout=10) as connection:
        with pytest.raises(handshake.Refused, match=reason):
            handshake.join(connection, secret, role, rank, count, time.monotonic() + 10)


def test_a_number_is_taken_once(coordinator):
    limit = time.monotonic() + 10
    with socket.create_connection(coordinator) as first, socket.create_connection(coordinator) as second:
        handshake.join(first, b"secret", "life", 1, 2, limit)
        with pytest.raises(handshake.Refused, match="another process has process_id=1"):
            handshake.join(second, b"secret", "life", 1, 2, limit)


def test_the_wrong_secret_is_an_error_of_initialize(coordinator, monkeypatch):
    monkeypatch.setenv("MPIJAX_SECRET", "wrong")
    with pytest.raises(RuntimeError, match="Process 1 could not join the job.*secret differs.*MPIJAX_SECRET"):
        bootstrap.connect("{}:{}".format(*coordinator), None, 2, 1, 10)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"coordinator_address": "localhost"}, ValueError, "host:port"),
        ({"num_processes": None}, ValueError, "Number of processes must be defined"),
        ({"process_id": None}, ValueError, "process id of this process must be defined"),
        ({"process_id": 2}, ValueError, r"process_id must be in \[0, num_processes\)"),
        ({"process_id": "0"}, TypeError, "process_id must be an integer"),
    ],
)
def test_incomplete_arguments(monkeypatch, arguments, error, message):
    monkeypatch.setattr(distributed, "_mpi_decides", lambda: False)
    with pytest.raises(error, match=message):
        distributed.initialize(
            **{"coordinator_address": "127.0.0.1:1", "num_processes": 2, "process_id": 1} | arguments
        )


def test_a_library_that_needs_its_launcher_is_named(monkeypatch):
    monkeypatch.setenv("MPIJAX_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setenv("PMI_SIZE", "2")
    with pytest.raises(RuntimeError, match=r"Open MPI v5.*does not support PMI-1.*mpirun of that library"):
        mpi_start._check_launcher(1, "Open MPI v5.0.8\nmore")


def test_the_secret_of_a_home_directory_is_its_owners_alone(monkeypatch, tmp_path):
    monkeypatch.delenv("MPIJAX_SECRET", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    secret = handshake.job_secret()
    assert len(secret) == 64 and handshake.job_secret() == secret
    (file,) = (tmp_path / "mpijax").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    monkeypatch.setenv("MPIJAX_SECRET", " ")
    with pytest.raises(ValueError, match="empty"):
        handshake.job_secret()


def test_a_job_of_one_process_has_a_client_where_it_names_a_coordinator():
    """Orbax's tests need one."""
    program = """
import jax
from jax._src.distributed import global_state
assert global_state.client is None
jax.distributed.initialize("localhost:1", num_processes=1, process_id=0)
global_state.client.key_value_set("a", "b")
global_state.client.wait_at_barrier("here", 1000)
print(global_state.client.key_value_try_get("a"))
"""
    done = subprocess.run(
        [sys.executable, "-m", "mpijax.as_jax", "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.strip(), done.returncode) == ("b", 0), done.stderr
