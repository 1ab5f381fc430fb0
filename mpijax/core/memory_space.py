"""Kinds of memory. Here all memory is that of the process, on the host."""

from __future__ import annotations

import enum


class Space(enum.Enum):
    """A kind of memory. `device_put` takes each of them, and leaves an array where it is: there is one memory.

    >>> mpijax.device_put(jnp.arange(3), mpijax.memory.Space.Host)
    Array([0, 1, 2], dtype=int32)
    """

    Device = enum.auto()
    Host = enum.auto()
    Any = enum.auto()

    def __repr__(self) -> str:
        return f"MemorySpace.{self.name}"
