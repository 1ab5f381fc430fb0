"""Placeholders for public modules of JAX that mpijax lacks: they can be imported, and calls of their names raise.

Libraries import much that they never call. So any public name exists in such a module. It may be used in annotations,
as a base class or in `isinstance`; calling it raises an error with the reason.
"""

from __future__ import annotations

from typing import Any, NoReturn

from mpijax import missing
from mpijax.faces import PickledByName

# JAX's packages that mpijax lacks; its other missing modules have no submodules.
_PACKAGES = (
    """experimental.array_serialization experimental.jax2tf experimental.mosaic experimental.pallas.ops
    experimental.source_mapper extend.mlir tools"""
).split()


def reason(module: str) -> str | None:
    """The reason why mpijax lacks a public module of JAX; None for any other module.

    >>> from mpijax.aliasing import placeholders
    >>> placeholders.reason("mpijax.experimental.pallas.ops.tpu") is None, placeholders.reason("mpijax.lib.xla_bridge")
    (False, None)
    """
    root, _, inside = module.partition(".")
    parts = inside.split(".")
    if root != "mpijax" or any(part.startswith("_") for part in parts):
        return None
    left_out = missing.left_out()
    if f"{inside}." in left_out:
        return left_out[f"{inside}."]
    packages = (p for p in _PACKAGES if inside.startswith(f"{p}.") and f"{p}." in left_out)
    return next((left_out[f"{p}."] for p in packages), None)


class Missing(type):
    """A name that mpijax lacks: a class without instances, so that it is valid wherever a name may occur."""

    reason: str

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        home = next(c for c in cls.__mro__ if "reason" in vars(c))  # cls may be a library's subclass
        raise NotImplementedError(f"mpijax does not have {home.__module__}.{home.__qualname__}: {cls.reason}.")

    def __getattr__(cls, name: str) -> Missing:
        return missing_name(cls.__module__, f"{cls.__qualname__}.{name}", cls.reason)

    def __getitem__(cls, item: Any) -> Missing:
        return cls

    def __repr__(cls) -> str:
        return f"<{cls.__module__}.{cls.__qualname__}, missing in mpijax>"


def missing_name(module: str, name: str, why: str) -> Missing:
    """The placeholder for a name. Names that Python itself looks up raise AttributeError."""
    last = name.rpartition(".")[2]
    if last.startswith("_"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return Missing(last, (), {"__module__": module, "__qualname__": name, "reason": why})


class Placeholder(PickledByName):
    """A module that mpijax lacks."""

    _why: str

    def __init__(self, name: str, why: str):
        super().__init__(name.replace("mpijax.", "jax.", 1), f"Missing in mpijax: {why}.")
        self.__dict__["_why"] = why

    def __getattr__(self, name: str) -> Missing:
        found = missing_name(self.__name__, name, self._why)
        self.__dict__[name] = found
        return found
