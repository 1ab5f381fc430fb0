"""Jobs of several ranks that tests start themselves, some at once, since ranks that wait need no core."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest
from launching import is_open_mpi, mpirun
from once import computed_once

ROOT = Path(__file__).parents[2]
# More keep each other from coming to where they wait, and polling ranks then wait the longer.
AT_ONCE = 10
LET_RUN = ("-disable-auto-cleanup",)
LAUNCHER = ("PMI_", "PMIX_", "OMPI_", "HYDRA_", "HYDI_", "MPI_")

START = """
import os, signal, sys, threading, time
import numpy as np
import mpijax as jax
from mpi4py import MPI
from mpijax import lax, mpi
from mpijax.errors import JaxRuntimeError
rank, size = jax.process_index(), jax.process_count()
total = jax.jit(lambda x: mpi.allreduce(x, op=MPI.SUM))
x = np.arange(4, dtype=np.float32)
"""
# Without mpi4py.MPI, so that MPI is started by mpijax.
START_ALONE = START.replace("from mpi4py import MPI\n", "").replace("MPI.SUM", "'SUM'")


@dataclass
class Job:
    """body: what each rank runs. settings: of the environment. lets_run: whether the launcher lets the others run on
    when a process ends (if it is Hydra; Open MPI's always ends the job)."""

    body: str
    ranks: int = 2
    settings: dict[str, str] = field(default_factory=dict)
    start: str = START_ALONE
    limit: float = 60
    lets_run: bool = False


@dataclass
class Outcome:
    """left: processes that the job left behind."""

    status: int
    output: str
    seconds: float
    left: list[int] = field(default_factory=list)


def of_chosen_tests(jobs: dict[str, Job], request: pytest.FixtureRequest, *always: str) -> dict[str, Job]:
    """The jobs that are a parameter of a chosen test of the file, and those that are needed always."""
    items = (item for item in request.session.items if item.path == request.path and hasattr(item, "callspec"))
    needed = {item.callspec.params.get("name") for item in items}.union(always)
    return {name: job for name, job in jobs.items() if name in needed}


def run_once(jobs: dict[str, Job], folder: Path) -> dict[str, Outcome]:
    """What came of the jobs, which the first process that asks runs in the shared folder."""
    outcomes = computed_once(folder, lambda: {name: asdict(outcome) for name, outcome in run_all(jobs, folder).items()})
    return {name: Outcome(**outcome) for name, outcome in outcomes.items()}


def run_all(jobs: dict[str, Job], folder: Path) -> dict[str, Outcome]:
    """Run the jobs; what came of each. Their records are in folders of their own."""
    env = {k: v for k, v in os.environ.items() if not k.startswith((*LAUNCHER, "MPIJAX_STALL"))}
    env["PYTHONPATH"] = str(ROOT)
    mark = f"mpijax-jobs-{os.getpid()}-{folder.name}"
    waiting, running, outcomes = list(jobs)[::-1], {}, {}
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            job = jobs[name := waiting.pop()]
            file = (folder / f"{name}.txt").open("w+")
            own = {"MPIJAX_TRACE_DIR": str(folder / f"records of {name}"), "TEST_JOB": f"{mark}-{name}"}
            process = subprocess.Popen(
                [*mpirun(job.ranks), *(LET_RUN if job.lets_run and not is_open_mpi() else ()), sys.executable, "-c", job.start + job.body], env=env | own | job.settings,
                stdout=file, stderr=subprocess.STDOUT, cwd=ROOT, start_new_session=True,
            )  # fmt: skip
            running[name] = process, file, time.monotonic()
        time.sleep(0.02)
        for name, (process, file, began) in list(running.items()):
            seconds = time.monotonic() - began
            if process.poll() is None and seconds < jobs[name].limit:
                continue
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            del running[name]
            file.seek(0)
            outcomes[name] = Outcome(process.returncode, file.read(), seconds)
            file.close()
            outcomes[name].left = left_behind(f"TEST_JOB={mark}-{name}")
    return outcomes


def left_behind(setting: str, limit: float = 10) -> list[int]:
    """The processes that have a setting in their environment, and do not end within `limit` seconds."""
    end = time.monotonic() + limit
    while found := _with_setting(setting):
        if time.monotonic() > end:
            break
        time.sleep(0.1)
    return found


def whereabouts(setting: str) -> str:
    """For each process that has a setting in its environment: its threads' states and what the kernel does for them."""
    lines = []
    for pid in _with_setting(setting):
        folder = Path("/proc", str(pid))
        threads = [_whereabouts_of(thread) for thread in sorted(folder.glob("task/*"))]
        lines.append(f"process {pid} {_read(folder / 'cmdline').replace(chr(0), ' ')[:60]!r}: {', '.join(threads)}")
    return "\n".join(lines)


def _whereabouts_of(thread: Path) -> str:
    state = _read(thread / "stat").rpartition(") ")[2][:1]
    return f"{_read(thread / 'comm').strip()} {state} {_read(thread / 'wchan')} ({_read(thread / 'syscall').strip()[:40]})"


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:  # it has ended, or is not ours
        return "?"


def _with_setting(setting: str) -> list[int]:
    return [int(p.parent.name) for p in Path("/proc").glob("[0-9]*/environ") if _has(p, setting.encode())]


def _has(file: Path, setting: bytes) -> bool:
    try:
        return setting in file.read_bytes().split(b"\0")
    except OSError:  # it has ended, or is not ours
        return False
