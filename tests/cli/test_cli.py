"""The command line: jobs by ``mpijax run``, merged lines, batch scripts, findings, figures."""

import importlib
import json
import mmap
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launching import MPIRUN, PATHS, UNDER_LAUNCHER, check_script, mpirun

from mpijax.cli import COMMANDS, bench, checks, cores, doctor, launcher, main, submit
from mpijax.cli.checks import Finding
from mpijax.cli.launcher import Launcher, MpiLibrary, NoLauncher
from mpijax.cli.run import Job, split_program, without_interpreter
from mpijax.distributed.lines import Merger, Screen, ranges
from mpijax.runtime.machine import leftovers

ROOT = Path(__file__).parents[2]
starts_jobs = pytest.mark.skipif(MPIRUN is None or UNDER_LAUNCHER, reason="starts ranks by mpirun")


def command(*words):
    return [sys.executable, "-m", "mpijax", *map(str, words)]


def mpijax(*words, **settings):
    env = launcher.clean_environment() | {"PYTHONPATH": PATHS} | settings
    return subprocess.run(command(*words), capture_output=True, text=True, env=env, timeout=90)


# ---- lines ----


@pytest.mark.parametrize(
    ("numbers", "text"), [([0], "0"), ([0, 1, 2, 3], "0-3"), ([5, 0, 1, 3], "0-1,3,5"), ([2, 4], "2,4")]
)
def test_ranges(numbers, text):
    assert ranges(numbers) == text


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def merged(*events, ranks=3):
    """What comes out of (rank, data) and numbers, which are seconds that pass."""
    out, clock = [], Clock()
    merger = Merger(ranks, out.append, clock)
    for event in events:
        if isinstance(event, float):
            clock.now += event
            merger.flush()
        else:
            merger.feed(*event)
    merger.flush(everything=True)
    return b"".join(out).decode().splitlines()


@pytest.mark.parametrize(
    ("events", "lines"),
    [
        ([(0, b"a\n"), (2, b"a\n"), (1, b"a\n")], ["[0-2] a"]),
        ([(0, b"a\n"), 1.0, (1, b"a\n")], ["[0] a", "[1] a"]),
        # A rank's own order stays, and a line twice is two lines.
        ([(0, b"a\nb\n"), (1, b"b\na\n")], ["[0] a", "[0-1] b", "[1] a"]),
        ([(0, b"a\na\n"), (1, b"a\na\n")], ["[0-1] a", "[0-1] a"]),
        # Pieces of lines, a line without an end, ends of other kinds.
        ([(0, b"he"), (1, b"x\n"), (0, b"llo\nrest")], ["[1] x", "[0] hello", "[0] rest"]),
        ([(0, b"10%\r20%\r\n")], ["[0] 10%", "[0] 20%"]),
        ([(0, "é\n".encode())], ["[0] é"]),
    ],
)
def test_lines_are_merged(events, lines):
    assert merged(*events) == lines


def test_reports_of_ranks_are_one():
    """A report by mpijax names its rank, as the mark of `mpijax run` does; it waits longer for the others' report."""
    events = [(0, b"[rank 0] Error\n"), 0.9, (2, b"[rank 2] Error\n"), (1, b"[rank 1] Error\n[rank 7] x\n")]
    assert merged(*events) == ["[0-2] Error", "[1] [rank 7] x"]
    assert merged((0, b"[rank 0] Error\n"), 1.1, (1, b"[rank 1] Error\n")) == ["[0] Error", "[1] Error"]


def shown(*events, ranks=2, columns=20):
    """The pieces that a terminal gets."""
    out, clock = [], Clock()
    merger = Merger(ranks, out.append, clock, Screen(lambda: columns))
    for event in events:
        if isinstance(event, float):
            clock.now += event
            merger.flush()
        else:
            merger.feed(*event)
    merger.flush(everything=True)
    return [piece.decode().replace("\r\x1b[K", "<") for piece in out]


@pytest.mark.parametrize(
    ("events", "pieces"),
    [
        # A bar of one rank moves as it is written; the last state stays.
        ([(0, b"\r10%"), (0, b"\r20%"), (0, b"\n")], ["[0] 10%", "<[0] 20%", "<[0] 20%\n"]),
        # Bars of ranks that are equal are one.
        ([(0, b"\r1"), (1, b"\r1"), (0, b"\r2"), (1, b"\r2")], ["[0] 1", "<[0-1] 1", "<[0] 2", "<[0-1] 2", "<[0-1] 2\n"]),
        # A line of another rank goes above the unfinished one.
        ([(0, b"wait"), (1, b"hello\n"), 0.3, (0, b" done\n")], ["[0] wait", "<[1] hello\n[0] wait", "<[0] wait done", "<[0] wait done\n"]),
        # A finished line shows while it waits for other ranks.
        ([(0, b"a\n"), (1, b"a\n")], ["[0] a", "<[0-1] a\n"]),
        # One row only, or it could not be erased.
        ([(0, b"x" * 40)], ["[0] " + "x" * 15, "<[0] " + "x" * 40 + "\n"]),
    ],
)
def test_a_terminal_shows_lines_as_they_grow(events, pieces):
    assert shown(*events) == pieces


def test_errors_do_not_write_into_an_unfinished_line():
    pieces, screen = [], Screen(lambda: 80)
    out, err = (Merger(1, pieces.append, Clock(), screen) for _ in range(2))
    err.feed(0, b"\r50%")
    out.feed(0, b"a line\n")
    assert b"".join(pieces) == b"[0] 50%\r\x1b[K[0] a line\n[0] 50%"


