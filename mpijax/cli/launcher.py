"""Finds the MPI library that mpi4py loads, and its launcher, without starting MPI in this process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from mpijax.core.base.lazy_dataclass import dataclass

# Variables that a launcher sets for its ranks; a launcher that sees them believes that it is a rank. Those in SETTINGS
# may also be the user's, outside of a job.
SETTINGS = ("OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_")
RANK_VARIABLES = ("PMI_", "PMIX_", "OMPI_", "PRTE_", "HYDRA_", "HYDI_", "MPI_LOCAL", "PALS_")

# MPI.Get_library_version may be called before MPI_Init, which fails on login nodes.
_PROBE = """
import json, mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
abi = MPI.Get_abi_version() if hasattr(MPI, "Get_abi_version") else (-1, -1)
with open("/proc/self/maps") as maps:
    files = sorted({line.split()[-1] for line in maps if "/libmpi" in line})
print(json.dumps({"version": MPI.Get_library_version(), "files": files, "standard": MPI.Get_version(), "abi": abi,
                  "module": MPI.__file__, "mpi4py": mpi4py.__version__}))
"""


@dataclass(frozen=True)
class MpiLibrary:
    """An MPI library. files: its shared objects. module: mpi4py's extension for it. abi: the version of the MPI ABI,
    (-1, -1) without."""

    version: str
    files: tuple[str, ...]
    standard: tuple[int, int]
    abi: tuple[int, int]
    module: str
    mpi4py: str

    @property
    def name(self) -> str:
        """The first line of the library's version text."""
        first = self.version.splitlines()[0].partition(", package:")[0]
        return " ".join(first.strip("\0 ").split())

    @property
    def family(self) -> str:
        """``openmpi``, or ``hydra`` for MPICH and its relatives (MVAPICH, Intel MPI, Cray MPICH)."""
        return "openmpi" if self.version.startswith("Open MPI") else "hydra"


@dataclass(frozen=True)
class Launcher:
    path: str
    family: str
    version: str

    def command(self, ranks: int, cores: int) -> list[str]:
        """The command that starts `ranks` processes on this machine, not bound to cores."""
        if self.family == "srun":
            return [self.path, f"--ntasks={ranks}", f"--mpi={self.version}", "--cpu-bind=none", "--kill-on-bad-exit=1"]
        words = [self.path]
        if self.family == "openmpi":
            words += ["--bind-to", "none"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
            words += ["--oversubscribe"] if ranks > cores else []
        return [*words, "-n", str(ranks)]


class NoLauncher(RuntimeError):
    """There is no MPI library, or no matching launcher."""


def find_library(python: str = sys.executable) -> MpiLibrary:
    """The library that mpi4py loads, determined in a separate process (0.1 s). Raises NoLauncher."""
    asked = subprocess.run(
        [python, "-c", _PROBE], capture_output=True, text=True, env=clean_environment(), timeout=120, check=False
    )
    if asked.returncode:
        reason = (asked.stderr.strip().splitlines() or [f"status {asked.returncode}"])[-1]
        raise NoLauncher(
            f"{python} could not load an MPI library: {reason}\nInstall one (pip install mpich), or load the MPI "
            "module of the cluster, or set MPI4PY_LIBMPI=/path/to/libmpi.so."
        )
    found = json.loads(asked.stdout.splitlines()[-1])
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in found.items()}
    return MpiLibrary(**fields)


def find_launcher(library: MpiLibrary, given: str | None = None) -> Launcher:
    """The launcher of `library`: `given` or ``MPIJAX_LAUNCHER``, else the first matching one beside the library, beside
    this Python, or on the PATH; srun in an allocation without any. Raises NoLauncher, with what was found."""
    given = given or os.environ.get("MPIJAX_LAUNCHER")
    if given:
        path = shutil.which(given)
        if path is None:
            raise NoLauncher(f"launcher {given!r} not found")
        launcher = identify(path)
        if launcher is None or launcher.family not in (library.family, "srun"):
            what = launcher.version if launcher else "a launcher unknown to mpijax"
            raise NoLauncher(f"{path} ({what}) does not belong to {library.name}, which mpi4py loads")
        return _with_pmi(launcher, library)
    others = []
    for path in candidates(library):
        launcher = identify(path)
        if launcher is not None and launcher.family == library.family:
            return launcher
        others.append(path)
    srun = shutil.which("srun")
    if srun and "SLURM_JOB_ID" in os.environ:
        return _with_pmi(Launcher(srun, "srun", ""), library)
    seen = f"; of other MPIs: {', '.join(others)}" if others else ""
    raise NoLauncher(
        f"mpi4py loads {library.name}, but no launcher (mpirun, mpiexec) of it was found{seen}.\nAdd its bin folder "
        "to PATH (load its module), pass it with --launcher or MPIJAX_LAUNCHER, or install MPICH into this "
        "environment: pip install mpich"
    )


def _with_pmi(launcher: Launcher, library: MpiLibrary) -> Launcher:
    """srun with the PMI protocol that the library uses."""
    if launcher.family != "srun":
        return launcher
    protocol = os.environ.get("MPIJAX_PMI") or ("pmix" if library.family == "openmpi" else "pmi2")
    return Launcher(launcher.path, "srun", protocol)


def candidates(library: MpiLibrary) -> list[str]:
    """Existing launchers, those nearest to the library first."""
    folders = [Path(file).parent.parent / "bin" for file in library.files]
    folders += [Path(sys.executable).parent, *(Path(p) for p in os.environ.get("PATH", "").split(os.pathsep) if p)]
    found: dict[str, None] = {}
    for folder in folders:
        for name in ("mpiexec.hydra", "mpirun", "mpiexec"):
            path = folder / name
            if path.is_file() and os.access(path, os.X_OK):
                found[str(path)] = None
    return list(found)


def identify(path: str) -> Launcher | None:
    """The launcher's family, from its version text; None for an unknown one."""
    if Path(path).name == "srun":
        return Launcher(path, "srun", "")
    try:
        asked = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, env=clean_environment())
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = asked.stdout + asked.stderr
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    if any(word in said for word in ("Open MPI", "OpenRTE", "PRRTE")):
        return Launcher(path, "openmpi", lines[0])
    if any(word in said for word in ("HYDRA", "Intel(R) MPI", "MVAPICH")):
        version = next((line.split(":")[1].strip() for line in lines if line.startswith("Version:")), "")
        return Launcher(path, "hydra", f"Hydra {version}".strip())
    return None


def clean_environment() -> dict[str, str]:
    """The environment without the variables that a launcher set if this process is a rank."""
    kept = () if is_rank() else SETTINGS
    return {k: v for k, v in os.environ.items() if not k.startswith(RANK_VARIABLES) or k.startswith(kept)}


def is_rank() -> bool:
    """Whether a launcher started this process."""
    if any(v in os.environ for v in ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")):
        return True
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")  # 1 in a shell started by srun --pty
    return tasks.isdigit() and int(tasks) > 1
