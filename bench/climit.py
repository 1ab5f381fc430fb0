"""The speed limit: a few lines of C for the same work, compiled where the benchmark runs."""

import os
import subprocess
from pathlib import Path

from bench.case import ROOT
from bench.systems import System, launcher, pinned

SOURCE = ROOT / "bench" / "c" / "limit.c"
FLAGS = ["-O3", "-march=native"]
BETWEEN_RANKS = {"allreduce", "alltoall", "allgather", "halo"}


def build(system: System, folder: Path) -> Path:
    program = folder / "limit"
    command = [system.program("mpicc"), *FLAGS, str(SOURCE), "-o", str(program), "-lm", "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return program


def openblas(system: System) -> str:
    """The OpenBLAS in NumPy's wheel; empty where NumPy has another."""
    code = """import glob, numpy, os
print(*glob.glob(os.path.dirname(numpy.__file__) + ".libs/libscipy_openblas64_*")[:1])"""
    return subprocess.run([system.python, "-c", code], capture_output=True, text=True).stdout.strip()


def measure(wanted: set[str], system: System, folder: Path, say) -> dict[str, float]:
    """{arguments: seconds a call} of the C program; empty, with a word why, where it cannot be had."""
    if not wanted:
        return {}
    try:
        program = build(system, folder)
    except OSError as error:
        say(f"no C limits: {error}")
        return {}
    limits = {}
    environment = os.environ | {"LIMIT_BLAS": openblas(system), "OPENBLAS_NUM_THREADS": "1"}
    for arguments in sorted(wanted):
        command = [str(program), *arguments.split()]
        together = arguments.split()[0] in BETWEEN_RANKS
        command = [*launcher(system.program("mpirun"), 2), *command] if together else pinned(command)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
        if done.returncode:
            say(f"C {arguments}: {done.stderr.strip()}")
        else:
            limits[arguments] = float(done.stdout)
            say(f"C {arguments}: {limits[arguments] * 1e6:,.2f} µs")
    return limits
