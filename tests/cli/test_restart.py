"""`mpijax run --restart`: ranks are killed at random moments, and the job ends with the numbers of an undisturbed one."""

from __future__ import annotations

import functools
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from launching import PATHS, marked

from mpijax.cli import launcher

pytest.importorskip("tensorstore", reason="needs mpijax[checkpoint]")

ROOT = Path(__file__).parents[2]
RANKS, STEPS, EVERY = 4, 60, 5
# Seconds from the death of a rank until a step is done again, on a machine where nothing else runs.
SOON = 5.0

PROGRAM = f"""
import os, sys, time
folder = sys.argv[1]
rank = os.environ["PMI_RANK"] if "PMI_RANK" in os.environ else os.environ["OMPI_COMM_WORLD_RANK"]

def note(name, text):
    with open(f"{{folder}}/{{name}}.new", "w") as file:
        file.write(text)
    os.rename(f"{{folder}}/{{name}}.new", f"{{folder}}/{{name}}")

note(f"pid-{{rank}}", str(os.getpid()))
sys.path.insert(0, {str(ROOT / "examples")!r})
import numpy as np
import resume

def progress(step):
    time.sleep(0.02)
    while step == int(sys.argv[2]) and not os.path.exists(f"{{folder}}/enough"):
        time.sleep(0.05)  # so that a run does not end before all its deaths
    if rank == "0":
        with open(f"{{folder}}/steps", "a") as file:
            file.write(f"{{time.time()}} {{step}} {{os.environ['MPIJAX_RESTARTS']}}\\n")

memory = int(sys.argv[3]) if sys.argv[3:] else None
state = resume.train(f"{{folder}}/checkpoints", int(sys.argv[2]), {EVERY}, progress, memory)
if rank == "0":
    note("losses", repr([x.hex() for x in np.asarray(state["losses"]).tolist()]))
"""


class Run:
    """A job under `mpijax run`, and what its ranks note in a folder."""

    def __init__(self, folder: Path, steps: int, *options: str, ranks: int = RANKS, memory: int | None = None):
        folder.mkdir()
        self.folder = folder
        # Processes of a job that ends: not to be killed again.
        self.old: set[str] = set()
        (folder / "program.py").write_text(PROGRAM)
        words = ["run", "-n", str(ranks), "--bind", "none", *options, str(folder / "program.py"), str(folder), str(steps)]
        words += [str(memory)] if memory else []
        env = launcher.clean_environment() | {"PYTHONPATH": PATHS, "MPIJAX_NUM_THREADS": "1"}
        self.output = (folder / "output").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mpijax", *words], env=env, stdout=self.output, stderr=subprocess.STDOUT
        )

    def steps(self) -> list[tuple[float, int, int]]:
        """(time, step, restarts before it) of each step so far."""
        file = self.folder / "steps"
        rows = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [(float(at), int(step), int(restarts)) for at, step, restarts in rows if restarts]

    def kill(self, rank: int) -> float | None:
        """Kill a rank that runs; when that was. None if there is no such rank now."""
        running = {file.name: file.read_text() for file in self.folder.glob("pid-?")}
        pid = running.get(f"pid-{rank}")
        if pid is None or pid in self.old:
            return None
        os.kill(int(pid), signal.SIGKILL)
        self.old.update(running.values())
        return time.time()

    def enough(self) -> None:
        """Let the program end."""
        (self.folder / "enough").touch()

    def wait(self) -> tuple[int, str]:
        """(exit status, output)"""
        status = self.process.wait(240)
        with self.output as file:
            file.seek(0)
            return status, file.read()

    def losses(self) -> list[str]:
        return eval((self.folder / "losses").read_text())


def slowness() -> float:
    """How many processes share a core now: what 5 s on a machine at rest are here."""
    return max(1.0, 1.5 * os.getloadavg()[0] / len(os.sched_getaffinity(0)))


def disturbed(folder: Path, kills: int, seed: int, memory: int | None = None) -> tuple[Run, list[float]]:
    """A run of which `kills` times a random rank is killed at a random moment; seconds from each to the next step."""
    rng = random.Random(seed)
    run, deaths = Run(folder, STEPS, "--restart", str(kills), memory=memory), []
    while len(deaths) < kills and run.process.poll() is None:
        # While Python or MPI starts, in a step or a save, or in the wait at the last step.
        if rng.random() < 0.7:
            until(lambda: any(restarts == len(deaths) for _, _, restarts in run.steps()))
        time.sleep(rng.uniform(0.1, 1.5))
        killed = run.kill(rng.randrange(RANKS))
        if killed is not None:
            deaths.append(killed)
    run.enough()
    status, output = run.wait()
    assert status == 0, output
    assert output.count("mpijax run: restart ") == kills, output
    steps = [[at for at, _, restarts in run.steps() if restarts == number] for number in range(kills + 1)]
    # Deaths before the first step of a run are in the time of the one before.
    around = zip(deaths, steps, steps[1:], strict=False)
    return run, [after[0] - death for death, before, after in around if before and after]