def test_an_old_bar_takes_no_memory():
    merger = Merger(1, lambda _: None, Clock(), Screen(lambda: 80))
    for i in range(100):
        merger.feed(0, b"\r%d" % i)
    assert merger._rest == [b"99"]


def test_a_complete_line_does_not_wait():
    out = []
    merger = Merger(2, out.append, Clock())
    merger.feed(0, b"a\n")
    assert out == []
    merger.feed(1, b"a\n")
    assert out == [b"[0-1] a\n"]


# ---- the launcher ----


def library(version, files=()):
    return MpiLibrary(version, tuple(map(str, files)), (4, 1), (-1, -1), "MPI.so", "4.1")


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def mpis(tmp_path, monkeypatch):
    """An MPICH and an Open MPI, of which only the launchers' words are there."""
    script(tmp_path / "mpich/bin/mpirun", 'echo "HYDRA build details:"; echo "    Version:    4.2.1"')
    script(tmp_path / "open/bin/mpirun", 'echo "mpirun (Open MPI) 5.0.3"')
    monkeypatch.setenv("PATH", f"{tmp_path}/open/bin:{tmp_path}/mpich/bin:/usr/bin:/bin")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python/bin/python"))
    for name in ("MPIJAX_LAUNCHER", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_launcher_of_the_library_is_found(mpis):
    hydra = launcher.find_launcher(library("MPICH Version: 4.2.1"))
    assert (hydra.path, hydra.family, hydra.version) == (f"{mpis}/mpich/bin/mpirun", "hydra", "Hydra 4.2.1")
    assert launcher.find_launcher(library("Open MPI v5.0.3")).path == f"{mpis}/open/bin/mpirun"
    # The one beside the library comes first.
    script(mpis / "mine/bin/mpiexec", 'echo "mpirun (Open MPI) 4.1"')
    assert launcher.find_launcher(library("Open MPI v4.1", [mpis / "mine/lib/libmpi.so"])).path.startswith(
        f"{mpis}/mine"
    )


def test_wrong_launcher_is_told(mpis, monkeypatch):
    with pytest.raises(NoLauncher, match=r"Open MPI\) 5.0.3\) does not belong to MPICH Version: 4.2.1"):
        launcher.find_launcher(library("MPICH Version: 4.2.1"), f"{mpis}/open/bin/mpirun")
    with pytest.raises(NoLauncher, match="launcher 'nothere' not found"):
        launcher.find_launcher(library("MPICH Version: 4.2.1"), "nothere")
    monkeypatch.setenv("PATH", f"{mpis}/open/bin")
    with pytest.raises(NoLauncher, match="of other MPIs: .*open/bin/mpirun.\nAdd its bin folder"):
        launcher.find_launcher(library("MPICH Version: 4.2.1"))


def test_settings_of_users_reach_the_ranks(monkeypatch):
    for variable in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("OMPI_MCA_osc", "sm")
    assert launcher.clean_environment()["OMPI_MCA_osc"] == "sm"
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")  # then a launcher may have set it
    assert not {"OMPI_MCA_osc", "OMPI_COMM_WORLD_RANK"} & launcher.clean_environment().keys()


def test_commands_of_launchers(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert Launcher("m", "hydra", "").command(4, 2) == ["m", "-n", "4"]
    assert Launcher("m", "openmpi", "").command(4, 2) == ["m", "--bind-to", "none", "--oversubscribe", "-n", "4"]
    assert "--mpi=pmix" in Launcher("srun", "srun", "pmix").command(2, 2)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "--allow-run-as-root" in Launcher("m", "openmpi", "").command(2, 2)


# ---- placement ----


@pytest.mark.parametrize(
    ("job", "count", "quota", "expected"),
    [
        (Job(["a"], 2), 4, 4.0, ([[0, 1], [2, 3]], 2)),
        (Job(["a"], 3), 4, 4.0, ([[0], [1], [2]], 1)),
        (Job(["a"], 8), 4, 4.0, ([], 1)),  # more ranks than cores: none is pinned
        (Job(["a"], 2), 8, 2.0, ([], 1)),  # a quota: others use these cores too
        (Job(["a"], 2, bind="none"), 4, 4.0, ([], 2)),
        (Job(["a"], 2, threads=1), 4, 4.0, ([[0, 1], [2, 3]], 1)),
        (Job(["a"], 2, bind="core"), 8, 2.0, ([[0], [1]], 1)),
    ],
)
def test_placement(job, count, quota, expected, monkeypatch):
    monkeypatch.setattr(cores, "physical", lambda: [[i] for i in range(count)])
    monkeypatch.setattr(cores, "quota", lambda: quota)
    monkeypatch.setattr(cores, "several_machines", lambda: False)
    assert job.placement() == expected


def test_more_ranks_than_cores_cannot_be_pinned(monkeypatch):
    monkeypatch.setattr(cores, "physical", lambda: [[0], [1]])
    with pytest.raises(NoLauncher, match="3 ranks cannot be pinned to 2 cores"):
        Job(["a"], 3, bind="core").placement()


def test_hardware_threads_are_one_core(tmp_path, monkeypatch):
    for cpu, core in enumerate([0, 1, 0, 1]):
        folder = tmp_path / f"cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text("0\n")
        (folder / "core_id").write_text(f"{core}\n")
    monkeypatch.setattr(cores, "affinity", lambda: frozenset(range(4)))
    assert cores.physical(str(tmp_path)) == [[0, 2], [1, 3]]


@pytest.mark.parametrize(
    ("words", "options", "program"),
    [
        ("-n 4 a.py -n 5", "-n 4", "a.py -n 5"),
        ("-n 4 --bind none -m mod -x", "-n 4 --bind none", "-m mod -x"),
        ("--no-prefix -c code", "--no-prefix", "-c code"),
        ("-n 2 -- a.py --", "-n 2", "a.py --"),
    ],
)
def test_program_and_options_are_told_apart(words, options, program):
    assert split_program(words.split()) == (options.split(), program.split())


@pytest.mark.parametrize(
    ("words", "program"),
    [
        ("a.py python", "a.py python"),
        ("-m python", "-m python"),
        ("python -O a.py", "-O a.py"),
        ("python3.11 -c code", "-c code"),
        (f"{Path(sys.executable).parent}/python -m mod", "-m mod"),
        ("pythonic.py", "pythonic.py"),
    ],
)
def test_a_python_before_the_program_is_this_one(words, program):
    assert without_interpreter(words.split()) == program.split()


# ---- mpijax run ----

RANK = 'import os, sys, time; r = int(os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK")))\n'


@starts_jobs
def test_run_communicates_and_merges(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, numpy as np, mpijax as jax\nfrom mpijax import mpi\n"
        "r = jax.process_index()\nprint('sum', int(mpi.allreduce(np.int32(r + 1), 'SUM')), sys.argv[1:])\n"
        "print('I am', r)\nprint('oops', file=sys.stderr)\nsys.exit(7 * r)"
    )
    ran = mpijax("run", "-n", 2, program, "--flag", "x")
    assert ran.returncode == 7
    assert "[0-1] sum 3 ['--flag', 'x']" in ran.stdout.splitlines()
    assert {"[0] I am 0", "[1] I am 1"} <= set(ran.stdout.splitlines())
    assert "[0-1] oops" in ran.stderr and "rank 1 failed first, with status 7" in ran.stderr


@starts_jobs
def test_run_names_the_rank_that_others_waited_for():
    body = (
        "import numpy as np, mpijax as jax\nfrom mpijax import mpi\nx = np.int32(1)\n"
        "mpi.allreduce(x, 'SUM')\nif r == 1: sys.exit(3)\nmpi.allreduce(x, 'SUM')"
    )
    ran = mpijax("run", "-n", 2, "-c", RANK + body)
    assert ran.returncode == 3 and "rank 1 has ended, but rank 0 waits for it" in ran.stderr
    assert "rank 1 failed first, with status 3 (then rank 0)" in ran.stderr, ran.stderr


@starts_jobs
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("time.sleep(0.3 * (1 - r)); sys.exit(3 + r)", 4),  # rank 1 is first
        ("os.kill(os.getpid(), 9) if r == 1 else time.sleep(0.2)", 137),
        ("pass", 0),
    ],
)
@pytest.mark.one_in(3)
def test_status_of_the_first_that_fails(body, status):
    ran = mpijax("run", "-n", 2, "-c", RANK + body)
    assert ran.returncode == status
    assert status != 137 or "rank 1 failed first, with status 137 (SIGKILL)" in ran.stderr


