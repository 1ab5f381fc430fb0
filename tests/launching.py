"""How tests start ranks: by the launcher beside this Python, where any number of ranks may share the cores."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

MPIRUN = shutil.which("mpirun", path=str(Path(sys.executable).parent)) or shutil.which("mpirun")
# Where Python looks in processes that tests start: for mpijax, and for what makes them start and end fast.
TESTS = Path(__file__).parent
PATHS = f"{TESTS.parent}{os.pathsep}{TESTS / 'processes'}"
UNDER_LAUNCHER = any(v in os.environ for v in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE"))

starts_jobs = [
    pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun"),
    pytest.mark.skipif(UNDER_LAUNCHER, reason="starts jobs itself"),
]


def marked(test):
    """A test that starts jobs; a decorator, where other tests of the file do not."""
    for mark in starts_jobs:
        test = mark(test)
    return test


@functools.cache
def is_open_mpi() -> bool:
    return MPIRUN is not None and "Open MPI" in subprocess.run([MPIRUN, "--version"], capture_output=True, text=True).stdout


def mpirun(ranks: int) -> list[str]:
    """The first words of a command that runs the others on so many ranks."""
    more = ["--oversubscribe", "--allow-run-as-root"] if is_open_mpi() else []
    return [str(MPIRUN), *more, "--bind-to", "none", "-n", str(ranks)]


def has_status(found: int, wanted: int | None) -> bool:
    """Whether a launcher reports the wanted exit status. None: any status but 0.

    Hydra kills the other ranks when one ends. If it reaps a killed rank too early, it combines signal 9 with the status
    (bitwise or), or exits with 9 alone if it reaps only that rank.
    """
    if wanted is None:
        return found != 0
    return found == wanted or (wanted != 0 and not is_open_mpi() and found in (wanted | signal.SIGKILL, signal.SIGKILL))


def check_script(file: Path, *allowed: str) -> None:
    """Have bash, and shellcheck where it is, read a script. allowed: findings of shellcheck that are meant."""
    subprocess.run(["bash", "-n", file], check=True)
    shellcheck = shutil.which("shellcheck", path=str(Path(sys.executable).parent)) or shutil.which("shellcheck")
    if shellcheck is not None:  # SC1091: it cannot look into the environment that is activated
        found = subprocess.run([shellcheck, "-e", ",".join(["SC1091", *allowed]), file], capture_output=True, text=True)
        assert found.returncode == 0, found.stdout
