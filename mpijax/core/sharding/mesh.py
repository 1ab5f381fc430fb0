"""Defines meshes of devices, and the mesh in context."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import ContextDecorator
from functools import cached_property
from typing import Any

import numpy as np

from mpijax.core.base import config, provided
from mpijax.core.base.simulation import simulation_of
from mpijax.core.sharding.abstract_mesh import AbstractDevice, AbstractMesh, AxisType, types_of_axes


class Mesh(ContextDecorator):
    """Devices arranged in a grid with named axes.

    Args:
      devices: array of devices (`mpijax.devices()`), or anything that `numpy.array` accepts.
      axis_names: one name per axis of that array.

    As a context manager, or a decorator of a function, it sets the mesh that `shard_map` uses by default.

    >>> mesh = mpijax.sharding.Mesh(np.array(mpijax.local_devices()).reshape(-1, 1), ("x", "y"))
    >>> mesh.axis_names, mesh.shape["y"]
    (('x', 'y'), 1)
    """

    def __init__(self, devices, axis_names: str | Sequence[Any], axis_types: Any = None):
        if isinstance(axis_names, str):
            axis_names = (axis_names,)
        grid = _grid(devices)
        axis_names = tuple(axis_names)
        if any(n is None for n in axis_names):
            raise ValueError(f"Mesh axis names cannot be None. Got: {axis_names}")
        if grid.ndim != len(axis_names):
            raise ValueError(
                "Mesh requires the ndim of its first argument (`devices`) to equal the length of its second argument "
                f"(`axis_names`), but got devices.ndim == {grid.ndim} and len(axis_names) == {len(axis_names)}."
            )
        if len(set(axis_names)) != len(axis_names):
            raise ValueError(f"Mesh axis names must be unique. Got: {axis_names}")
        grid.setflags(write=False)
        self.devices = grid
        self.axis_names = axis_names
        self.axis_types = types_of_axes(axis_types, axis_names, "Mesh")
        self.simulation = simulation_of(self._all_devices)
        ids = tuple(d.id for d in self._all_devices)
        self._key = (ids, grid.shape, axis_names, self.axis_types, self.simulation)
        self._entered: list[Any] = []
        # Whether the program runs on the devices of its arguments instead, if these are as many.
        self.stands_in = False

    @cached_property
    def shape(self) -> OrderedDict:
        return OrderedDict(zip(self.axis_names, self.devices.shape, strict=True))

    axis_sizes = property(lambda self: self.devices.shape)
    size = property(lambda self: len(self._all_devices))
    empty = property(lambda self: self.size == 0)
    device_ids = property(lambda self: np.vectorize(lambda d: d.id, otypes=[np.int64])(self.devices))

    @cached_property
    def _all_devices(self) -> tuple:
        # The mesh without axes holds None instead of a device.
        return () if not self.axis_names and self.devices.flat[0] is None else tuple(self.devices.flat)

    @property
    def local_devices(self) -> list:
        here = provided.process_index() if self.simulation is None else self.simulation.rank
        return [d for d in self._all_devices if d.process_index == here]

    @property
    def local_mesh(self) -> Mesh:
        """The block of the mesh whose devices belong to this process.

        Raises ValueError if this process has no device in the mesh, or if its devices do not form a block.
        """
        place = self.coordinates()
        if place is None:
            raise ValueError(f"no device of process {provided.process_index()} is part of {self!r}")
        if not self.is_multi_process:
            return self
        if self.lies_apart:
            raise ValueError(
                "When passing host local inputs to pjit, devices connected to a single host must form a contiguous "
                f"subcube of the global device mesh. Those of process {provided.process_index()} do not in {self!r}: "
                "order the devices by process, as jax.make_mesh does."
            )
        own = zip(self.place, self.within.values(), strict=True)
        return Mesh(self.devices[tuple(slice(i * n, (i + 1) * n) for i, n in own)], self.axis_names)

    @cached_property
    def is_multi_process(self) -> bool:
        """Whether the mesh has devices of other processes."""
        return len(self.local_devices) != self.size

    @cached_property
    def processes(self) -> frozenset[int]:
        """The processes that own devices of the mesh."""
        return frozenset(d.process_index for d in self._all_devices)

    num_processes = property(lambda self: len(self.processes))

    # Each process owns a block of the mesh; 3 processes of 2 devices may share an axis of size 6, for instance. If the
    # devices of a process do not form a block, each process keeps every array whole, for all devices of the mesh.

    @cached_property
    def holds_several(self) -> bool:
        """Whether a process owns several devices of the mesh."""
        return len(self.processes) < self.size

    @cached_property
    def within(self) -> OrderedDict:
        """The number of devices of one process along each axis."""
        return OrderedDict(zip(self.axis_names, self._block, strict=True))

    @cached_property
    def processes_along(self) -> OrderedDict:
        """The number of processes along each axis."""
        if not self.holds_several:
            return self.shape
        counts = (n // b for n, b in zip(self.axis_sizes, self._block, strict=True))
        return OrderedDict(zip(self.axis_names, counts, strict=True))

    @cached_property
    def lies_apart(self) -> bool:
        """Whether the devices of a process do not form a block of the mesh."""
        return len(self.processes) > 1 and self._block == self.devices.shape

    def process_axes(self, axes: Sequence[Any]) -> tuple[Any, ...]:
        """The mesh axes that divide an array axis between processes, from the mesh axes that split it.

        A process keeps one contiguous block of an array axis. After a mesh axis along which it owns several devices,
        the parts of its devices are interleaved with those of other processes, so it keeps those parts too.
        """
        if self.holds_several:
            inner = next((i for i, a in enumerate(axes) if self.within[a] > 1), len(axes))
            axes = axes[: inner + 1]
        return tuple(a for a in axes if self.processes_along[a] > 1)

    @cached_property
    def _block(self) -> tuple[int, ...]:
        sizes = self.devices.shape
        if not self.holds_several:
            return (1,) * len(sizes)
        of = np.vectorize(lambda d: d.process_index, otypes=[np.int64])(self.devices)
        own = np.argwhere(of == of.flat[0])
        block = tuple((own.max(0) + 1).tolist())
        if all(n % b == 0 for n, b in zip(sizes, block, strict=True)):
            corners = of[tuple(slice(None, None, b) for b in block)]
            if corners.size == len(self.processes) and np.array_equal(np.kron(corners, np.ones(block, np.int64)), of):
                return block
        return sizes

    @cached_property
    def is_local(self) -> bool:
        """Whether this process owns all devices of the mesh, and owns several."""
        if self.simulation is not None:
            return False
        return len(self.local_devices) == self.size > 0 and len(provided.local_devices()) > 1

    @cached_property
    def is_explicit(self) -> bool:
        """Whether some axes are Explicit. Shardings over the mesh then specify how every array axis is split."""
        return AxisType.Explicit in self.axis_types

    auto_axes = property(lambda self: self.abstract_mesh.auto_axes)
    explicit_axes = property(lambda self: self.abstract_mesh.explicit_axes)
    manual_axes = property(lambda self: self.abstract_mesh.manual_axes)
    are_all_axes_auto = property(lambda self: self.abstract_mesh.are_all_axes_auto)
    are_all_axes_explicit = property(lambda self: self.abstract_mesh.are_all_axes_explicit)
    are_all_axes_manual = property(lambda self: self.abstract_mesh.are_all_axes_manual)

    @cached_property
    def abstract_mesh(self) -> AbstractMesh:
        """The mesh without its devices."""
        first = self.devices.flat[0] if self.size else None
        kind = None if first is None else AbstractDevice(first.device_kind, None, first.platform)
        return AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types, abstract_device=kind)

    @property
    def shape_tuple(self) -> tuple[tuple[Any, int], ...]:
        return tuple(self.shape.items())

    def update(self, devices=None, axis_names=None, axis_types=None) -> Mesh:
        """A copy with changes."""
        return Mesh(
            self.devices if devices is None else devices,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
        )

    def standing_in(self) -> Mesh:
        """This mesh for programs that run on the devices of their arguments, if these are as many."""
        mesh = self.update()
        mesh.stands_in = True
        return mesh

    def coordinates(self) -> tuple[int, ...] | None:
        """The position of this rank's first device in the mesh; None if the rank has no device in it."""
        return self._coordinates

    @cached_property
    def _coordinates(self) -> tuple[int, ...] | None:
        local = self.local_devices
        if not local:
            return None
        return tuple(int(i) for i in np.argwhere(self.device_ids == local[0].id)[0])

    @cached_property
    def lacks_processes(self) -> bool:
        """Whether some processes of the job have no device in the mesh."""
        return self.simulation is None and self.size < len(provided.devices())

    @cached_property
    def place(self) -> tuple[int, ...]:
        """The position of this process among the processes along each axis.

        A process without a device in the mesh plans programs as the first process does.
        """
        if self._coordinates is None:
            return (0,) * len(self.axis_names)
        return tuple(i // n for i, n in zip(self._coordinates, self._block, strict=True))

    def _plain_(self) -> tuple:
        if self.simulation is not None:
            self.simulation.refuse(f"saving or running a program over {self}")
        return self.axis_names, self.devices.shape, tuple(d.id for d in self._all_devices), self.axis_types

    @staticmethod
    def _from_plain_(axis_names, shape, ids, axis_types) -> Mesh:
        """The mesh over the devices of this job with the given numbers."""
        known = {d.id: d for d in provided.devices()}  # starts MPI
        absent = [i for i in ids if i not in known]
        if absent:
            raise ValueError(
                f"The program needs a mesh over devices {list(ids)}, but this job has {len(known)}. "
                f"Start it on {max(ids) + 1} ranks: mpijax run -n {max(ids) + 1} ..."
            )
        return Mesh(np.array([known[i] for i in ids], dtype=object).reshape(shape), axis_names, axis_types)

    def __enter__(self):
        scope = config.entered_mesh(self)
        scope.__enter__()
        self._entered.append(scope)
        return self

    def __exit__(self, *_exc):
        self._entered.pop().__exit__()
        return False

    def __eq__(self, other) -> bool:
        return self is other or (isinstance(other, Mesh) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __str__(self) -> str:
        sizes = ", ".join(f"{n!r}: {s}" for n, s in self.shape.items())
        types = ", ".join(t.name for t in self.axis_types)
        return (
            f"Mesh({sizes}, axis_types=({types},))"
            if len(self.axis_types) == 1
            else f"Mesh({sizes}, axis_types=({types}))"
        )

    def __repr__(self) -> str:
        types = "" if self.empty else f", axis_types={self.axis_types}"
        return f"Mesh(axis_sizes={self.devices.shape}, axis_names={self.axis_names}{types})"


def _grid(devices) -> np.ndarray:
    """The devices as an object array of the given shape."""
    if isinstance(devices, np.ndarray) and devices.dtype == object:
        return devices.copy()
    listed = devices if isinstance(devices, (list, tuple)) else [devices]
    return np.array(listed, dtype=object)


def current_mesh() -> Mesh | None:
    """The mesh of `set_mesh`, or else of the enclosing `with mesh:`. Both are part of jit's cache key."""
    mesh = config.current_mesh.value
    return config.entered_mesh.value if mesh is None else mesh


class set_mesh:
    """Make `mesh` the default mesh of `shard_map`; as a context manager, until the block ends.

    >>> with mpijax.set_mesh(mpijax.make_mesh((1,), ("x",))):
    ...     mpijax.sharding.get_mesh().axis_names
    ('x',)
    """

    def __init__(self, mesh: Mesh | None):
        if not (mesh is None or isinstance(mesh, Mesh)):
            raise ValueError(
                f"set_mesh takes a Mesh, got {mesh!r} of type {type(mesh).__name__}. Make one with jax.make_mesh."
            )
        if mesh is not None and AxisType.Manual in mesh.axis_types:
            raise ValueError(
                f"mesh {mesh} contains manual axes. set_mesh takes a mesh without them: only shard_map makes axes "
                "manual."
            )
        self._mesh, self._previous = mesh, (config.current_mesh.value, config.placing_mesh.value)
        self._set(mesh, mesh if mesh is not None and mesh.is_local else None)

    def __enter__(self):
        return self._mesh

    def __exit__(self, *_exc):
        self._set(*self._previous)

    @staticmethod
    def _set(current: Mesh | None, placing: Mesh | None) -> None:
        config.update("mpijax_current_mesh", current)
        config.update("mpijax_placing_mesh", placing)


def make_mesh(
    axis_shapes: Sequence[int], axis_names: str | Sequence[Any], axis_types: Any = None, *, devices: Any = None
) -> Mesh:
    """A mesh of the given shape over the first devices, in rank order. Axes have type Explicit by default.

    >>> mpijax.make_mesh((1, 1), ("x", "y")).axis_names
    ('x', 'y')
    """
    available = provided.devices() if devices is None else list(devices)
    axis_names = (axis_names,) if isinstance(axis_names, str) else axis_names
    if len(axis_shapes) != len(axis_names):
        raise ValueError(
            f"Number of axes names should match the number of axis_shapes. Got {axis_names=} and {axis_shapes=}."
        )
    if not all(isinstance(n, (int, np.integer)) for n in axis_shapes):
        raise ValueError(f"`axis_shapes` passed to `make_mesh` should be a sequence of ints. Got {axis_shapes}")
    count = math.prod(axis_shapes)
    if count > len(available):
        raise ValueError(
            f"Number of devices {len(available)} must be >= the product of mesh_shape {tuple(axis_shapes)}. "
            f"Start the program on {count} ranks: mpirun -n {count} python ..., or try it in one process of {count} "
            f"devices: MPIJAX_NUM_LOCAL_DEVICES={count}"
        )
    kinds = (AxisType.Explicit,) * len(axis_names) if axis_types is None else axis_types
    return Mesh(np.array(available[:count], dtype=object).reshape(tuple(axis_shapes)), axis_names, kinds)
