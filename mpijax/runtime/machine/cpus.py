"""Counts the CPUs that this process may use, and the ranks that share them, without MPI.

A thread that shares a core with another rank slows both down, because a rank that waits in MPI polls. So a rank uses
its share of the CPUs, not all CPUs it can see.
"""

import os

# Variables in which launchers give the number of ranks on this node, before MPI starts: MPICH/Hydra, Open MPI, MVAPICH,
# Slurm, Flux.
_LOCAL_SIZE_VARIABLES = (
    "MPI_LOCALNRANKS",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MV2_COMM_WORLD_LOCAL_SIZE",
    "PALS_LOCAL_SIZE",
)


def affinity() -> frozenset[int]:
    """The CPUs in this process's affinity mask, which taskset, the launcher's binding or a cgroup's cpuset sets."""
    return frozenset(os.sched_getaffinity(0))


def cgroup_cpus(path: str = "/sys/fs/cgroup/cpu.max") -> float:
    """The CPU time per second that the container may use (cgroup v2 ``cpu.max``); inf without a limit."""
    try:
        with open(path) as file:
            quota, period = file.read().split()[:2]
        return float("inf") if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return float("inf")


def local_ranks() -> int:
    """The number of ranks on this node according to the launcher's environment; 1 without a launcher."""
    for name in _LOCAL_SIZE_VARIABLES:
        if os.environ.get(name, "").isdigit():
            return max(1, int(os.environ[name]))
    if os.environ.get("SLURM_STEP_TASKS_PER_NODE"):  # "4(x2),3": this node's entry is close to the first
        first = os.environ["SLURM_STEP_TASKS_PER_NODE"].split(",")[0].split("(")[0]
        return max(1, int(first)) if first.isdigit() else 1
    return 1


def share(mask_size: int, machine_size: int, quota: float, ranks: int) -> int:
    """The CPUs for one of `ranks` processes on a node of `machine_size` CPUs whose affinity mask has `mask_size` CPUs.

    A mask of at most an equal share of the machine belongs to this rank alone; ranks share a larger one.
    """
    own = mask_size if mask_size * ranks <= machine_size else max(1, mask_size // ranks)
    return max(1, min(own, int(quota / ranks) if quota != float("inf") else own))


def cpus_per_rank() -> int:
    """The threads that a rank may use without disturbing the others; ``MPIJAX_NUM_THREADS`` overrides it."""
    given = os.environ.get("MPIJAX_NUM_THREADS", "").strip()
    if given:
        if not given.isdigit() or int(given) < 1:
            raise ValueError(f"MPIJAX_NUM_THREADS must be a whole number of at least 1, got {given!r}")
        return int(given)
    return share(len(affinity()), os.cpu_count() or 1, cgroup_cpus(), local_ranks())
