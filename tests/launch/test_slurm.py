"""launch/slurm.sh and `mpijax submit` on Debian's real Slurm, on this machine."""

import os
import re
import sys
from pathlib import Path

import pytest
from launching import PATHS, UNDER_LAUNCHER, is_open_mpi

from launch import slurm
from mpijax.runtime.machine import leftovers

ROOT = Path(__file__).parents[2]
PROGRAM = """
import os, sys
import numpy as np
import mpijax as jax
from mpijax import mpi
rank = jax.process_index()
total = int(mpi.allreduce(np.int32(rank + 1), "SUM"))
cores = sorted(os.sched_getaffinity(0))
sys.stdout.write(f"rank {rank} of {jax.process_count()}: {total} {cores} {sys.argv[1:]}\\n")
first = "SLURM_RESTART_COUNT" not in os.environ
if rank == 1 and ("fail" in sys.argv or first and "once" in sys.argv):
    raise ValueError("on rank 1")
mpi.barrier()
"""

pytestmark = [
    pytest.mark.skipif(UNDER_LAUNCHER, reason="starts jobs itself"),
    pytest.mark.skipif(bool(slurm.missing()), reason=slurm.missing() or "there is one"),
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two ranks with a core of their own each"),
    pytest.mark.skipif(is_open_mpi(), reason="Debian's Slurm has no PMIx that Open MPI's wheel speaks"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "program.py").write_text(PROGRAM)
    with slurm.running(folder) as found:
        found.env["PYTHONPATH"] = PATHS
        yield found


# What srun says where its two daemons do not find time for each other on a busy machine. Such a run is begun again.
TOO_BUSY = "mpi/pmi2: failed to send temp kvs to compute nodes"
ATTEMPTS = 4


def submitted(cluster, *words, **settings):
    """(job, state, output) of what a command submits."""
    for _ in range(ATTEMPTS):
        done = cluster.run(*words, **settings)
        assert done.returncode == 0, done.stderr
        job = re.search(r"Submitted batch job (\d+)", done.stdout)[1]
        state, output = cluster.output_of(job)
        if TOO_BUSY not in output:
            break
    return job, state, output


def ranks_in(output, arguments):
    """The cores of each rank, where both ranks report what they should."""
    found = re.findall(r"^rank (\d) of 2: 3 \[([\d, ]+)\] (.*)$", output, re.MULTILINE)
    assert sorted(rank for rank, _, _ in found) == ["0", "1"], output
    assert {a for _, _, a in found} == {str(arguments)}
    return [set(cores.split(", ")) for _, cores, _ in found]


def test_the_script_as_it_is(cluster):
    shape = ["--nodes=1", "--ntasks-per-node=2", "--cpus-per-task=1"]
    words = ["sbatch", *shape, str(ROOT / "launch/slurm.sh"), "program.py", "a b"]
    _, state, output = submitted(cluster, *words, MPIJAX_VENV=sys.prefix)
    first, second = ranks_in(output, ["a b"])
    assert state == "COMPLETED" and not first & second


def test_submit(cluster):
    words = "-m mpijax submit --scheduler slurm --nodes 1 --ranks-per-node 2 --time 5 program.py --x".split()
    _, state, output = submitted(cluster, sys.executable, *words)
    ranks_in(output, ["--x"])
    assert state == "COMPLETED"


def test_a_rank_that_fails_ends_the_job(cluster):
    words = "-m mpijax submit --scheduler slurm --nodes 1 --ranks-per-node 2 --time 5 program.py fail".split()
    _, state, output = submitted(cluster, sys.executable, *words)
    assert state == "FAILED" and output.count("[rank 1] ValueError: on rank 1") == 1


def test_a_job_that_is_requeued_does_not_join_the_segments_of_its_first_run(cluster):
    words = "-m mpijax submit --scheduler slurm --nodes 1 --ranks-per-node 2 --time 5 program.py once".split()
    job, state, _ = submitted(cluster, sys.executable, *words)
    assert state == "FAILED"
    left = list(leftovers.segments(f"{job}.0"))
    assert left, os.listdir(leftovers.FOLDER)
    cluster.requeue(job)
    state, output = cluster.output_of(job)
    ranks_in(output, ["once"])
    assert state == "COMPLETED", output


def test_a_protocol_that_mpi_does_not_speak_is_told(cluster):
    done = cluster.run("srun", "--mpi=none", "-n", "2", sys.executable, "program.py")
    assert done.returncode != 0
    assert "srun started 2 processes" in done.stderr and "try srun --mpi=pmi2" in done.stderr


def test_variables_of_an_allocation_do_no_harm(cluster):
    """A program that the batch script itself runs is alone, and can start ranks of its own."""
    alone = cluster.folder / "alone.sh"
    alone.write_text(f"#!/bin/sh\n{sys.executable} -c 'import mpijax; print(mpijax.process_count())'\n"
                     f"{sys.executable} -m mpijax run -n 2 program.py in\n")  # fmt: skip
    _, state, output = submitted(cluster, "sbatch", "--ntasks=2", str(alone))
    assert state == "COMPLETED" and output.startswith("1\n"), output
    assert len(re.findall(r"rank \d of 2: 3 .*\['in'\]$", output, re.MULTILINE)) == 2, output
