"""Which CPUs this process may use, and how many ranks share them; all without MPI.

Threads that share a core with another rank are worse than no threads: while one rank waits in MPI it polls.
So a rank counts its share of the CPUs, not all that it can see.
"""

import os

# How launchers tell the number of ranks on this node, before MPI starts: MPICH/Hydra, Open MPI, MVAPICH,
# Slurm, Flux.
_LOCAL_SIZE_VARIABLES = (
    "MPI_LOCALNRANKS",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MV2_COMM_WORLD_LOCAL_SIZE",
    "PALS_LOCAL_SIZE",
)


def affinity() -> frozenset[int]:
    """The CPUs that the affinity mask (taskset, the launcher's binding, a cgroup's cpuset) leaves to this
    process."""
    return frozenset(os.sched_getaffinity(0))


def cgroup_cpus(path: str = "/sys/fs/cgroup/cpu.max") -> float:
    """The CPU time per second that the container may use (cgroup v2 ``cpu.max``); inf where there is no such
    bound."""
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
    """CPUs for one of `ranks` processes on a node of `machine_size` CPUs, of which the process may use
    `mask_size`.

    A mask smaller than the machine divided among the ranks was made for this rank; any larger one is shared.
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