def again(run: Run) -> int:
    """How many steps were done again after deaths."""
    steps = run.steps()
    return sum(max(0, before[1] + 1 - after[1]) for before, after in zip(steps, steps[1:], strict=False))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The losses of runs that nobody disturbs, by their number of steps."""

    @functools.cache
    def of(steps: int, ranks: int = RANKS) -> list[str]:
        run = Run(tmp_path_factory.mktemp("undisturbed") / "run", steps, ranks=ranks)
        run.enough()
        status, output = run.wait()
        assert status == 0, output
        return run.losses()

    return of


@marked
@pytest.mark.slow
def test_deaths_change_nothing(tmp_path, undisturbed):
    want = undisturbed(STEPS)
    assert len(set(want)) == STEPS
    run, waits = disturbed(tmp_path / "run", kills=2, seed=random.randrange(1 << 30), memory=1)
    assert run.losses() == want
    assert again(run) <= 2 * 2  # steps after the last one that was whole in memory
    print("seconds from a death to the next step:", *(f"{w:.1f}" for w in waits))
    assert all(wait < SOON * slowness() for wait in waits)


@marked
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_fifty_deaths_change_nothing(tmp_path, undisturbed, seed):
    run, waits = disturbed(tmp_path / "run", kills=5, seed=seed, memory=1 + seed % 2 * 2)
    assert run.losses() == undisturbed(STEPS)
    print("seconds from a death to the next step:", *(f"{w:.1f}" for w in waits))
    assert all(wait < SOON * slowness() for wait in waits)


@marked
@pytest.mark.parametrize("ranks", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_the_remaining_ranks_go_on(tmp_path, undisturbed, ranks):
    """`--restart-with fewer`: after each death a rank less goes on, and the losses are the same numbers."""
    run = Run(tmp_path / "run", 20, "--restart", "2", "--restart-with", "fewer", ranks=ranks)
    for killed, left in ((3, 3), (1, 2))[4 - ranks :]:
        until(lambda rank=killed: run.steps() and run.steps()[-1][1] > 8 and run.kill(rank))
        until(lambda n=left: f", on {n} ranks" in (tmp_path / "run" / "output").read_text())
    run.enough()
    status, output = run.wait()
    assert status == 0, output
    got, want = ([float.fromhex(x) for x in losses] for losses in (run.losses(), undisturbed(20, 2)))
    np.testing.assert_allclose(got, want, rtol=1e-4)


def until(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come to that in a minute")


def job(body: str, *options: str, ranks: int = 2) -> subprocess.CompletedProcess:
    words = ["run", "-n", str(ranks), *options, "-c", "import os, sys\nn = os.environ['MPIJAX_RESTARTS']\n" + body]
    env = launcher.clean_environment() | {"PYTHONPATH": PATHS}
    return subprocess.run([sys.executable, "-m", "mpijax", *words], env=env, capture_output=True, text=True, timeout=90)


@marked
@pytest.mark.slow  # by default the tests of deaths see it
def test_status_is_that_of_the_last_run():
    ran = job("print('run', n, flush=True); sys.exit(0 if n == '2' else 4)", "--restart", "5")
    assert ran.returncode == 0
    assert ran.stderr.count("mpijax run: restart") == 2
    assert [f"run {n}" in ran.stdout for n in range(4)] == [True, True, True, False]
    ran = job("sys.exit(4 + int(n))", "--restart", "2")
    assert ran.returncode == 6
    assert "restart 2 of 2" in ran.stderr


@marked
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
@pytest.mark.one_in(2)
def test_a_job_that_was_asked_to_stop_is_not_started_again(number, tmp_path):
    """Programs save then and exit with a status that says that they are not finished."""
    body = (
        f"import signal, sys, time\nsignal.signal({int(number)}, lambda *_: sys.exit(3))\n"
        f"open(f'{tmp_path}/{{__import__(\"os\").getpid()}}', 'w')\ntime.sleep(60)"
    )
    env = launcher.clean_environment() | {"PYTHONPATH": PATHS}
    words = [sys.executable, "-m", "mpijax", "run", "-n", "2", "--restart", "3", "-c", body]
    run = subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True)
    until(lambda: len(list(tmp_path.iterdir())) == 2)
    run.send_signal(number)
    said = run.communicate(timeout=60)[1]
    assert run.returncode == 3
    assert "restart" not in said


@marked
@pytest.mark.slow  # by default tests/faults has this end
def test_a_rank_that_ends_before_mpi_starts_ends_the_job():
    """Hydra leaves the others, who wait in MPI_Init, alone."""
    begun = time.time()
    body = (
        "if os.environ.get('PMI_RANK', os.environ.get('OMPI_COMM_WORLD_RANK')) == '1':\n    os.kill(os.getpid(), 9)\n"
        "import mpijax\nmpijax.process_index()"
    )
    ran = job(body)
    assert ran.returncode == 137
    assert "rank 1 failed first, with status 137 (SIGKILL)" in ran.stderr
    assert time.time() - begun < 8 * slowness()
