"""Memory that ranks of a node share has no name, not even while it is made: a job that is killed leaves none."""

import pytest
from launching import marked
from mpi.jobs import START, Job, run_once
from once import shared_folder

WAITS = """
def names(process):
    folder = f"/proc/{process}/fd"
    found = [os.readlink(f"{folder}/{number}") for number in os.listdir(folder) if os.path.islink(f"{folder}/{number}")]
    return [name for name in found if "/mpijax-" in name]
process, before = MPI.COMM_WORLD.bcast((os.getpid(), len(names(os.getpid()))))
if rank:
    end = time.monotonic() + 20
    while len(names(process)) == before and time.monotonic() < end:  # rank 0 makes the memory of the allreduce
        time.sleep(0.01)
    found = names(process)
    print("named", [name for name in found if not name.endswith("(deleted)")], len(found) - before, flush=True)
total(x)
print("mapped", sum("/mpijax-" in line for line in open("/proc/self/maps")) > 1)
"""


@marked
@pytest.mark.slow  # by default tests/runtime/reports/test_watchdog.py looks for names
def test_the_memory_that_a_rank_makes_has_no_name(tmp_path_factory):
    [ran] = run_once({"waits": Job(WAITS, settings={"MPIJAX_GUARD": "0"}, start=START)}, shared_folder(tmp_path_factory, "node memory")).values()
    assert ran.status == 0 and "named [] 1" in ran.output and ran.output.count("mapped True") == 2, ran.output
