"""What every test run needs: alone, and as one of several ranks under ``mpirun ... pytest --with-mpi -m
mpi``.

Under several ranks only rank 0 reports progress and the summary; any rank prints its failures at once, tagged
with its number, because the other ranks may by then wait for it in a collective until the timeout ends the
job.
"""

import io
import os
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import budget
import mpi4py
import pytest
import quickly
from launching import PATHS
from processes import sitecustomize  # noqa: F401  for this process, too

# pytest-mpi imports mpi4py.MPI, which starts MPI: with the thread level that mpijax asks for.
mpi4py.rc.thread_level = "serialized"

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # of the oracle
# The oracle computes a few numbers once: with these options XLA compiles in two fifths of the time.
os.environ["XLA_FLAGS"] = " ".join([
    os.environ.get("XLA_FLAGS", ""),
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
]).strip()  # fmt: skip
CACHE = Path(__file__).parent.parent / "build" / "test-cache"
os.environ.setdefault("MPIJAX_CACHE_DIR", str(CACHE))
# Kernels of users: Numba then compiles them in two thirds of the time.
os.environ.setdefault("NUMBA_OPT", "1")
# A thread of OpenBLAS with nothing to do sleeps at once: else it spins for a third of the time that NumPy takes to load.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

# Tests start several hundred processes. Each would compile all of mpijax's modules again where the environment keeps
# Python from writing what it has compiled; that is more than half of the time a rank takes to start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ["PYTHONPATH"] = os.pathsep.join([PATHS, *filter(None, [os.environ.get("PYTHONPATH")])])
# Ranks of a job that a test starts print each line in one piece: unbuffered, the words of two ranks would mix.
os.environ.pop("PYTHONUNBUFFERED", None)

# The launchers say which rank this is before MPI starts: MPICH and its relatives, Open MPI, Slurm.
RANK = int(
    next((os.environ[v] for v in ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK") if v in os.environ), 0)
)
SIZE = int(next((os.environ[v] for v in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE") if v in os.environ), 1))
# On more than two ranks, of each test that is not marked `many_ranks` one case in so many runs.
ON_MORE_RANKS = 3


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="also run tests marked slow")
    parser.addoption("--every-case", action="store_true", help="also run cases that one_in(n) or the number of ranks leaves out")


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    config.pluginmanager.register(budget, "budget")
    if SIZE > 1:
        # A folder of its own for each rank: two ranks clearing the same numbered folders would race.
        from mpijax.cli.scratch import scratch

        own = config.stash[OWN_TMP] = scratch(f"tests-{RANK}")
        config.option.basetemp = own.__enter__() / "tmp"  # pytest empties it
        from mpijax.runtime.reports import watchdog  # after the settings above

        # pytest keeps what tests print, and loses it where a rank ends its process.
        watchdog.stream = os.fdopen(os.dup(2), "w")
    if RANK > 0:
        config.pluginmanager.getplugin("terminalreporter")._tw._file = io.StringIO()


OWN_TMP = pytest.StashKey[AbstractContextManager]()


def pytest_unconfigure(config):
    if OWN_TMP in config.stash:
        config.stash[OWN_TMP].__exit__(None, None, None)


def pytest_ignore_collect(collection_path, config):
    """`-m mpi`, on several ranks: files without such tests are not even imported."""
    if config.option.markexpr == "mpi" and collection_path.suffix == ".py":
        return "mark.mpi" not in collection_path.read_text() or None
    return None


class _FolderOfMpi(pytest.Dir):
    """A folder `mpi`. The name of a node is a keyword of its tests, and in one process pytest-mpi skips those with `mpi`."""

    def __init__(self, path, **rest):
        super().__init__(path=path, name=f"{path.name}/", **rest)


def pytest_collect_directory(path, parent):
    return _FolderOfMpi.from_parent(parent, path=path) if path.name == "mpi" else None


def _mark_slow(items):
    for item in items:
        item.add_marker(pytest.mark.slow)


def pytest_collection_modifyitems(config, items):
    if SIZE > 1:
        quickly.sweep_products(items)
    if SIZE > 2:
        _mark_slow([item for item in items if item.get_closest_marker("two_ranks")])
    _mark_slow(quickly.cases_of_sweeps(items)[1])
    if not config.getoption("--every-case"):
        _mark_slow(quickly.left_out_of_samples(items))
        if SIZE > 2:
            _mark_slow(quickly.left_out_of_samples(items, ON_MORE_RANKS))
    slow = [] if config.getoption("--slow") else [item for item in items if "slow" in item.keywords]
    if len(slow) == len(items):  # what somebody asked for by name: pytest shows the reason
        for item in slow:
            item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))
    elif slow:  # to skip a test takes 2 ms, and there are thousands
        left_out = set(slow)
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=slow)


def pytest_collection_finish():
    quickly.collect_garbage_less_often()


def pytest_runtest_setup():
    quickly.quicken_jax(CACHE.with_name("jax-cache"))  # which some tests import only when they run


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    if nextitem is None or nextitem.path != item.path:
        quickly.collect_garbage_less_often()


def pytest_runtest_logreport(report):
    if SIZE > 1 and report.failed:
        text = f"\n[rank {RANK}] {report.nodeid} failed in {report.when}:\n{report.longreprtext}"
        sys.__stderr__.write(text.replace("\n", f"\n[rank {RANK}] ") + "\n")
        sys.__stderr__.flush()
