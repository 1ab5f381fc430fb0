"""Dataclasses that generate each method at its first use.

`dataclasses.dataclass` generates the source of up to seven methods and compiles each: 0.4 ms for a class. An import of
`mpijax.numpy` defines 130 dataclasses. A program uses a third of them, and most of these it only constructs. Here a
class gets a placeholder for each name that `dataclasses.dataclass` would set. The first access to a placeholder makes
its attribute. The fields, the constructor, equality and the hash are made one by one. For any other name,
`dataclasses.dataclass` makes all that is missing on a copy of the class, and then it moves to the class. So other
threads always find a placeholder or the attribute.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import threading
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from dataclasses import dataclass as dataclass

_lock = threading.RLock()
if hasattr(os, "register_at_fork"):  # as in `locks`, which would make the longest chain of imports longer
    os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]
# Attributes that every class has itself.
_OWN = ("__dict__", "__weakref__", "__setattr__", "__delattr__")


class _Factory:
    """Default of a parameter whose field has a `default_factory`."""

    def __repr__(self) -> str:
        return "<factory>"  # as in the signatures of `dataclasses`


_FACTORY = _Factory()


class _Pending:
    """Placeholder for one attribute of a class that will become a dataclass."""

    def __init__(self, owner: _Postponed, name: str):
        self.owner, self.name = owner, name

    def __get__(self, instance: Any, kind: type) -> Any:
        self.owner.make(self.name)
        found = vars(self.owner.cls)[self.name]  # not getattr: a subclass may override it
        return found.__get__(instance, kind) if hasattr(found, "__get__") else found


class _Postponed:
    """A class with placeholders. `pending` holds those that have not been used."""

    def __init__(self, cls: Any, options: dict[str, bool]):
        self.cls, self.options = cls, options
        self.pending: dict[str, Any] = {}
        unhashable = not options.get("frozen") and not options.get("unsafe_hash")
        for name in _names(options):
            if name not in vars(cls):
                # Python tests `__hash__` for None without calling a placeholder.
                self.pending[name] = None if name == "__hash__" and unhashable else _Pending(self, name)
        for name, stand_in in self.pending.items():
            setattr(cls, name, stand_in)

    def make(self, name: str) -> None:
        """Replace the placeholder of a name."""
        with _lock:
            if name not in self.pending:  # another thread was first
                return
            if name in _ALONE:
                setattr(self.cls, name, _ALONE[name](self))
                self.pending.pop(name, None)
            else:
                self.complete()

    def fields(self) -> dict[str, dataclasses.Field[Any]]:
        """The fields of the class, which gets their defaults as its attributes."""
        fields: dict[str, dataclasses.Field[Any]] = {}
        for base in self.cls.__mro__[:0:-1]:
            fields |= getattr(base, "__dataclass_fields__", {})
        declared = self.declared()
        body = {"__module__": self.cls.__module__, "__doc__": "A docstring, else its signature becomes one."} | declared
        copied: Any = type(self.cls.__name__, (), body)
        dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=self.options.get("kw_only", False))(copied)
        self.move(declared.keys() - {"__annotations__"}, vars(copied))
        return fields | copied.__dataclass_fields__

    def declared(self) -> dict[str, Any]:
        """The annotations of the class, and what it assigns to the annotated names."""
        annotations = inspect.get_annotations(self.cls)
        made = {} if "__dataclass_fields__" in self.pending else self.cls.__dataclass_fields__
        assigned = vars(self.cls) | made
        return {"__annotations__": annotations} | {name: assigned[name] for name in annotations if name in assigned}

    def init(self) -> Callable[..., None]:
        """The constructor."""
        fields = [f for f in dataclasses.fields(self.cls) if f.init or f.default_factory is not dataclasses.MISSING]
        assign = "_set(self, {0!r}, {1})" if self.options.get("frozen") else "self.{0} = {1}"
        known: dict[str, Any] = {"_set": object.__setattr__, "_FACTORY": _FACTORY}
        parameters, lines = ["self"], []
        for f in sorted(fields, key=lambda f: bool(f.kw_only)):
            value = f.name
            known[f"_default_{f.name}"] = f.default
            if f.default_factory is not dataclasses.MISSING:
                known |= {f"_default_{f.name}": _FACTORY, f"_make_{f.name}": f.default_factory}
                value = f"_make_{f.name}()" + (f" if {f.name} is _FACTORY else {f.name}" if f.init else "")
            lines.append(assign.format(f.name, value))
            if f.init:
                if f.kw_only and "*" not in parameters:
                    parameters.append("*")
                has_default = known[f"_default_{f.name}"] is not dataclasses.MISSING
                parameters.append(f"{f.name}=_default_{f.name}" if has_default else f.name)
        if hasattr(self.cls, "__post_init__"):
            lines.append("self.__post_init__()")
        exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines or ["pass"]), known)
        known["__init__"].__annotations__ = {f.name: f.type for f in fields if f.init} | {"return": None}
        return self.named(known["__init__"])

    def eq(self) -> Callable[[Any, Any], bool]:
        """Equality: of the class, and of the fields that are compared."""
        values = _values(f.name for f in dataclasses.fields(self.cls) if f.compare)

        def __eq__(self: Any, other: Any) -> bool:
            return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

        return self.named(__eq__)

    def hash(self) -> Callable[[Any], int]:
        """The hash of the fields that are compared, or that say that they are hashed."""
        values = _values(f.name for f in dataclasses.fields(self.cls) if (f.compare if f.hash is None else f.hash))

        def __hash__(self: Any) -> int:
            return hash(values(self))

        return self.named(__hash__)

    def named(self, function: Any) -> Any:
        """A method with the names that an error shows."""
        function.__module__ = self.cls.__module__
        function.__qualname__ = f"{self.cls.__qualname__}.{function.__name__}"
        return function

    def complete(self) -> None:
        """Let `dataclasses.dataclass` make what is pending."""
        cls: Any = self.cls
        body = {k: v for k, v in vars(cls).items() if self.pending.get(k, self) is not v and k not in _OWN}
        body |= self.declared() | {"__qualname__": cls.__qualname__}
        made = vars(dataclasses.dataclass(**self.options)(type(cls)(cls.__name__, cls.__bases__, dict(body))))
        self.move(made.keys() | body.keys(), made)
        self.pending.clear()

    def move(self, names: Iterable[str], made: Mapping[str, Any]) -> None:
        """Give the class the attributes that a copy of it has under these names, and no other ones."""
        for name in names:
            if name in made and name not in _OWN and vars(self.cls).get(name, made) is not made[name]:
                setattr(self.cls, name, made[name])
            elif name not in made and name in vars(self.cls):  # a field without a default
                delattr(self.cls, name)


# The attributes that are made one by one.
_ALONE: dict[str, Callable[[_Postponed], Any]] = {
    "__dataclass_fields__": _Postponed.fields, "__init__": _Postponed.init,
    "__eq__": _Postponed.eq, "__hash__": _Postponed.hash,
}  # fmt: skip


def _values(names: Iterable[str]) -> Callable[[Any], Any]:
    """A function of an object: the tuple of its attributes of these names."""
    get = [*names]
    if len(get) > 1:
        return attrgetter(*get)
    return lambda x: tuple(getattr(x, name) for name in get)


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


if not TYPE_CHECKING:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """Like `dataclasses.dataclass`, but postponed to first use, and without `InitVar`.

        With slots it is not postponed, because slots need a new class.

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
            _Postponed(cls, options)
            if options.get("frozen"):
                _freeze(cls)
            return cls

        return decorated if cls is None else decorated(cls)
