"""`distributed.should_stop` under mpirun: all ranks stop at the same step."""

import os
import subprocess
import sys

import pytest
from launching import MPIRUN, mpirun

from mpijax.distributed import launchers

PROGRAM = """
import os, signal, sys
import mpijax
number, rank_hit = getattr(signal, sys.argv[1]), int(sys.argv[2])
seen = []
signal.signal(number, lambda *_: seen.append("previous"))
rank = mpijax.process_index()
assert not mpijax.distributed.should_stop()
for step in range(100):
    if step == 7 and rank == rank_hit:
        os.kill(os.getpid(), number)
    if mpijax.distributed.should_stop():
        break
assert mpijax.distributed.should_stop()
sys.stdout.write(f"rank {rank} stops at {step} {seen}\\n")
"""


@pytest.mark.skipif(MPIRUN is None or launchers.under_launcher(), reason="starts mpirun itself")
@pytest.mark.parametrize("number, rank", [("SIGTERM", 1), ("SIGUSR2", 0)])
@pytest.mark.one_in(2)
def test_all_ranks_stop_at_the_same_step(number, rank):
    command = [*mpirun(2), sys.executable, "-c", PROGRAM, number, str(rank)]
    env = launchers.outside(os.environ)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    expected = [f"rank {each} stops at 7 {['previous'] if each == rank else []}" for each in range(2)]
    assert sorted(done.stdout.split("\n"))[1:] == expected
