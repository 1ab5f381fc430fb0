"""What belongs to a communicator goes when it is freed, however many there are one after the other."""

from __future__ import annotations

import pytest
from launching import marked
from mpi.jobs import START, Job, run_once
from once import shared_folder

COUNT = 800
MANY = f"""
import gc
def memory():
    gc.collect()
    return int(open('/proc/self/statm').read().split()[1]) * os.sysconf('SC_PAGE_SIZE')
def use(n):
    for _ in range(n):
        comm = MPI.COMM_WORLD.Dup()
        mpi.allreduce(x, MPI.SUM, comm=comm)
        comm.Free()
use(700)  # the last operations and their places are kept
before = memory()
use({COUNT})
sys.stdout.write(f'each {{(memory() - before) / {COUNT}:.0f}} bytes\\n')
"""
# Bytes that may stay for each: none does, but memory is taken in pieces.
LEFT = 1500


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    return run_once({"many": Job(MANY, start=START)}, shared_folder(tmp_path_factory, "freed"))


@marked
@pytest.mark.slow
def test_freed_communicators_leave_no_memory(outcomes):
    found = outcomes["many"]
    assert found.status == 0, found.output
    grown = [int(line.split()[1]) for line in found.output.splitlines() if line.startswith("each ")]
    assert len(grown) == 2 and max(grown) < LEFT
