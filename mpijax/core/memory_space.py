"""Kinds of memory. Here all memory is that of the process, on the host: they are what is said of an array."""

from __future__ import annotations

import enum

# What shardings call them; the first one is where arrays are unless they are put elsewhere.
DEVICE, *_ = KINDS = ("device", "pinned_host", "unpinned_host")


class Space(enum.Enum):
    """A kind of memory, which `device_put` takes; Any is the one that an array is in.

    >>> mpijax.device_put(jnp.arange(3), mpijax.memory.Space.Host).sharding.memory_kind
    'pinned_host'
    """

    Device = enum.auto()
    Host = enum.auto()
    Any = enum.auto()

    @property
    def kind(self) -> str | None:
        """What shardings call it."""
        return {"Device": KINDS[0], "Host": KINDS[1]}.get(self.name)

    def __repr__(self) -> str:
        return f"MemorySpace.{self.name}"
