"""A rank's share of the CPUs."""

import pytest

from mpijax.runtime.machine import cpus

INF = float("inf")


@pytest.mark.parametrize(
    "mask, machine, quota, ranks, share",
    [
        (8, 8, INF, 1, 8),  # a laptop
        (8, 8, INF, 4, 2),  # mpirun -n 4 without binding: every rank sees all
        (2, 8, INF, 4, 2),  # bound by the launcher
        (1, 64, INF, 64, 1),
        (8, 8, INF, 16, 1),  # oversubscribed
        (64, 64, 2.0, 1, 2),  # a container with two CPUs' worth of time
        (64, 64, 2.0, 4, 1),
        (16, 64, INF, 8, 2),  # a Slurm cgroup of 16 CPUs shared by 8 tasks
    ],
)
def test_share(mask, machine, quota, ranks, share):
    assert cpus.share(mask, machine, quota, ranks) == share


@pytest.mark.parametrize(
    "environment, ranks",
    [
        ({}, 1),
        ({"MPI_LOCALNRANKS": "4"}, 4),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "3"}, 3),
        ({"SLURM_STEP_TASKS_PER_NODE": "4(x2),3"}, 4),
    ],
)
def test_local_ranks(monkeypatch, environment, ranks):
    for name in (*cpus._LOCAL_SIZE_VARIABLES, "SLURM_STEP_TASKS_PER_NODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cpus.local_ranks() == ranks


@pytest.mark.parametrize("text, quota", [("max 100000\n", INF), ("150000 100000\n", 1.5), ("", INF)])
def test_cgroup_cpus(tmp_path, text, quota):
    (tmp_path / "cpu.max").write_text(text)
    assert cpus.cgroup_cpus(str(tmp_path / "cpu.max")) == quota
    assert cpus.cgroup_cpus(str(tmp_path / "missing")) == INF


def test_threads_from_the_environment(monkeypatch):
    monkeypatch.setenv("MPIJAX_NUM_THREADS", "3")
    assert cpus.cpus_per_rank() == 3
    monkeypatch.setenv("MPIJAX_NUM_THREADS", "many")
    with pytest.raises(
        ValueError, match="MPIJAX_NUM_THREADS must be a whole number of at least 1, got 'many'"
    ):
        cpus.cpus_per_rank()
