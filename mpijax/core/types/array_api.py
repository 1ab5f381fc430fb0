"""Defines `Array`, the type users check against, and installs the operators and methods that all arrays share.

Concrete arrays and tracers have the same interface. The NumPy layer, far above this file, installs the operators and
methods when it is imported. Before that, the first use of any operator imports it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpijax.core.base import provided
from mpijax.core.base.module_names import name_in_jax


class _ArrayMeta(type):
    """Makes `isinstance(x, Array)` true for concrete arrays, whose class is defined in an extension module."""

    _concrete: tuple[type, ...] = ()

    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is Array and type(instance) in _ArrayMeta._concrete:
            return True
        return type.__instancecheck__(cls, instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        if cls is Array and subclass in _ArrayMeta._concrete:
            return True
        return type.__subclasscheck__(cls, subclass)

    def __getattr__(cls, name: str) -> Any:
        """Finds methods before the NumPy layer is imported, and attributes of single array classes (`Array.item`)."""
        if cls is Array and not name.startswith("_"):
            _load()
            for owner in (vars(Array), *map(_attributes, _ArrayMeta._concrete)):
                if name in owner:
                    return owner[name]
        raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")

    def __dir__(cls) -> list[str]:
        _load()
        return type.__dir__(cls)


class Array(metaclass=_ArrayMeta):
    """An n-dimensional array: a concrete array, or a tracer inside a transformation.

    Immutable. Supports NumPy's operators, indexing and methods; `x.at[i].set(v)` and the other
    methods of `x.at[i]` return an updated copy.

    >>> isinstance(jnp.arange(3), mpijax.Array)
    True
    """

    __slots__ = ()
    __module__ = "mpijax"

    def __new__(cls, *args, **kwargs):
        if cls is Array:
            raise TypeError("jax.Array is an abstract type; make arrays with jax.numpy.array or jax.device_put")
        return object.__new__(cls)

    def __init_subclass__(cls) -> None:
        root, _, rest = cls.__module__.partition(".")
        if root == "mpijax":
            name_in_jax(cls, f"jax.{rest}")


name_in_jax(Array, "jax")


def _declared(name: str, doc: str) -> property:
    def read(self):
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    return property(read, doc=doc)


def _declared_method(name: str, doc: str) -> Callable:
    def method(self, *_args, **_kwargs):
        raise NotImplementedError(f"{type(self).__name__} has no method {name}.")

    method.__name__, method.__qualname__, method.__doc__ = name, f"Array.{name}", doc
    return method


# What each kind of array defines in its own class. Libraries list the members of `Array` and copy their names.
for _name, _doc in {
    "addressable_shards": "The shards of the array that this process has.",
    "committed": "Whether the array was placed on its devices explicitly.",
    "device": "The device of the array, or its sharding if it has several devices.",
    "dtype": "The type of the elements.",
    "global_shards": "The shards of the array on all processes.",
    "is_fully_addressable": "Whether this process has all shards.",
    "is_fully_replicated": "Whether each device has the whole array.",
    "itemsize": "The bytes of one element.",
    "nbytes": "The bytes of all elements.",
    "ndim": "The number of axes.",
    "shape": "The sizes of the axes.",
    "sharding": "How the array is split over devices.",
    "size": "The number of elements.",
}.items():
    setattr(Array, _name, _declared(_name, _doc))
for _name, _doc in {
    "addressable_data": "The array of one shard that this process has.",
    "copy_to_host_async": "Starts a copy to the memory of the host.",
    "item": "One element as a Python number.",
}.items():
    setattr(Array, _name, _declared_method(_name, _doc))


_method_owners: list[type] = [Array]
_installed: dict[str, Callable] = {}

OPERATORS = (
    "__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __floordiv__ __rfloordiv__ "
    "__mod__ __rmod__ __divmod__ __rdivmod__ __pow__ __rpow__ __matmul__ __rmatmul__ __and__ __rand__ __or__ "
    "__ror__ __xor__ __rxor__ __lshift__ __rlshift__ __rshift__ __rrshift__ __neg__ __pos__ __abs__ __invert__ "
    "__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __getitem__ __setitem__ __iter__ __round__"
).split()


def is_whole(x: Any) -> bool:
    """Whether this rank has all of x; False for an array sharded over ranks."""
    return getattr(x, "_is_whole", True)


def register_concrete(cls: type) -> None:
    """Register a class of concrete arrays: it becomes an `Array` and gets the shared methods."""
    _ArrayMeta._concrete += (cls,)
    _method_owners.append(cls)
    if _installed:
        _put_methods(cls)
        return
    for name in OPERATORS:
        setattr(cls, name, _loading(name))
    cls.__getattr__ = load_then_getattr  # type: ignore[attr-defined]


def install_array_methods(methods: dict[str, Callable]) -> None:
    """Install operators, methods and properties on all array classes, including classes registered later."""
    _installed.update(methods)
    for owner in _method_owners:
        _put_methods(owner)


def _put_methods(owner: type) -> None:
    for name, method in _installed.items():
        setattr(owner, name, method)
    if "__getattr__" in vars(owner):
        del owner.__getattr__  # type: ignore[attr-defined]


def _load() -> None:
    provided.METHODS  # noqa: B018  (the module that defines them installs them)


def array_methods() -> dict[str, Callable]:
    """Operators, methods and properties of arrays by name."""
    _load()
    return _installed


def _attributes(cls: type) -> dict[str, Any]:
    """The attributes of a class and its base classes."""
    return {name: value for c in reversed(cls.__mro__) for name, value in vars(c).items()}


def _loading(name: str) -> Callable:
    def method(self, *args, **kwargs):
        _load()
        return getattr(type(self), name)(self, *args, **kwargs)

    method.__name__ = name
    return method


def load_then_getattr(self, name: str):
    """Import the NumPy layer at the first use of a method. The import installs the methods and removes this hook."""
    if name.startswith("_") or "__getattr__" not in vars(Array):
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
    _load()
    return getattr(self, name)


for _name in OPERATORS:
    setattr(Array, _name, _loading(_name))
Array.__getattr__ = load_then_getattr  # type: ignore[attr-defined]
