"""What lower layers use of upper ones: `provided.name` is loaded at its first use.

Imports point downwards. Where a lower layer must reach up all the same (a mesh asks for the devices of the job), it
does so through this module, and `mpijax/wiring.py` says where each name is defined.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

# By name: the module, and the name there.
_homes: dict[str, tuple[str, str]] = {}
_primitive_homes: list[str] = []


def connect(homes: Mapping[str, str], primitive_homes: Iterable[str]) -> None:
    """Say which names each module provides (`name` or `name=the name there`), and which modules define primitives."""
    for module, names in homes.items():
        for entry in names.split():
            name, _, there = entry.partition("=")
            _homes[name] = module, there or name
    _primitive_homes.extend(primitive_homes)


def __getattr__(name: str) -> Any:
    home = _homes.get(name)
    if home is None:
        raise AttributeError(f"no upper layer provides {name!r}: add it to mpijax/wiring.py")
    module, there = home
    value = globals()[name] = getattr(importlib.import_module(module), there)
    return value


def define_primitives(is_enough: Callable[[], bool]) -> bool:
    """Load the modules that define primitives, one after the other, until `is_enough()`; whether that was reached."""
    for module in _primitive_homes:
        importlib.import_module(module)
        if is_enough():
            return True
    return False
