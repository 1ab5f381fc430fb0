"""The checks of ``mpijax doctor``: each gives findings, with a remedy for each problem.

Checks that need MPI or the compiler run in a separate process, which may die, for example in MPI_Init on login nodes.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mpijax import version
from mpijax.cli import cores
from mpijax.cli.launcher import RANK_VARIABLES, Launcher, MpiLibrary, NoLauncher, clean_environment, is_rank
from mpijax.cli.measure import MARK
from mpijax.core.base import config
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.units import amount
from mpijax.distributed.lines import ranges
from mpijax.runtime.machine import leftovers

OK, WARNING, ERROR = "ok", "warning", "error"
_THREAD_SETTINGS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
# The minimum bytes that MPI libraries need in /dev/shm.
_SHARED_MEMORY = 64 << 20

# The line of a traceback that names the error; its message may continue on later lines.
_RAISED = re.compile(r"^[\w.]*(Error|Exception|Interrupt): ", re.MULTILINE)
_AGAIN = "install mpijax with its dependencies again: pip install --force-reinstall mpijax"

_COMPILE = """
import time
import numpy as np
import mpijax as jax, mpijax.numpy as jnp
x = np.linspace(0, 1, 1001, dtype=np.float32)
begin = time.perf_counter()
y = jax.jit(lambda x: jnp.sin(x) * x + jnp.sum(x))(x)
seconds = time.perf_counter() - begin
np.testing.assert_allclose(np.asarray(y), np.sin(x) * x + x.sum(), rtol=1e-5)
print(seconds)
"""

_BLAS = """
import ctypes, json, os
import numpy as np
from mpijax.runtime.machine import blas
blas.addresses()
def threads(file):
    library = ctypes.CDLL(file, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    for prefix, suffix in blas._NAMES:
        get = getattr(library, f"{prefix}openblas_get_num_threads{suffix}", None)
        if get is not None:
            return get()
info = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
found = [(os.path.basename(file), threads(file)) for file in blas.openblas_libraries()]
print(json.dumps({"name": info.get("name"), "version": info.get("version"), "libraries": found}))
"""


@dataclass(frozen=True)
class Finding:
    """A result of a check. state: OK, WARNING or ERROR. remedy: how to fix the problem."""

    check: str
    state: str
    text: str
    remedy: str = ""


def in_process(code: str, *arguments: str, **settings: str) -> tuple[str, str]:
    """(output, error) of Python code, or of a module given as ``-m``, in a separate process; one of them is ''."""
    words = [code, *arguments] if code == "-m" else ["-c", code, *arguments]
    try:
        ran = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, timeout=120, env=clean_environment() | settings
        )
    except subprocess.TimeoutExpired:
        return "", "it did not finish within 120 s"
    if ran.returncode == 0:
        return ran.stdout, ""
    said = (ran.stderr or ran.stdout).strip()
    raised = list(_RAISED.finditer(said))
    return "", said[raised[-1].start() :] if raised else said or f"it exited with status {ran.returncode}"


def versions() -> Iterator[Finding]:
    """The versions of mpijax, Python, and the packages it depends on."""
    from mpijax.version import __version__

    yield Finding("mpijax", OK, f"{__version__}, Python {sys.version.split()[0]}, {sys.prefix}")
    found = {}
    for name in ("numpy", "scipy", "numba", "llvmlite", "ml_dtypes", "mpi4py"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield Finding("packages", ERROR, f"{name} is not installed", f"pip install {name}")
    yield Finding("packages", OK, ", ".join(f"{k} {v}" for k, v in found.items()))


def as_jax() -> Finding:
    """What `import jax` imports, and how to make it mpijax."""
    follows = f"mpijax as jax {version.jax_version}"
    if "mpijax.as_jax" in sys.modules:
        return Finding("as jax", OK, f"MPIJAX_AS_JAX is set: `import jax` imports {follows}")
    if os.environ.get("MPIJAX_AS_JAX", "0") not in ("", "0"):
        return Finding(
            "as jax", WARNING, "MPIJAX_AS_JAX is set, but Python ignores it because mpijax_as_jax.pth is not installed",
            "install mpijax with pip, or start programs with python -m mpijax.as_jax",
        )  # fmt: skip
    found = importlib.util.find_spec("jax")
    given = f"imports JAX itself, {found.origin}" if found else "fails, because JAX is not installed"
    text = f"`import jax` {given}. With mpijax run --as-jax or MPIJAX_AS_JAX=1 it imports {follows}"
    return Finding("as jax", OK, text)


def compiler() -> Finding:
    """Whether a small program compiles, without the cache, and gives correct numbers."""
    output, error = in_process(_COMPILE, MPIJAX_CACHE="0")
    if error:
        return Finding("compiler", ERROR, f"a small program failed: {error}", _AGAIN)
    return Finding("compiler", OK, f"compiled and ran a small program in {float(output) * 1e3:.0f} ms")


def libraries(library: MpiLibrary, launcher: Launcher | NoLauncher) -> Iterator[Finding]:
    """The MPI library and its launcher."""
    abi = f", MPI ABI {library.abi[0]}.{library.abi[1]}" if library.abi[0] > 0 else ""
    standard = ".".join(map(str, library.standard))
    yield Finding("MPI library", OK, f"{library.name} (MPI {standard}{abi}), {', '.join(library.files)}")
    yield Finding("mpi4py", OK, f"{library.mpi4py}, {Path(library.module).name}")
    if isinstance(launcher, NoLauncher):
        text, _, remedy = str(launcher).partition("\n")
        yield Finding("launcher", ERROR, text, remedy)
    else:
        yield Finding("launcher", OK, f"{launcher.path} ({launcher.version}), of the same MPI")


def alone() -> Finding:
    """Whether MPI starts in a process without a launcher, and the thread level it gives."""
    wanted = json.dumps({"operations": [], "sizes": [], "seconds": 0})
    output, error = in_process("-m", "mpijax.cli.measure", wanted)
    if error:
        text, _, remedy = error.partition("\n")
        return Finding(
            "MPI start", ERROR, text, remedy or "MPI may not start on a login node: run this command in a job"
        )
    level = json.loads(output.partition(MARK)[2])["level"]
    if level == "MULTIPLE":
        remedy = (
            'set mpi4py.rc.thread_level = "serialized" before importing mpi4py.MPI, or unset MPI4PY_RC_THREAD_LEVEL'
        )
        return Finding(
            "MPI start", WARNING, "thread level MULTIPLE makes small messages slow: each one takes locks", remedy
        )
    return Finding("MPI start", OK, f"thread level {level}")


def environment() -> Iterator[Finding]:
    """Leftover variables of launchers, and thread counts that the user set too high."""
    stray = sorted(name for name in os.environ if name.startswith(RANK_VARIABLES))
    if stray and not is_rank():
        text = f"the environment has variables of a launcher, but no launcher started this process: {', '.join(stray)}"
        yield Finding("environment", WARNING, text, f"unset {' '.join(stray)}")
    count = len(cores.physical())
    for name in (*_THREAD_SETTINGS, "MPIJAX_NUM_THREADS"):
        value = os.environ.get(name, "")
        if value.isdigit() and int(value) > count:
            text = f"{name}={value}, but there are {count} cores"
            yield Finding(
                "environment", WARNING, text, f"unset {name}: each rank then uses one thread per core of its share"
            )


def machine(ranks: int) -> Iterator[Finding]:
    """Cores, affinity mask and CPU quota compared with the number of ranks; shared memory."""
    available, quota = cores.physical(), cores.quota()
    cpus = sorted(cpu for core in available for cpu in core)
    text = f"{len(available)} cores (CPUs {ranges(cpus)} of {os.cpu_count()})"
    if quota < len(available):
        text += f", with a quota of {quota:g} CPUs"
    room = min(len(available), int(quota)) or 1
    if ranks > room:
        remedy = f"use at most {room} ranks on this machine: ranks that share a core wait for each other"
        yield Finding("cores", WARNING, f"{text} for {ranks} ranks", remedy)
    else:
        yield Finding("cores", OK, f"{text} for {ranks} ranks")
    try:
        status = os.statvfs("/dev/shm")
    except OSError:
        return
    free = status.f_bavail * status.f_frsize
    if free < _SHARED_MEMORY:
        text = f"/dev/shm has only {free >> 20} MB free; MPI sends messages between ranks of a machine through it"
        yield Finding(
            "shared memory", WARNING, text, "delete files in /dev/shm, or start the container with --shm-size=1g"
        )
    else:
        yield Finding("shared memory", OK, f"/dev/shm has {free >> 20} MB free")


def shared_memory_left() -> Iterator[Finding]:
    """Segments of killed MPI jobs, which occupy memory."""
    paths = leftovers.abandoned()
    if paths:
        size, more = amount(leftovers.memory_of(paths)), ", ..." if paths[1:] else ""
        text = f"{len(paths)} unused segments of your ended MPI jobs take {size} of memory: {paths[0]}{more}"
        yield Finding("shared memory", WARNING, text, "run mpijax doctor --remove-leftovers")


def remove_shared_memory_left() -> Finding:
    """Remove the segments of killed MPI jobs."""
    paths = leftovers.abandoned()
    size = leftovers.memory_of(paths)
    for path in paths:
        path.unlink(missing_ok=True)
    text = f"removed {len(paths)} unused segments of your ended MPI jobs, {amount(size)}"
    return Finding("shared memory", OK, text if paths else "no unused segments of your ended MPI jobs")


def blas() -> Finding:
    """The BLAS in use and its threads, which should match this rank's share of the cores."""
    output, error = in_process(_BLAS)
    if error:
        return Finding("BLAS", ERROR, error, _AGAIN)
    found = json.loads(output)
    threads = [n for _, n in found["libraries"] if n]
    text = f"{found['name']} {found['version']}, " + (
        f"{max(threads)} threads" if threads else "number of threads unknown"
    )
    room = min(len(cores.physical()), int(cores.quota())) or 1
    if threads and max(threads) > 2 * room:
        return Finding("BLAS", WARNING, f"{text} on {room} cores", "unset OPENBLAS_NUM_THREADS and OMP_NUM_THREADS")
    return Finding("BLAS", OK, text)


def cache() -> Finding:
    """The folder of compiled programs: whether it exists, belongs to this user, and is closed to others."""
    from mpijax.compiler.backend.disk_cache import DiskCache

    disk = DiskCache.default()
    if disk is None:
        return Finding(
            "cache", WARNING, "off (MPIJAX_CACHE=0): every process compiles its programs again", "unset MPIJAX_CACHE"
        )
    folder = disk.folder
    move = "set MPIJAX_CACHE_DIR to another folder"
    try:
        status = folder.lstat()
    except OSError:
        return _cache_to_be(folder, move)
    if not stat.S_ISDIR(status.st_mode):
        return Finding("cache", ERROR, f"{folder} is not a folder, so mpijax does not cache compiled programs", move)
    if status.st_uid != os.geteuid():
        return Finding("cache", ERROR, f"{folder} belongs to user {status.st_uid}, so mpijax does not use it", move)
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        text = f"other users can access {folder} (mode {mode:o}), so mpijax may not use it"
        return Finding("cache", WARNING, text, f"chmod 700 {folder}")
    sizes = []
    for entry in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):  # another process has just renamed or removed it
            if entry.is_file(follow_symlinks=False):
                sizes.append(entry.stat().st_size)
    limit = config.compilation_cache_max_size.value
    room = f"limit {amount(limit)}" if limit > 0 else "no limit"
    text = f"{folder}: {len(sizes)} files, {amount(sum(sizes))} ({room}), accessible to you only (mode {mode:o})"
    if not os.access(folder, os.W_OK):
        return Finding("cache", WARNING, f"{folder} cannot be written", move)
    return Finding("cache", OK, text)


