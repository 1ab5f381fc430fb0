"""Accepts the names of XLA's compiler options. They have no effect, because mpijax does not use XLA."""

from __future__ import annotations

from collections.abc import Iterable

from mpijax.core.base.errors import JaxRuntimeError

_NAMES = {
    "exec_time_optimization_effort", "memory_fitting_effort", "memory_fitting_level", "num_partitions", "num_replicas",
    "optimization_level", "use_auto_spmd_partitioning", "use_shardy_partitioner", "use_spmd_partitioning",
}  # fmt: skip


def check_compiler_options(names: Iterable[str] | None) -> None:
    """Raise JaxRuntimeError for a name that is not an XLA option, such as a misspelt one."""
    for name in names or ():
        if name not in _NAMES and not name.startswith("xla_"):
            raise JaxRuntimeError(
                f"INVALID_ARGUMENT: No such compile option: '{name}'. Options begin with 'xla_' or are among "
                f"{sorted(_NAMES)}. mpijax accepts them without effect."
            )
