"""The environment variables with which launchers connect a process to its job."""

import os
import sys
from collections.abc import Mapping

# A process with one of these is connected to its launcher. Size variables alone (SLURM_NTASKS in an allocation's shell,
# leftovers of a parent) do not mean a connection.
_CONNECTIONS = ("PMI_FD", "PMI_PORT", "PMIX_NAMESPACE", "OMPI_COMM_WORLD_SIZE", "PALS_RANKID", "FLUX_TASK_RANK")
_OF_LAUNCHERS = ("PMI_", "PMIX_", "PMI2_", "OMPI_", "PRTE_", "PALS_", "HYDI_", "HYDRA_", "MPIR_", "FLUX_TASK_")
_SIZES = ("SLURM_STEP_NUM_TASKS", "FLUX_JOB_SIZE")


def under_launcher() -> bool:
    """Whether a launcher expects this process to start MPI."""
    return any(name in os.environ for name in _CONNECTIONS)


def outside(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` for a Python process outside of this job that finds the same modules."""
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith(_OF_LAUNCHERS) and name not in _SIZES
    }
    kept["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return kept
