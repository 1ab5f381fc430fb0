"""Dataclasses that generate their methods at the first use of one of them.

`dataclasses.dataclass` generates the source of up to seven methods and compiles it: about 0.6 ms for a class. An import
of `mpijax.numpy` defines 130 dataclasses, and a program uses a third. Here a class gets a placeholder for each name
that `dataclasses.dataclass` would set. The first access to a placeholder generates all methods on a copy of the class,
and moves them to the class one by one. So other threads always find a placeholder or the method.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass

_lock = threading.RLock()
if hasattr(os, "register_at_fork"):  # as in `locks`, which would make the longest chain of imports longer
    os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]
# Attributes that every class has itself.
_OWN = ("__dict__", "__weakref__", "__setattr__", "__delattr__")


class _Pending:
    """Placeholder for one attribute of a class that will become a dataclass."""

    def __init__(self, owner: type, name: str, complete: Any):
        self.owner, self.name, self.complete = owner, name, complete

    def __get__(self, instance: Any, kind: type) -> Any:
        self.complete()
        found = vars(self.owner)[self.name]  # not getattr: a subclass may override it
        return found.__get__(instance, kind) if hasattr(found, "__get__") else found


def _names(options: dict[str, bool]) -> list[str]:
    """The names that `dataclasses.dataclass` sets under these options, whether frozen or not."""
    eq = options.get("eq", True)
    wanted = {
        "__init__": options.get("init", True), "__repr__": options.get("repr", True), "__eq__": eq, "__hash__": eq,
        "__match_args__": options.get("match_args", True), "__dataclass_fields__": True, "__dataclass_params__": True,
    } | dict.fromkeys(("__lt__", "__le__", "__gt__", "__ge__"), options.get("order", False))  # fmt: skip
    return [name for name, is_set in wanted.items() if is_set]


def _freeze(cls: Any) -> None:
    """Add methods that prevent assignment to fields. The class itself must have them: they test for the class."""

    def refused(self: Any, name: str) -> bool:
        return type(self) is cls or name in cls.__dataclass_fields__

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if refused(self, name):
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if refused(self, name):
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__ = __setattr__, __delattr__


def _postponed(cls: Any, options: dict[str, bool]) -> type:
    pending: dict[str, Any] = {}

    def complete() -> None:
        with _lock:
            if not pending:  # another thread has generated the methods
                return
            body = {k: v for k, v in vars(cls).items() if pending.get(k, pending) is not v and k not in _OWN}
            copied = type(cls)(cls.__name__, cls.__bases__, body | {"__qualname__": cls.__qualname__})
            made = vars(dataclasses.dataclass(**options)(copied))
            for name, value in made.items():
                if name not in _OWN and vars(cls).get(name, pending) is not value:
                    setattr(cls, name, value)
            for name in body.keys() - made.keys():  # fields without a default
                delattr(cls, name)
            pending.clear()

    unhashable = not options.get("frozen") and not options.get("unsafe_hash")
    for name in _names(options):
        if name not in vars(cls):
            # Python tests `__hash__` for None without calling a placeholder.
            pending[name] = None if name == "__hash__" and unhashable else _Pending(cls, name, complete)
    for name, stand_in in pending.items():
        setattr(cls, name, stand_in)
    if options.get("frozen"):
        _freeze(cls)
    return cls


if not TYPE_CHECKING:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """Like `dataclasses.dataclass`, but postponed to first use. Not postponed with slots, which need a new class.

        >>> @dataclass(frozen=True)
        ... class Point:
        ...     x: int
        ...     y: int = 2
        >>> Point(1)
        Point(x=1, y=2)
        """

        def decorated(cls: type) -> type:
            if options.get("slots"):
                return dataclasses.dataclass(**options)(cls)
            return _postponed(cls, options)

        return decorated if cls is None else decorated(cls)
