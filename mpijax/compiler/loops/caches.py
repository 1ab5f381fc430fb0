"""What the compiler knows of the processor: the sizes of its caches, and whether it has wide registers."""

from __future__ import annotations

from functools import cache
from pathlib import Path

# Where the system does not give the size of a cache: bytes by level.
_USUAL = {2: 512 << 10, 3: 32 << 20}


@cache
def cache_size(level: int) -> int:
    """Bytes of the cache of this level, 2 or 3, that the first core uses."""
    try:
        text = Path(f"/sys/devices/system/cpu/cpu0/cache/index{level}/size").read_text()
        return int(text.rstrip("K\n")) << 10
    except (OSError, ValueError):
        return _USUAL[level]


@cache
def has_wide_registers() -> bool:
    """Whether the processor has vector registers of 64 bytes."""
    from mpijax._ext import executor  # deferred: schedules are made where nothing runs, too

    return executor.has_wide_registers()
