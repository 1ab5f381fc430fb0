"""What happens to a job when a rank fails, is late, or leaves at once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launching import mpirun, starts_jobs

ROOT = Path(__file__).parents[2]
LAUNCHER = ("PMI_", "PMIX_", "OMPI_", "HYDRA_", "HYDI_", "MPI_")

pytestmark = starts_jobs

START = """
import sys, time
import numpy as np
import mpijax as jax
from mpijax import lax
from mpijax.sharding import PartitionSpec as P
rank, size = jax.process_index(), jax.process_count()
f = jax.jit(jax.shard_map(lambda x: lax.psum(x, "i"), mesh=jax.make_mesh((size,), ("i",)), in_specs=P("i"), out_specs=P()))
x = np.arange(2 * size, dtype=np.float32)
"""


def job(body: str, ranks: int = 2, limit: float = 40):
    """(exit status, output, seconds)"""
    env = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHER)}
    env["PYTHONPATH"] = str(ROOT)
    began = time.monotonic()
    done = subprocess.run(
        [*mpirun(ranks), sys.executable, "-c", START + body], env=env, timeout=limit, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT,
    )  # fmt: skip
    return done.returncode, done.stdout, time.monotonic() - began


def test_one_rank_raising_ends_the_job():
    status, output, seconds = job("""
f(x)
print("began", time.time(), flush=True)
if rank == 1:
    raise ValueError("rank one is unwell")
f(x)
""")
    assert status != 0 and seconds < 30
    assert (
        output.count("ValueError: rank one is unwell") == 1 and output.count("Traceback (most recent call last)") == 1
    )
    assert "[rank 1]" in output


def test_a_late_rank_is_waited_for():
    status, output, _ = job(
        """
for k in range(size):
    if rank == k:
        time.sleep(0.5)
    assert np.asarray(f(x)).tolist() == x.reshape(size, 2).sum(0).tolist()
print("right")
""",
    )
    assert status == 0 and output.count("right") == 2, output


@pytest.mark.slow  # by default many jobs of other files end so
def test_leaving_right_after_a_collective():
    """At the end of the program, and by `sys.exit`."""
    status, output, _ = job("f(x); print('done', flush=True)\nif rank: sys.exit(0)")
    assert status == 0 and output.count("done") == 2, output