@starts_jobs
@pytest.mark.slow  # by default tests above read the words
def test_module_without_prefix_and_variables_of_a_launcher():
    ran = mpijax("run", "-n", 2, "--no-prefix", "-m", "this", PMI_FD="9", PMI_RANK="5", PMI_SIZE="9")
    assert ran.returncode == 0 and ran.stdout.count("Beautiful is better than ugly.\n") == 2
    assert "[0" not in ran.stdout


@starts_jobs
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.one_in(2)
def test_signals_reach_the_program(number):
    body = RANK + (
        "import signal\nsignal.signal(signal.SIGTERM, signal.default_int_handler)\n"
        "try:\n    print('ready'); time.sleep(60)\nexcept KeyboardInterrupt: print('told'); sys.exit(5)"
    )
    env = launcher.clean_environment() | {"PYTHONPATH": PATHS}
    job = subprocess.Popen(command("run", "-n", 2, "-c", body), stdout=subprocess.PIPE, text=True, env=env)
    assert job.stdout.readline() == "[0-1] ready\n"
    began = time.monotonic()
    job.send_signal(number)
    assert job.communicate(timeout=30)[0] == "[0-1] told\n"
    assert job.returncode == 5 and time.monotonic() - began < 5


@starts_jobs
def test_ranks_end_with_the_one_that_started_them(tmp_path):
    env = launcher.clean_environment() | {"PYTHONPATH": PATHS, "TMPDIR": str(tmp_path)}
    body = RANK + "print(os.getpid(), flush=True); time.sleep(60)"
    job = subprocess.Popen(command("run", "-n", 2, "-c", body), stdout=subprocess.PIPE, text=True, env=env)
    pids = [int(job.stdout.readline().split()[1]) for _ in range(2)]
    job.kill()
    job.communicate()
    limit = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < limit, "ranks are left behind"
        time.sleep(0.05)


@starts_jobs
def test_output_that_nobody_reads_ends_the_job():
    env = launcher.clean_environment() | {"PYTHONPATH": PATHS}
    body = RANK + "while True: print('more'); time.sleep(0.05)"
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    job = subprocess.Popen(command("run", "-n", 2, "-c", body), text=True, env=env, **pipe)
    assert job.stdout.readline().endswith("more\n")
    job.stdout.close()
    said = job.stderr.read()
    assert job.wait(30) == 128 + signal.SIGPIPE and "Traceback" not in said and "failed first" not in said


