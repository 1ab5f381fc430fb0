"""Memory kinds. All memory is host memory of the process, so a kind is only a label of an array."""

from __future__ import annotations

import enum

# The names in shardings. The first one is the default.
DEVICE, *_ = KINDS = ("device", "pinned_host", "unpinned_host")


class Space(enum.Enum):
    """A memory space, which `device_put` accepts; Any means the space where an array already is.

    >>> mpijax.device_put(jnp.arange(3), mpijax.memory.Space.Host).sharding.memory_kind
    'pinned_host'
    """

    Device = enum.auto()
    Host = enum.auto()
    Any = enum.auto()

    @property
    def kind(self) -> str | None:
        """Its name in shardings."""
        return {"Device": KINDS[0], "Host": KINDS[1]}.get(self.name)

    def __repr__(self) -> str:
        return f"MemorySpace.{self.name}"

    __str__ = __repr__