def _cache_to_be(folder: Path, move: str) -> Finding:
    above = next((p for p in folder.parents if p.exists()), Path("/"))
    if os.access(above, os.W_OK):
        return Finding("cache", OK, f"{folder}: empty; the first compilation creates it")
    return Finding("cache", WARNING, f"mpijax cannot create {folder}: {above} is not writable", move)


def pinning(found: dict[str, Any]) -> Finding:
    """Whether the started ranks have disjoint CPUs."""
    masks = [frozenset(r["cpus"]) for r in found["ranks"]]
    shown = "; ".join(f"rank {i}: CPUs {ranges(mask)}, {r['threads']} threads"
                      for i, (mask, r) in enumerate(zip(masks, found["ranks"], strict=True)))  # fmt: skip
    apart = sum(map(len, masks)) == len(frozenset().union(*masks))
    if apart or found["yields"] or cores.quota() < len(cores.physical()):
        return Finding("pinning", OK, shown)
    return Finding("pinning", WARNING, f"ranks share CPUs ({shown})", "mpijax run --bind core; see docs/launching.md")


def speed(found: dict[str, Any]) -> Iterator[Finding]:
    """Latency compared with mpi4py's own call, bandwidth compared with memory speed."""
    small, large = found["rows"][0], found["rows"][-1]
    text = f"allreduce of {small['bytes']} bytes: {small['us']:.2f} µs (mpi4py's: {found['mpi4py_us']:.2f} µs)"
    busy = (
        "check with top whether other processes use these cores; pin ranks (--bind core); use at most one rank per core"
    )
    slow = not found["yields"] and small["us"] > max(10.0, 3 * found["mpi4py_us"])
    yield Finding("latency", WARNING, text, busy) if slow else Finding("latency", OK, text)
    rate = large["MB/s"]
    text = (f"allreduce of {amount(large['bytes'])}: {rate:,.0f} MB/s "
            f"(copying in memory: {found['copy_MB/s']:,.0f} MB/s)")  # fmt: skip
    if rate < found["copy_MB/s"] / 40:
        remedy = "MPI may use a network device for messages within the machine: with MPICH, try UCX_TLS=posix,cma,self"
        yield Finding("bandwidth", WARNING, text, f"{remedy}, and {busy}")
    else:
        yield Finding("bandwidth", OK, text)
