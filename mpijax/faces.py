"""Faces of packages: modules whose names are loaded when they are first used, each from where it is defined."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Mapping
from types import ModuleType
from typing import Any

from mpijax import missing


class PickledByName(ModuleType):
    """A module that cloudpickle pickles as it does those of Python's own class: functions refer to modules."""

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        return importlib.import_module, (self.__name__,)


class Face(PickledByName):
    """A module whose names are loaded when they are first used. `vars(module)` loads all of them, so it lists them, as
    that of JAX's modules does."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        names = super().__dict__
        for name in names["__dir__"]():
            if name not in names:
                names[name] = getattr(self, name)
        return names


def homes_of(modules: Mapping[str, str]) -> dict[str, str]:
    """The module of each name, from a table of the names in each module: `{"lax.loops": "map scan"}`."""
    return {name: module for module, names in modules.items() for name in names.split()}


def on_demand(
    face: str, homes: Mapping[str, str], submodules: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a face.

    Args:
      face: the name of the module, such as `mpijax.lax`.
      homes: the module of each name, without `mpijax.`.
      submodules: modules of the package that are attributes of the face.
    """
    names = vars(sys.modules[face])
    sys.modules[face].__class__ = Face

    def find(name: str) -> Any:
        if name in submodules:
            return importlib.import_module(f"{face}.{name}")
        module = homes.get(name)
        if module is None:
            raise missing.error(face, name)
        value = names[name] = getattr(importlib.import_module(f"mpijax.{module}"), name)
        return value

    def listed() -> list[str]:
        return sorted({*names, *homes, *submodules})

    return find, listed
