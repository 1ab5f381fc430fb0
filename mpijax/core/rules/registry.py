"""The table of primitives by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpijax.core.base import provided

if TYPE_CHECKING:
    from mpijax.core.rules.primitive import Primitive


class _Registry(dict):
    """Primitives by name. Looking up an unknown name first imports the modules that define primitives."""

    def __missing__(self, name: str) -> Primitive:
        if provided.define_primitives(lambda: name in self):
            return self[name]
        raise KeyError(name)


registry: dict[str, Primitive] = _Registry()
