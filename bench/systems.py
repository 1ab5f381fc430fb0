"""The systems that take part, how a process of each is started, and why one is missing."""

import dataclasses
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.case import ROOT, Case

PEERS_VARIABLE = "MPIJAX_BENCH_PEERS"


@dataclasses.dataclass(frozen=True)
class System:
    name: str
    python: Path

    def program(self, name: str) -> str:
        """mpirun or mpicc: the one beside the interpreter (the mpich wheel's), else the machine's."""
        beside = self.python.parent / name
        return str(beside) if beside.exists() else shutil.which(name) or name

    def missing(self, module: str) -> str | None:
        """Why `module` cannot be imported, None if it can."""
        return _missing(self.python, module)

    def why_not(self, case: Case) -> str | None:
        """The reason why this system cannot run the case, None if it can."""
        modules = ["mpijax"] if self.name == "mpijax" else ["jax"]
        if case.ranks > 1:
            modules.append("mpi4py" if self.name == "mpijax" else "mpi4jax")
        return next(filter(None, map(self.missing, modules)), None)

    def command(self, case: Case, budget: float, output: Path) -> list[str]:
        worker = [str(self.python), "-m", "bench.worker", self.name, case.name, str(budget), str(output)]
        if case.ranks == 1:
            return pinned(worker, case.cores)
        return [*launcher(self.program("mpirun"), case.ranks), *worker]


@functools.cache
def _missing(python: Path, module: str) -> str | None:
    """Imports only what is cheap to find: a module that is there but broken shows when a case runs."""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    done = subprocess.run([python, "-c", code], cwd=ROOT, capture_output=True, text=True)
    return f"{python} has no module {module}" if done.returncode else None


def pinned(command: list[str], cores: int = 1) -> list[str]:
    """The command on so many cores, the first this process may use."""
    taken = ",".join(map(str, sorted(os.sched_getaffinity(0))[:cores]))
    return ["taskset", "-c", taken, *command] if shutil.which("taskset") else command


@functools.cache
def _is_open_mpi(mpirun: str) -> bool:
    return "Open MPI" in subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout


def launcher(mpirun: str, ranks: int, bind_to: str = "core") -> list[str]:
    """mpirun with a core for each rank, or, bound to "none", with as many ranks as one likes."""
    options = ["--allow-run-as-root"] if _is_open_mpi(mpirun) else []
    return [mpirun, *options, "--bind-to", bind_to, "-n", str(ranks)]


def systems() -> tuple[System, System]:
    """(the peer, ours). The peer lives in the environment named by MPIJAX_BENCH_PEERS, else in ours."""
    ours = Path(sys.executable)
    peers = os.environ.get(PEERS_VARIABLE)
    return System("jax", Path(peers) / "bin" / "python" if peers else ours), System("mpijax", ours)
