"""Defines `colocated_python`: Python functions that run in the processes that have the devices.

In mpijax, every rank is such a process, and its devices are CPUs. So a call runs the function itself, on every rank
that calls it. The function gets arrays, and reads the shards of this rank with `addressable_shards`. mpijax does not
copy the function or what it refers to.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import update_wrapper
from typing import Any

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.trees import tree
from mpijax.core.types.array_api import Array
from mpijax.core.types.avals import ShapeDtypeStruct


def colocated_cpu_devices(devices_or_mesh: Any) -> Any:
    """The CPUs beside the given devices: the devices themselves, because mpijax's devices are CPUs.

    Returns a mesh for a mesh, and a tuple for a sequence of devices.

    >>> from mpijax.experimental import colocated_python
    >>> colocated_python.colocated_cpu_devices(mpijax.local_devices()[:1]) == tuple(mpijax.local_devices()[:1])
    True
    """
    return tuple(devices_or_mesh) if isinstance(devices_or_mesh, Sequence) else devices_or_mesh


def colocated_python(fun: Callable) -> ColocatedFunction:
    """Run a Python function where the devices of its arguments are: in this process.

    Args:
      fun: a function of pytrees of arrays. It returns a pytree of arrays. It may keep state in Python objects.

    The result is called like `fun`. Its method `specialize` fixes the types of arguments or results, or the devices. It
    communicates only if `fun` does.

    Raises:
      ValueError: an argument or a result is not an array; the arguments are on different devices; there is no argument
        and no device is given; or types differ from those that `specialize` fixed.

    >>> from mpijax.experimental import colocated_python
    >>> add_one = colocated_python.colocated_python(lambda x: x + 1)
    >>> add_one(jnp.arange(3))
    Array([1, 2, 3], dtype=int32)
    """
    return ColocatedFunction(fun)


@dataclass(frozen=True)
class _Specialization:
    """What is fixed for all calls. in_specs: types of (args, kwargs)."""

    in_specs: Any = None
    out_specs_fn: Callable | None = None
    devices: tuple[Any, ...] | None = None


class ColocatedFunction:
    """A function of arrays that runs in the process that has their devices; `colocated_python` makes it."""

    def __init__(self, fun: Callable, fixed: _Specialization | None = None):
        update_wrapper(self, fun)
        self._fun, self._fixed = fun, fixed or _Specialization()

    def specialize(
        self,
        in_specs: Any = None,
        out_specs_fn: Callable | None = None,
        devices: Sequence[Any] | None = None,
    ) -> ColocatedFunction:
        """The function with something fixed for all of its calls.

        Args:
          in_specs: `ShapeDtypeStruct`s of `(args, kwargs)`.
          out_specs_fn: a function from the `ShapeDtypeStruct`s of the arguments to those of the results.
          devices: the devices of the function. A function without arguments needs them.

        Raises ValueError if one of them is fixed already.
        """
        given = {
            "in_specs": in_specs,
            "out_specs_fn": out_specs_fn,
            "devices": None if devices is None else tuple(devices),
        }
        given = {name: value for name, value in given.items() if value is not None}
        for name in given:
            if getattr(self._fixed, name) is not None:
                raise ValueError(f"{name} already specified. Specialize the function before the first specialization.")
        return ColocatedFunction(self._fun, replace(self._fixed, **given))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree.tree_flatten((args, kwargs))
        specs = tree.tree_unflatten(structure, list(map(_spec, leaves)))
        if self._fixed.in_specs is not None:
            _check_alike("Arguments", self._fixed.in_specs, specs)
        if self._fixed.devices is None:
            _check_devices(leaves)
        result = self._fun(*args, **kwargs)
        found = tree.tree_map(_spec, result)
        if self._fixed.out_specs_fn is not None:
            _check_alike("Results", self._fixed.out_specs_fn(*specs[0], **specs[1]), found)
        return result


def _spec(x: Any) -> ShapeDtypeStruct:
    if not isinstance(x, Array):
        raise ValueError(
            f"colocated_python only supports jax.Array as input and output, but got {type(x)}. Convert it with "
            "jnp.asarray or jax.device_put."
        )
    return ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)


def _check_devices(leaves: list[Array]) -> None:
    lists = {tuple(x.sharding._device_assignment) for x in leaves}
    if not lists:
        raise ValueError(
            "No devices found. colocated_python function without input arguments must be first specialized with "
            "devices. Call its method specialize(devices=...)."
        )
    if len(lists) > 1:
        raise ValueError(
            f"All arguments must use the same device list, but got multiple device lists: {sorted(lists, key=str)}. "
            "Move the arguments with jax.device_put, or call specialize(devices=...)."
        )


def _check_alike(what: str, expected: Any, found: Any) -> None:
    """Raises ValueError if two trees of `ShapeDtypeStruct`s differ. A spec without sharding fits any sharding."""

    def fits(a: Any, b: Any) -> bool:
        return (a.shape, a.dtype) == (b.shape, b.dtype) and a.sharding in (None, b.sharding)

    pairs = zip(*map(tree.tree_leaves, (expected, found)), strict=False)
    if tree.tree_structure(expected) != tree.tree_structure(found) or not all(fits(a, b) for a, b in pairs):
        raise ValueError(
            f"{what} of a colocated_python function differ from its specialization: {found}, not {expected}."
        )


def colocated_python_class(cls: type) -> type:
    """A class whose objects live in the processes that have the devices, and keep state between calls.

    Args:
      cls: a class whose methods take and return pytrees of arrays.

    The first call of a method makes the object, with the arguments given to the constructor. A method has `specialize`,
    as a function of `colocated_python` has.

    >>> from mpijax.experimental import colocated_python
    >>> @colocated_python.colocated_python_class
    ... class Total:
    ...     def __init__(self, start):
    ...         self.sum = start
    ...     def add(self, x):
    ...         self.sum += x
    ...         return self.sum
    >>> Total(jnp.array([5])).add(jnp.array([2]))
    Array([7], dtype=int32)
    """

    class Proxy:
        def __init__(self, *args: Any, **kwargs: Any):
            made = _LazyObject(cls, args, kwargs)
            for name, method in inspect.getmembers(cls, inspect.isfunction):
                if not name.startswith("__") or name == "__call__":
                    setattr(self, name, ColocatedFunction(made.method(method)))

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return vars(self)["__call__"](*args, **kwargs)

    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(Proxy, name, getattr(cls, name))
    return Proxy


class _LazyObject:
    """An object that is made at its first use."""

    def __init__(self, cls: type, args: tuple, kwargs: dict[str, Any]):
        self._make: Callable | None = lambda: cls(*args, **kwargs)
        self._object: Any = None

    def method(self, function: Callable) -> Callable:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._make is not None:
                self._object, self._make = self._make(), None
            return function(self._object, *args, **kwargs)

        return update_wrapper(call, function)
