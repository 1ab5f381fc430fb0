"""How much memory this rank may use, and programs that need more."""

from __future__ import annotations

import os
from functools import cache

from mpijax.compiler.plan import Plan
from mpijax.core.errors import JaxRuntimeError

_CGROUP_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@cache
def memory_limit() -> int:
    """Bytes this rank may use: the node's (or cgroup's) memory over the ranks of the node.

    `MPIJAX_MEMORY_LIMIT` (bytes) overrides.
    """
    given = os.environ.get("MPIJAX_MEMORY_LIMIT")
    if given:
        return int(float(given))
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _CGROUP_FILES:
        try:
            with open(path) as file:
                text = file.read().strip()
        except OSError:
            continue
        if text.isdigit():
            total = min(total, int(text))
    return total // ranks_per_node()


def ranks_per_node() -> int:
    """Ranks that share this node, as far as the launcher's variables tell; 1 outside of a job."""
    for name in ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE"):
        text = os.environ.get(name, "")
        if text.isdigit() and int(text) > 0:
            return int(text)
    return 1


def check_memory(plan: Plan, name: str) -> None:
    """Raise JaxRuntimeError for a program whose buffers together exceed the rank's memory, naming the largest."""
    needed = plan.arena + sum(b.nbytes for b in plan.buffers if b.kind in ("input", "output") and b.donor < 0)
    limit = memory_limit()
    if needed <= limit:
        return
    lines = []
    for nbytes, value in plan.largest:
        source = value.producer.source if value.producer is not None else None
        where = f" made at {source}" if source is not None and source.file else f" ({value.kind} {value.position})"
        lines.append(f"  {nbytes / 2**30:8.3f} GiB  {value.aval.str_short()}{where}")
    raise JaxRuntimeError(
        f"RESOURCE_EXHAUSTED: program {name!r} needs {needed / 2**30:.2f} GiB ({needed} bytes), and this rank may use "
        f"{limit / 2**30:.2f} GiB. Largest buffers:\n" + "\n".join(lines) + "\n"
        "Use smaller or fewer arrays, float32 or bfloat16 instead of wider types, donate_argnums, or more ranks. "
        "MPIJAX_MEMORY_LIMIT=<bytes> sets another limit."
    )
