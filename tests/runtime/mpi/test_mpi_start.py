"""When MPI starts, and how a job ends: programs of their own, some under mpirun."""

import os
import subprocess
import sys

import pytest
from launching import is_open_mpi, mpirun, starts_jobs

pytestmark = starts_jobs


def run(source, ranks=None, **environment):
    command = [sys.executable, "-c", source]
    if ranks:
        command = [*mpirun(ranks), *command]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )


def test_importing_does_not_start_mpi():
    done = run(
        "import sys; from mpijax.runtime.arrays import devices; from mpijax.runtime.mpi import mpi_start; devices.default_backend();"
        "assert 'mpi4py' not in sys.modules and not mpi_start.started()"
    )
    assert done.returncode == 0, done.stderr


def test_an_uncaught_exception_ends_the_job_with_that_ranks_traceback():
    done = run(
        "from mpijax.runtime.mpi import mpi_start as m\n"
        "if m.rank() == 1: raise ValueError('this rank alone')\n"
        "m.world().Barrier()\n",
        ranks=3,
    )
    assert done.returncode != 0
    assert done.stderr.count("ValueError: this rank alone") == 1
    assert "[rank 1] ValueError: this rank alone" in done.stderr


def test_another_librarys_traceback_is_kept():
    done = run(
        "import sys; sys.excepthook = lambda *a: print('PRETTY', a[1], file=sys.stderr)\n"
        "from mpijax.runtime.mpi import mpi_start as m\n"
        "if m.rank() == 0: raise ValueError('x')\n"
        "m.world().Barrier()\n",
        ranks=2,
    )
    assert (
        done.returncode != 0
        and "PRETTY x" in done.stderr
        and "[rank 0] ended by the exception above" in done.stderr
    )


@pytest.mark.skipif(is_open_mpi(), reason="Open MPI's ranks are told by another protocol")
def test_a_process_that_a_rank_starts_is_alone():
    done = run(
        "import subprocess, sys\n"
        "from mpijax.runtime.mpi import mpi_start as m\n"
        "code = 'from mpijax.runtime.mpi import mpi_start as m; print(m.rank(), m.size())'\n"
        "child = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)\n"
        "assert m.size() == 2 and child.stdout == '0 1\\n', (child.stdout, child.stderr)\n"
        "m.world().Barrier()\n",
        ranks=2,
    )
    assert done.returncode == 0, done.stderr


def test_alone_an_exception_is_pythons_own():
    done = run("from mpijax.runtime.mpi import mpi_start as m; m.rank(); raise ValueError('alone')")
    assert done.returncode == 1 and "[rank" not in done.stderr and done.stderr.endswith("ValueError: alone\n")


def test_an_mpi_that_runs_already_is_used():
    done = run(
        "from mpi4py import MPI; level = MPI.Query_thread()\n"
        "from mpijax.runtime.mpi import mpi_start as m\n"
        "assert m.size() == 1 and MPI.Query_thread() == level"
    )
    assert done.returncode == 0, done.stderr


def test_mpi4py_that_does_not_initialize_is_initialized():
    done = run(
        "import mpi4py; mpi4py.rc.initialize = False; mpi4py.rc.finalize = True\n"
        "from mpijax.runtime.mpi import mpi_start as m\n"
        "assert m.size() == 1 and m.start().MPI.Query_thread() == m.start().MPI.THREAD_SERIALIZED"
    )
    assert done.returncode == 0, done.stderr


def test_after_finalize_there_is_a_message():
    done = run("from mpi4py import MPI; MPI.Finalize(); from mpijax.runtime.mpi import mpi_start as m; m.size()")
    assert "RuntimeError: MPI has been finalized" in done.stderr


def test_a_launcher_of_another_mpi_is_an_error():
    """Each process would be rank 0 of 1 and do all the work."""
    done = run("from mpijax.runtime.mpi import mpi_start as m; m.size()", OMPI_COMM_WORLD_SIZE="4", PMI_SIZE="")
    assert done.returncode != 0
    assert "started 4 processes (OMPI_COMM_WORLD_SIZE=4), but MPI sees only one" in done.stderr


def test_no_mpi_library_is_an_error_that_says_what_to_install():
    done = run("from mpijax.runtime.mpi import mpi_start as m; m.size()", MPI4PY_LIBMPI="/nonexistent/libmpi.so")
    assert (
        "RuntimeError: mpijax could not load an MPI library" in done.stderr and "pip install mpich" in done.stderr
    )


@pytest.mark.parametrize(
    "wait, ranks, yields",
    [("block", 2, "False False"), pytest.param("yield", 2, "True True", marks=pytest.mark.slow), ("", 2 * (os.cpu_count() or 1), "True True")],
)
@pytest.mark.one_in(2)
def test_waiting_is_decided_once(wait, ranks, yields):
    if ranks > 16:
        pytest.skip("too many cores to oversubscribe in a test")
    source = (
        "import sys; from mpijax.runtime.mpi import mpi_start as m; s = m.start()\n"
        "sys.stdout.write(f'{s.yields} {s.ext.yielding()}\\n')"
    )
    done = run(source, ranks, MPIJAX_WAIT=wait)
    assert done.stdout.splitlines() == [yields] * ranks, done.stderr


def test_an_unknown_way_of_waiting():
    done = run("from mpijax.runtime.mpi import mpi_start as m; m.size()", MPIJAX_WAIT="sleep")
    assert "ValueError: MPIJAX_WAIT must be 'block' or 'yield', got 'sleep'" in done.stderr
