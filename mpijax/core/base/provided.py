"""Gives lower layers access to names of upper layers: `provided.name` is imported at its first use.

Imports point downwards. If a lower layer needs an upper one (a mesh needs the devices of the job), it uses this module.
`mpijax/wiring.py` lists where each name is defined.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any

# For each name: the module, and the name in that module.
_homes: dict[str, tuple[str, str]] = {}
_primitive_homes: list[str] = []


def connect(homes: Iterable[tuple[str, str]], primitive_homes: Iterable[str]) -> None:
    """Set which names each module provides (`name` or `name=name_there`), and which modules define primitives.

    `name=*` provides the module itself.
    """
    for module, names in homes:
        for entry in names.split():
            name, _, there = entry.partition("=")
            _homes[name] = module, there or name
    _primitive_homes.extend(primitive_homes)


def __getattr__(name: str) -> Any:
    home = _homes.get(name)
    if home is None:
        raise AttributeError(f"no upper layer provides {name!r}: add it to mpijax/wiring.py")
    module, there = home
    found = importlib.import_module(module)
    value = globals()[name] = found if there == "*" else getattr(found, there)
    return value


def define_primitives(is_enough: Callable[[], bool]) -> bool:
    """Import the modules that define primitives one by one until `is_enough()`. Returns whether it became true."""
    for module in _primitive_homes:
        importlib.import_module(module)
        if is_enough():
            return True
    return False