@starts_jobs
def test_streams_that_are_closed(tmp_path):
    """What the ranks write to standard output goes nowhere, and not into another file of the same number."""
    told = tmp_path / "told"
    body = RANK + "print('lost'); sys.stderr.write('kept\\n')"
    words = shlex.join(command("run", "-n", 2, "-c", body))
    env = launcher.clean_environment() | {"PYTHONPATH": PATHS}
    ran = subprocess.run(["bash", "-c", f"{words} <&- >&- 2> {told}"], env=env, timeout=60)
    assert ran.returncode == 0 and told.read_text() == "[0-1] kept\n"


@starts_jobs
def test_ranks_are_pinned_apart():
    if len(cores.physical()) < 2:
        pytest.skip("one core")
    body = RANK + "print(sorted(os.sched_getaffinity(0)), os.environ['MPIJAX_NUM_THREADS'])"
    ran = mpijax("run", "-n", 2, "--bind", "core", "-c", body)
    masks = dict(re.findall(r"^\[(\d)\] \[([\d, ]+)\]", ran.stdout, re.MULTILINE))
    assert set(masks) == {"0", "1"}
    assert not set(masks["0"].split(", ")) & set(masks["1"].split(", "))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "-n", "2"], "expected a program"),
        (["run", "-n", "0", "-c", "pass"], "must be at least 1"),
        (["run", "--restart", "-1", "-c", "pass"], "got -1"),
        (["run", "-n", "2", "nothere.py"], "file 'nothere.py' not found"),
        (["run", "-n", "2", "python"], "expected a program"),
        (["run", "-n", "2", "/elsewhere/python", "a.py"], "To run /elsewhere/python"),
        (["bench", "--sizes", "1Q"], "expected sizes such as"),
        (["bench", "--operations", "gossip"], "unknown operations gossip"),
        (["doctor", "-n", "1"], "at least 2 ranks"),
        (["submit", "--scheduler", "slurm", "--nodes", "0", "--ranks-per-node", "1", "x.py"], "got '0'"),
        (["submit", "--scheduler", "slurm", "--nodes", "1", "--ranks-per-node", "1", "x.py"], "file 'x.py' not found"),
    ],
)
def test_wrong_arguments(words, said, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_command_that_is_not_there(capsys):
    assert main(["dance"]) == 2
    assert "unknown command 'dance'. The commands are run, bench, doctor, submit, explain, profile, predict, trace, init, checkpoint, completion" in capsys.readouterr().err


def test_commands_are_light():
    code = (
        "import sys, mpijax.cli.run, mpijax.cli.submit, mpijax.cli.bench, mpijax.cli.doctor\n"
        "print([m for m in ('mpi4py', 'numba', 'llvmlite', 'matplotlib', 'scipy') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ran.stdout.strip() == "[]"


@starts_jobs
def test_a_terminal_shows_text_without_its_newline():
    import pty

    leader, follower = pty.openpty()
    body = RANK + "print('half', end='', flush=True); sys.stdin.readline(); print(' whole')"
    env = launcher.clean_environment() | {"PYTHONPATH": PATHS, "TERM": "xterm"}
    streams = {"stdin": subprocess.PIPE, "stdout": follower, "stderr": follower}
    job = subprocess.Popen(command("run", "-np", 1, "--prefix", "-c", body), env=env, **streams)
    os.close(follower)
    said = b""
    while b"half" not in said:
        said += os.read(leader, 1000)
    job.stdin.close()
    assert b"whole" not in said and job.wait(30) == 0
    assert b"[0] half whole\r\n" in os.read(leader, 1000)
    os.close(leader)


@starts_jobs
def test_an_error_of_all_ranks_is_shown_once():
    ran = mpijax("run", "--np", 2, "-c", "import mpijax\nmpijax.process_index()\nraise ValueError('wrong')")
    assert ran.returncode == 1
    [line] = [line for line in ran.stderr.splitlines() if "ValueError: " in line]
    assert re.fullmatch(r"\[(0-1|0|1)\] ValueError: wrong", line)  # MPI may end a rank before it says so


@starts_jobs
@pytest.mark.parametrize("end", [pytest.param("os.kill(os.getpid(), 11)", marks=pytest.mark.slow), "os._exit(3)"])
def test_a_job_ends_soon_after_a_rank_and_says_who_waits(end, tmp_path):
    """mpirun ends such jobs at once; here the others have a moment to say where they wait."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys, time, numpy as np, mpijax as jax\nfrom mpijax import mpi\n"
        "mpi.allreduce(np.int32(1), 'SUM')\n"
        f"if jax.process_index():\n    open({str(tmp_path / 'when')!r}, 'w').write(repr(time.time()))\n    {end}\n"
        "mpi.allreduce(np.int32(1), 'SUM')\n"
    )
    ran = mpijax("run", "-n", 2, program)
    took = time.time() - float((tmp_path / "when").read_text())
    assert ran.returncode and "rank 1 has ended, but rank 0 waits for it in allreduce" in ran.stderr
    assert took < 3  # 0.8 s on a machine at rest; it was 6 s


# ---- all commands ----


def test_version(capsys):
    from mpijax.version import __version__

    assert main(["--version"]) == 0 and capsys.readouterr().out == f"mpijax {__version__}\n"


def test_output_that_nobody_reads():
    words = shlex.join(command("--help"))
    ran = subprocess.run(
        ["bash", "-c", f"{words} | true; exit ${{PIPESTATUS[0]}}"], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert ran.stderr == "" and ran.returncode in (0, 128 + signal.SIGPIPE)


def test_output_that_is_cut_off(monkeypatch):
    def cut_off(*_):
        raise BrokenPipeError

    monkeypatch.setattr("mpijax.cli._run", cut_off)
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    assert main(["doctor"]) == 128 + signal.SIGPIPE


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_is_explained_on_a_page(name):
    pages = "".join((ROOT / "docs" / f"{page}.md").read_text() for page in ("launching", "predict", "profiling", "stalls"))
    module = importlib.import_module(COMMANDS[name][0])
    options = [option for action in module.parser()._actions for option in action.option_strings]
    assert [o for o in options if o not in ("-h", "--help") and not re.search(rf"`[^`\n]*{re.escape(o)}\b", pages)] == []
    assert all(action.help for action in module.parser()._actions)


def test_trace_for_programs(tmp_path, capsys):
    """Two ranks in one allreduce, to which rank 1 comes 3 s late."""
    site = {"label": "allreduce", "line": "model.py:3", "peers": None, "sequence": 7, "ranks": [0, 1], "group": "all"}
    for rank, begin in ((0, 0), (1, 3_000_000_000)):
        operations = [[0, 5, 0, 16, begin, 3_000_001_000]]
        record = {"job": "j", "size": 2, "rank": rank, "written": 4_000_000_000, "sites": {"5": site}, "operations": operations, "kernels": []}
        (tmp_path / f"{rank}.json").write_text(json.dumps(record))
    files = [str(tmp_path / f"{rank}.json") for rank in (0, 1)]
    assert main(["trace", *files, "--output", str(tmp_path / "merged"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["waits"] == [{"rank": 0, "late": 1, "seconds": 3.0, "operations": 1}]
    assert told["ranks"] == [0, 1] and told["unfinished"] == [] and told["lines"][0]["line"] == "model.py:3"
    assert Path(told["trace"]).exists() and Path(told["page"]).exists()


def _message_records(folder, name="model.py", kernels=()):
    """Rank 0 sends to rank 1, which sends back; both compute in between."""
    def site(label, peers):
        return {"label": label, "line": f"/home/{name}:3 (f)", "peers": peers, "sequence": 8, "ranks": [0, 1], "group": "all"}

    sites = [{"1": site("send", [1]), "2": site("recv", [1])}, {"1": site("recv", [0]), "2": site("send", [0])}]
    times = [[(0, 1000), (2000, 9000)], [(500, 1500), (6000, 7000)]]
    for rank in (0, 1):
        operations = [[i + 1, i + 1, 0, 2048, *times[rank][i]] for i in (0, 1)]
        record = {"job": "j", "size": 2, "rank": rank, "written": 10_000, "sites": sites[rank], "operations": operations, "kernels": list(kernels)}
        (folder / f"{rank}.json").write_text(json.dumps(record))
    return [str(folder / f"{rank}.json") for rank in (0, 1)]


def _rows_of(page, name):
    return json.loads(re.search(rf"const {name} = (\[.*?\]);", page)[1])


def test_trace_draws_messages_and_what_is_between_operations(tmp_path, capsys):
    assert main(["trace", *_message_records(tmp_path), "--output", str(tmp_path / "merged")]) == 0
    page = (tmp_path / "merged.html").read_text()
    assert _rows_of(page, "arrows") == [[0, 0.0, 1, 1.5], [1, 6.0, 0, 9.0]]
    rows = _rows_of(page, "rows")
    assert [(r[0], r[1], r[3]) for r in rows if not r[6]] == [(0, 1.0, 1.0), (1, 1.5, 4.5)]
    assert {r[4] for r in rows} == {"model.py:3", "send model.py:3", "recv model.py:3"}
    texts = [r[5] for r in rows]
    assert any(text.startswith("rank 0, operation 1: send on all, 2.05 kB, 1 µs") for text in texts)
    assert "rank 1, 4.5 µs of computing between recv model.py:3 and send model.py:3" in texts
    assert 'rgba(74,126,187,1.00)">2.05 kB</td>' in page
    flows = [e for e in json.loads((tmp_path / "merged.json").read_text())["traceEvents"] if e["ph"] in "sf"]
    assert [(e["ph"], e["pid"], e["ts"], e["id"]) for e in flows] == [("s", 0, 0.0, 0), ("f", 1, 1.5, 0), ("s", 1, 6.0, 1), ("f", 0, 9.0, 1)]


def test_trace_draws_kernels_between_operations(tmp_path, capsys):
    kernels = [["add_mul", "/home/model.py:7 (f)", 1600, 1900], ["gemm 2x2x2", "/home/model.py:8 (f)", 1900, 1950], ["copy", "", 1960, 1970]]
    assert main(["trace", *_message_records(tmp_path, kernels=kernels), "--output", str(tmp_path / "merged")]) == 0
    page = (tmp_path / "merged.html").read_text()
    drawn = [r for r in _rows_of(page, "rows") if r[6] == 2 and r[0] == 1]
    assert [(r[1], r[3], r[4]) for r in drawn] == [(1.6, 0.3, "add_mul model.py:7"), (1.9, 0.05, "gemm 2x2x2 model.py:8"), (1.96, 0.01, "copy")]
    assert drawn[0][5] == "rank 1, 0.3 µs of add_mul - /home/model.py:7 (f)"
    assert "summed over all ranks: model.py:7 (0.6 µs), model.py:8 (0.1 µs), copy (0.02 µs)." in page and "MPIJAX_PROFILE" not in page
    events = json.loads((tmp_path / "merged.json").read_text())["traceEvents"]
    assert {"ph": "X", "pid": 0, "tid": 1, "name": "add_mul", "ts": 1.6, "dur": 0.3, "args": {"line": "/home/model.py:7 (f)"}} in events


def test_trace_says_how_to_record_kernels(tmp_path, capsys):
    assert main(["trace", *_message_records(tmp_path), "--output", str(tmp_path / "merged")]) == 0
    assert "<code>MPIJAX_PROFILE_KERNELS=1</code>" in (tmp_path / "merged.html").read_text()


@starts_jobs
@pytest.mark.parametrize("wanted", [{"sin", "gemm 80x80x80"}, pytest.param(set(), marks=pytest.mark.slow)], ids=["profiled", "not"])
@pytest.mark.slow  # by default tests below draw such records
def test_records_of_ranks_have_their_kernels(tmp_path, wanted):
    program = tmp_path / "program.py"
    program.write_text(
        "import mpijax as jax\nimport mpijax.numpy as jnp\nfrom mpijax import mpi\nfrom mpi4py import MPI\nfrom mpijax.runtime.reports import record_file\n"
        "step = jax.jit(lambda x: mpi.allreduce(jnp.sin(x), op=MPI.SUM) @ x)\n"
        "x = jnp.ones((80, 80))\nfor _ in range(3):\n    step(x).block_until_ready()\nrecord_file.write()\n"
    )
    ran = mpijax("run", "-n", 2, program, MPIJAX_TRACE_DIR=str(tmp_path / "records"), **({"MPIJAX_PROFILE_KERNELS": "1"} if wanted else {}))
    assert ran.returncode == 0, ran.stderr
    records = [json.loads(file.read_text()) for file in (tmp_path / "records").glob("*.json")]
    assert len(records) == 2
    for record in records:
        assert {k[0] for k in record["kernels"]} == wanted
        assert all(k[1] == f"{program}:6 (<lambda>)" and k[2] <= k[3] for k in record["kernels"])
        assert len(record["kernels"]) in ((5, 6) if wanted else (0,))  # the first `sin` is before the first operation


def test_trace_escapes_names(tmp_path, capsys):
    files = _message_records(tmp_path, "</script><script>alert(1)</script>", [["</script><script>", "</script>:1 (f)", 1, 2]])
    assert main(["trace", *files, "--output", str(tmp_path / "merged")]) == 0
    page = (tmp_path / "merged.html").read_text()
    assert page.count("<script>") == page.count("</script>") == 1


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_script_of_a_trace_runs(tmp_path, capsys):
    main(["trace", *_message_records(tmp_path), "--output", str(tmp_path / "merged")])
    page = (tmp_path / "merged.html").read_text()
    script = page[page.index("<script>") + 8 : page.index("</script>")]
    stub = """
    const drawn = [];
    const context = new Proxy({}, { get: (_, k) => (...a) => { if (k === "fillText") drawn.push(a[0]); }, set: () => true });
    const drawing = { clientWidth: 1000, getContext: () => context };
    globalThis.document = { getElementById: id => id === "line" ? drawing : {} };
    globalThis.window = {};
    """
    end = """;canvas.onwheel({ preventDefault() {}, deltaY: -1, offsetX: 500 }); canvas.onmousedown({ offsetX: 400 });
    canvas.onmousemove({ offsetX: 410, offsetY: 30 }); window.onmouseup(); canvas.onmousemove({ offsetX: 100, offsetY: 30 });
    canvas.ondblclick(); console.log(JSON.stringify(drawn));"""
    ran = subprocess.run(["node", "-e", stub + script + end], capture_output=True, text=True, check=True)
    drawn = json.loads(ran.stdout)
    assert {"rank 0", "rank 1", "0 µs", "1 µs", "9 µs"} <= set(drawn) and "recv model.py:3" in drawn


# ---- mpijax completion ----


@pytest.mark.parametrize(("words", "expected"), [
    ("mpijax d", "doctor"),
    ("mpijax run --bi", "--bind"),
    ("mpijax run --bind n", "none"),
    ("mpijax run pro", ""),
    ("mpijax submit --scheduler ", "slurm pbs lsf flux"),
    ("mpijax ex", "explain"),
    ("mpijax explain --h", "--help --html"),
    ("mpijax checkpoint di", "diff"),
    ("mpijax checkpoint ls --j", "--json"),
    ("mpijax completion z", "zsh"),
])  # fmt: skip
def test_completion_in_bash(words, expected, capsys):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    typed = words.split(" ")
    ask = f"COMP_WORDS=({' '.join(w or repr('') for w in typed)}); COMP_CWORD={len(typed) - 1}; _mpijax; echo ${{COMPREPLY[@]}}"
    ran = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True)
    assert (ran.stdout.strip(), ran.stderr) == (expected, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_each_command_and_option(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for command, (module, does) in COMMANDS.items():
        assert command in script and (shell == "bash" or does.split("'")[0] in script)
        for action in importlib.import_module(module).parser()._actions:
            assert all(option.lstrip("-") in script for option in action.option_strings)
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=script, capture_output=True, text=True).stderr == ""


# ---- mpijax init ----


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "heat"
    ran = mpijax("init", folder, "--scheduler", "lsf")
    assert ran.returncode == 0 and "mpijax run -n 2 program.py" in ran.stdout
    return folder


@starts_jobs
def test_a_new_project(project):
    assert "bsub < job.sh" in (project / "README.md").read_text()
    check_script(project / "job.sh", "SC2086")
    assert mpijax("init", project).returncode == 1  # nothing is written over


@starts_jobs
@pytest.mark.slow
def test_a_new_project_runs(project):
    ran = mpijax("run", "-n", 2, project / "program.py")
    assert ran.stdout.startswith("[0] 2 ranks: weights [ 1. -2.], loss "), ran.stderr
    env = launcher.clean_environment() | {"PYTHONPATH": PATHS}
    words = [*mpirun(2), sys.executable, "-m", "pytest", "-q", "--with-mpi", "-m", "mpi", "-p", "no:cacheprovider"]
    ran = subprocess.run(words, cwd=project, env=env, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0 and ran.stdout.count("1 passed") == 2, ran.stdout


# ---- mpijax bench ----


def test_sizes():
    assert bench.sizes("16,1k,4M") == [16, 1024, 4 << 20]


@starts_jobs
def test_bench_measures_and_draws(tmp_path):
    pytest.importorskip("matplotlib")
    drawn = tmp_path / "figures.png"
    ran = mpijax("bench", "-n", 2, "--sizes", "16", "--seconds", "0.002", "--plot", drawn, "--json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert [row["operation"] for row in found["rows"]] == list(bench.OPERATIONS)
    assert all(row["bytes"] == 16 and 0 < row["us"] < 1e6 for row in found["rows"])
    rows = bench.table(found).splitlines()
    assert rows[-1].startswith("LogGP: L ") and rows[0].startswith("2 ranks on 1 machine, ") and len(rows) - 1 == 7
    assert drawn.read_bytes()[:4] == b"\x89PNG"


# ---- mpijax doctor ----


@starts_jobs
@pytest.mark.slow  # by default the tests below have each check, and the one of bench has the job
def test_doctor_finds_a_working_machine():
    ran = mpijax("doctor", "--json")
    found = json.loads(ran.stdout)
    by_check = {f["check"]: f for f in found}
    assert ran.returncode == 0, [f for f in found if f["state"] == "error"]
    assert {"compiler", "cores", "BLAS", "cache", "MPI library", "launcher", "MPI start", "job", "pinning", "latency",
            "bandwidth"} <= set(by_check)  # fmt: skip
    assert all(f["remedy"] for f in found if f["state"] != "ok")
    assert "SERIALIZED" in by_check["MPI start"]["text"]


def test_doctor_names_a_wrong_launcher(mpis, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "find_library", lambda: library("MPICH Version: 4.2.1"))
    for name in ("compiler", "blas", "alone"):
        monkeypatch.setattr(checks, name, lambda name=name: Finding(name, "ok", "fine"))
    monkeypatch.setattr(checks.leftovers, "abandoned", list)
    monkeypatch.setattr(checks, "is_rank", lambda: False)
    assert main(["doctor", "--launcher", f"{mpis}/open/bin/mpirun"]) == 1
    printed = capsys.readouterr().out
    assert re.search(r"^ERROR    launcher: .*does not belong to MPICH Version: 4.2.1", printed, re.MULTILINE)
    assert "job" not in printed


def cache_of(folder, monkeypatch):
    monkeypatch.setenv("MPIJAX_CACHE_DIR", str(folder))
    monkeypatch.delenv("MPIJAX_CACHE", raising=False)
    return checks.cache()


def test_doctor_looks_at_the_cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    assert "the first compilation creates it" in cache_of(folder, monkeypatch).text
    folder.mkdir(mode=0o700)
    (folder / "a.o").write_bytes(b"x" * 1000)
    good = cache_of(folder, monkeypatch)
    assert good.state == "ok" and "1 files, 1 kB" in good.text
    with monkeypatch.context() as patch:  # a process renames its file after it was listed
        listed = list(os.scandir(folder))
        (folder / "a.o").rename(folder / "b.o")
        patch.setattr(checks.os, "scandir", lambda folder: listed)
        assert "0 files" in cache_of(folder, patch).text
    (folder / "b.o").rename(folder / "a.o")
    folder.chmod(0o777)
    bad = cache_of(folder, monkeypatch)
    assert (bad.state, bad.remedy) == ("warning", f"chmod 700 {folder}")
    assert cache_of(tmp_path / "cache/a.o", monkeypatch).state == "error"
    monkeypatch.setenv("MPIJAX_CACHE", "0")
    assert checks.cache().state == "warning"


def test_doctor_looks_at_the_environment(monkeypatch):
    for name in [n for n in os.environ if n.startswith(launcher.RANK_VARIABLES)]:
        monkeypatch.delenv(name)
    for name in ("SLURM_STEP_NUM_TASKS", *checks._THREAD_SETTINGS, "MPIJAX_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert list(checks.environment()) == []
    monkeypatch.setenv("PMI_SIZE", "4")
    monkeypatch.setenv("OMP_NUM_THREADS", "4096")
    stray, threads = checks.environment()
    assert (stray.state, stray.remedy) == ("warning", "unset PMI_SIZE")
    assert threads.text.startswith("OMP_NUM_THREADS=4096, but there are ")


def test_doctor_counts_cores(monkeypatch):
    monkeypatch.setattr(cores, "physical", lambda: [[0], [1]])
    monkeypatch.setattr(cores, "quota", lambda: 2.0)
    assert next(checks.machine(2)).state == "ok"
    assert "use at most 2 ranks" in next(checks.machine(3)).remedy


def test_doctor_looks_for_what_killed_jobs_left(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(leftovers, "FOLDER", tmp_path)
    assert list(checks.shared_memory_left()) == []
    names = ["mpich_shm_1f_0", "mpich_vci_1f_0", "sm_segment.host.0.5f0000.0", "sm_segment.host.0.5f0000.1", "theirs"]
    for name in names:
        (tmp_path / name).write_bytes(b"x" * 512_000)
        os.utime(tmp_path / name, (1e9, 1e9))
    (tmp_path / "mpich_shm_of_a_job_that_starts").write_bytes(b"x")
    (tmp_path / "mpich_shm_link").symlink_to("theirs")
    with (tmp_path / names[2]).open("r+b") as file, mmap.mmap(file.fileno(), 0):
        [found] = checks.shared_memory_left()
        assert (found.state, found.remedy) == ("warning", "run mpijax doctor --remove-leftovers")
        assert found.text.startswith("3 unused segments of your ended MPI jobs take 1.54 MB of memory")
        assert main(["doctor", "--remove-leftovers"]) == 0
    assert capsys.readouterr().out == "ok       shared memory: removed 3 unused segments of your ended MPI jobs, 1.54 MB\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mpich_shm_link", "mpich_shm_of_a_job_that_starts", names[2], "theirs"]
    [found] = checks.shared_memory_left()  # nobody uses it any more
    assert found.text.startswith("1 unused segments")
    assert checks.remove_shared_memory_left().text.startswith("removed 1 unused segments")
    assert checks.remove_shared_memory_left().text == "no unused segments of your ended MPI jobs"


def test_run_removes_what_a_failed_job_left(tmp_path, monkeypatch):
    """Only segments made since the job began, which no process has mapped."""
    monkeypatch.setattr(leftovers, "FOLDER", tmp_path)
    before, mapped, left = (tmp_path / f"mpich_shm_{name}_0" for name in ("before", "mapped", "left"))
    for path in (before, mapped, left):
        path.write_bytes(b"x")
    os.utime(before, (1e9, 1e9))
    with mapped.open("r+b") as file, mmap.mmap(file.fileno(), 0):
        ran = main(["run", "-n", "1", "-c", "import sys; sys.exit(3)"])
        assert ran == 3 and {*tmp_path.iterdir()} == {before, mapped, left}  # made before the job
        leftovers.remove_of_failed(left.stat().st_mtime)
        assert {*tmp_path.iterdir()} == {before, mapped}


def found(**changes):
    rows = [{"bytes": 16, "us": 1.0, "MB/s": 16.0}, {"bytes": 1 << 22, "us": 1e3, "MB/s": 4000.0}]
    ranks = [{"cpus": [i], "threads": 1} for i in range(2)]
    return {"rows": rows, "ranks": ranks, "yields": False, "mpi4py_us": 2.0, "copy_MB/s": 8000.0} | changes


def test_doctor_judges_what_was_measured(monkeypatch):
    monkeypatch.setattr(cores, "physical", lambda: [[0], [1]])
    monkeypatch.setattr(cores, "quota", lambda: 2.0)
    assert checks.pinning(found()).state == "ok"
    shared = checks.pinning(found(ranks=[{"cpus": [0, 1], "threads": 1}] * 2))
    assert shared.state == "warning" and "--bind core" in shared.remedy
    assert [f.state for f in checks.speed(found())] == ["ok", "ok"]
    slow = [{"bytes": 16, "us": 90.0, "MB/s": 0.2}, {"bytes": 1 << 22, "us": 1e5, "MB/s": 40.0}]
    assert [f.state for f in checks.speed(found(rows=slow))] == ["warning", "warning"]


# ---- mpijax submit ----

REQUEST = submit.Request(3, 8, 4, 90, ["my program.py", "--lr", "0.1"], "big", "me")
EXPECTED = {
    "slurm": ["--nodes=3", "--ntasks-per-node=8", "--cpus-per-task=4", "--time=01:30:00", "--partition=big"],
    "pbs": ["select=3:ncpus=32:mpiprocs=8:ompthreads=4", "walltime=01:30:00", "#PBS -q big", "NCPUS_PER_RANK:-4"],
    "lsf": ["#BSUB -n 24", "ptile=8", "core(4)", "#BSUB -W 01:30", "#BSUB -q big", "-bind-to core:4", ": bsub < THIS_FILE\n"],
    "flux": ["--tasks=\"${RANKS:-24}\"", "CORES:-4", "--nodes=3 --nslots=24 --cores-per-slot=4 --time-limit=90m"],
}


@pytest.mark.parametrize("scheduler", EXPECTED)
def test_batch_script(scheduler, tmp_path):
    text = submit.render(scheduler, REQUEST)
    assert [part for part in [*EXPECTED[scheduler], "python 'my program.py' --lr 0.1\n"] if part not in text] == []
    assert "PROGRAM" not in text and ".venv" not in text.replace(sys.prefix, "")
    file = tmp_path / "script.sh"
    file.write_text(text)
    check_script(file, "SC2086")


@pytest.mark.parametrize("scheduler", EXPECTED)
def test_batch_script_is_submitted(scheduler, tmp_path, monkeypatch, capfd):
    program = tmp_path / "program.py"
    program.touch()
    words = ["submit", "--scheduler", scheduler, "--nodes", "1", "--ranks-per-node", "2", str(program), "--x"]
    assert main([*words[:1], "--dry-run", *words[1:]]) == 0
    printed = capfd.readouterr().out
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(submit, "_pmi", lambda: "pmi2")
    name = submit._NEEDED[scheduler]
    if shutil.which(name) is None:
        assert main(words) == 1
        assert f"command {name} not found" in capfd.readouterr().err
    last = 'for last; do :; done; if [ -f "$last" ]; then cat "$last"; else cat; fi'
    script(tmp_path / name, last)
    assert main(words) == 0
    assert capfd.readouterr().out == printed


def test_slurm_speaks_pmix_with_open_mpi():
    request = submit.Request(1, 2, 1, 30, ["a.py"], pmi="pmix")
    assert "MPIJAX_PMI:-pmix" in submit.render("slurm", request)
    assert "-o pmi=pmix" in submit.render("flux", request)


@pytest.mark.parametrize(("text", "expected"), [("90", 90), ("30:00", 30), ("1:30:00", 90), ("0:01", 1)])
def test_minutes(text, expected):
    assert submit.minutes(text) == expected
