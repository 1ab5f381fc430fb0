"""Computes how much memory this rank may use, and rejects programs that need more."""

from __future__ import annotations

import os
from functools import cache

from mpijax.compiler.steps.instructions import Input, Output
from mpijax.compiler.steps.plan import ProgramPlan
from mpijax.core.base import config
from mpijax.core.base.errors import JaxRuntimeError
from mpijax.core.base.warn import warn_user

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
    """The number of ranks on this node according to the launcher's environment; 1 outside of a job."""
    for name in ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE"):
        text = os.environ.get(name, "")
        if text.isdigit() and int(text) > 0:
            return int(text)
    return 1


def check_memory(plan: ProgramPlan, name: str) -> None:
    """Raise JaxRuntimeError if a program's buffers exceed the rank's memory; the error lists the largest ones."""
    arguments = sum(b.nbytes for b in plan.buffers if isinstance(b, Input))
    needed = plan.arena + arguments + sum(b.nbytes for b in plan.buffers if isinstance(b, Output) and b.donor < 0)
    limit = memory_limit()
    if needed <= limit:
        return
    lines = []
    for nbytes, value in plan.largest:
        if value is None:  # scratch memory of a step, which holds no value of the program
            lines.append(f"  {nbytes / 2**30:8.3f} GiB  of working memory of a step")
            continue
        source = value.producer.source if value.producer is not None else None
        where = f" made at {source}" if source is not None and source.file else f" ({value.kind} {value.position})"
        lines.append(f"  {nbytes / 2**30:8.3f} GiB  {value.aval.str_short(True)}{where}")
    raise JaxRuntimeError(
        f"RESOURCE_EXHAUSTED: program {name!r} needs {needed / 2**30:.2f} GiB ({needed} bytes), but this rank may use "
        f"only {limit / 2**30:.2f} GiB. Largest buffers:\n"
        + "\n".join(lines)
        + "\n"
        "Use smaller or fewer arrays, float32 or bfloat16 instead of wider dtypes, donate_argnums, or more ranks. "
        "MPIJAX_MEMORY_LIMIT=<bytes> sets another limit."
    )


def gather_limit() -> int:
    """Bytes above which gathering a split array is reported: 1 GiB, or half of this rank's memory if that is less."""
    return min(2**30, memory_limit() // 2)


def check_gathers(plan: ProgramPlan, name: str) -> None:
    """Warn or raise, as `mpijax_gather` says, if a program gathers a large split array on every rank."""
    large = [g for g in plan.gathered if g.nbytes > gather_limit()]
    how = config.values.mpijax_gather
    if not large or how == "allow":
        return
    lines = "\n".join(f"  {g.nbytes / 2**30:.2f} GiB  {g.type} for {g.operation} at {g.source}" for g in large)
    message = (
        f"program {name!r} gathers sharded arrays on every rank:\n{lines}\n"
        "Shard the operands along another axis (jax.lax.with_sharding_constraint), or compute that step in a "
        "shard_map. mpijax_gather=allow (MPIJAX_GATHER=allow) turns this message off."
    )
    if how == "raise":
        raise JaxRuntimeError(f"RESOURCE_EXHAUSTED: {message}")
    warn_user(message)
