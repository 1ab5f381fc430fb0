"""The physical cores of this machine that a job may use."""

from __future__ import annotations

import os
from pathlib import Path

from mpijax.runtime.machine.cpus import affinity, cgroup_cpus


def physical(topology: str = "/sys/devices/system/cpu") -> list[list[int]]:
    """The CPUs (hardware threads) of each core in this process's affinity mask; cores are ordered by socket."""
    found: dict[tuple[int, int], list[int]] = {}
    for cpu in sorted(affinity()):
        folder = Path(topology, f"cpu{cpu}", "topology")
        try:
            key = tuple(int((folder / name).read_text()) for name in ("physical_package_id", "core_id"))
        except (OSError, ValueError):
            key = (0, cpu)
        found.setdefault((key[0], key[1]), []).append(cpu)
    return [found[key] for key in sorted(found)]


def quota() -> float:
    """The CPU time per second that this container may use; at most its number of CPUs."""
    return min(cgroup_cpus(), float(len(affinity())))


def several_machines() -> bool:
    """Whether this is a scheduler's allocation of several machines, whose cores cannot be counted from here."""
    if int(os.environ.get("SLURM_JOB_NUM_NODES") or 1) > 1 and "SLURM_JOB_ID" in os.environ:
        return True
    nodes = os.environ.get("PBS_NODEFILE")
    if nodes and os.path.isfile(nodes):
        return len(set(Path(nodes).read_text().split())) > 1
    return len((os.environ.get("LSB_MCPU_HOSTS") or "").split()) > 2
