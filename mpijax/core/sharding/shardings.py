"""Defines `NamedSharding` and `SingleDeviceSharding`: how arrays are split over devices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mpijax.core.base import provided
from mpijax.core.sharding.abstract_mesh import AbstractMesh, AxisType
from mpijax.core.sharding.cuts import count, part_number
from mpijax.core.sharding.memory_space import DEVICE, KINDS
from mpijax.core.sharding.spec import PartitionSpec

if TYPE_CHECKING:
    from mpijax.core.sharding.mesh import Mesh


def _memory_kind(given: str | None, abstract: bool) -> str | None:
    """The memory kind of a sharding; a mesh without devices has none by default. ValueError for unknown kinds."""
    if given is None:
        return None if abstract else DEVICE
    if given not in KINDS:
        kinds = ", ".join(KINDS)
        raise ValueError(
            f"Got invalid memory kind: {given}. Valid memory kinds are: {kinds}" if abstract
            else f"Could not find memory addressable by device cpu. Device cpu can address the following memory kinds: "
            f"{kinds}. Got memory kind: {given}"
        )  # fmt: skip
    return given


_NOTHING = slice(0, 0)


def _lengths(part: Sequence[slice], shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of a part of an array."""
    return tuple(len(range(n)[s]) for s, n in zip(part, shape, strict=True))


class DeviceList(tuple):
    """Devices in order."""

    @property
    def process_indices(self) -> set[int]:
        """The processes that own the devices."""
        return {d.process_index for d in self}


class Sharding:
    """How an array is split over devices.

    >>> isinstance(jnp.arange(3).sharding, mpijax.sharding.Sharding)
    True
    """

    # The kind of memory that holds arrays; None if the devices of a mesh decide.
    memory_kind: str | None
    device_set: Any
    _device_assignment: Any
    addressable_devices: Any
    is_fully_addressable: Any
    is_fully_replicated: bool

    # Whether every process stores the whole array.
    keeps_whole: bool
    # Whether a process stores parts of an array that belong to none of its own devices.
    keeps_others: Any = False
    # Whether results of operations on an array take its sharding.
    is_followed = True
    # Whether the user placed the array explicitly.
    committed = True

    def shard_shape(self, global_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of one shard of an array of the given shape."""
        raise NotImplementedError

    def addressable_devices_indices_map(self, global_shape: tuple[int, ...]) -> dict:
        """This process's devices, each with its slices of a global array."""
        raise NotImplementedError

    @property
    def has_addressable_devices(self) -> bool:
        """Whether this process has a shard."""
        return bool(self.addressable_devices)

    # Whether only other processes have shards. This process then stores an array without elements.
    is_elsewhere: bool
    # The processes that own its devices.
    processes: Any

    @property
    def has_all_here(self) -> bool:
        """Whether this process stores all elements of an array."""
        return self.keeps_whole and not self.is_elsewhere

    @property
    def has_value_here(self) -> bool:
        """Whether this process can read all of an array."""
        return self.is_fully_addressable

    @property
    def _internal_device_list(self) -> DeviceList:
        """JAX's name for the devices in order, which libraries read."""
        return DeviceList(self._device_assignment)

    @property
    def _addressable_device_assignment(self) -> tuple:
        """The devices of this process, in order; for Orbax."""
        return tuple(sorted(self.addressable_devices, key=lambda d: d.id))

    # Devices need not divide the axes of a program's results. Shards then have size `ceil(size / parts)`, and the last
    # ones are shorter or empty. The methods above raise for such shapes, as in JAX; the methods below accept them.

    def block_shape(self, global_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the longest shard of an array of the given shape."""
        return tuple(global_shape)

    def process_shape(self, global_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of this process's part of an array of the given shape."""
        return _lengths(self.local_slices(global_shape), global_shape)

    def local_slices(self, global_shape: tuple[int, ...]) -> tuple[slice, ...]:
        """This process's part of a global array."""
        raise NotImplementedError

    def planned_shape(self, global_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of an argument's part in programs: this process's part, or the first process's if this one has none."""
        return tuple(global_shape)

    def devices_indices_map(self, global_shape: tuple[int, ...]) -> dict:
        """All devices, each with its slices of a global array."""
        raise NotImplementedError

    def held_indices(self, global_shape: tuple[int, ...]) -> dict:
        """All devices, each with its slices of an existing array, whose blocks may be uneven."""
        return self.devices_indices_map(global_shape)


def check_axes_differ(spec: PartitionSpec, what: str) -> None:
    """Raise ValueError for a specification that names a mesh axis twice."""
    named = spec.all_axes()
    if len(set(named)) != len(named):
        again = next(a for a in named if named.count(a) > 1)
        raise ValueError(
            f"A single {what} specification can map every mesh axis to at most one positional dimension, but {spec} "
            f"has duplicate entries for `{again}`"
        )


class NamedSharding(Sharding):
    """Array axes split over the named axes of a mesh.

    >>> mesh = mpijax.make_mesh((1,), ("x",))
    >>> mpijax.NamedSharding(mesh, mpijax.P("x")).shard_shape((4, 2))
    (4, 2)
    """

    def __init__(self, mesh: Mesh | AbstractMesh, spec: PartitionSpec, *, memory_kind: str | None = None):
        if not isinstance(spec, PartitionSpec):
            raise TypeError(
                f"Unexpected {spec!r} of type {type(spec).__name__}: the spec of a NamedSharding must be a "
                "PartitionSpec. Use jax.sharding.PartitionSpec(...)."
            )
        unknown = [a for a in spec.all_axes() if a not in mesh.axis_names]
        if unknown:
            raise ValueError(f"Resource axis: {unknown[0]} of {spec} is not found in mesh: {mesh.axis_names}.")
        named = spec.all_axes()
        check_axes_differ(spec, "NamedSharding spec")
        if spec.unconstrained_dims and not mesh.auto_axes and not mesh.empty:
            raise ValueError(
                f"{spec} cannot contain `P.UNCONSTRAINED` when no mesh axis_types are `Auto`. Got mesh axis_types: "
                f"{mesh.axis_types}"
            )
        if spec.unreduced or spec.reduced:
            _check_sums_over(mesh, spec)
        self.mesh = mesh
        self.spec = spec
        self.memory_kind = _memory_kind(memory_kind, abstract=isinstance(mesh, AbstractMesh))
        self._splits_nothing = all(mesh.shape[a] == 1 for a in named)
        self.is_fully_replicated = mesh.size == 1 or (self._splits_nothing and not spec.unreduced)
        self._hash = hash((mesh, spec, self.memory_kind))

    @cached_property
    def keeps_whole(self) -> bool:  # type: ignore[override]
        if self.spec.unreduced:
            return False
        return self._splits_nothing or not any(map(self.process_axes, range(len(self.spec))))

    @cached_property
    def is_elsewhere(self) -> bool:  # type: ignore[override]
        return self.mesh.coordinates() is None

    @property
    def processes(self) -> frozenset[int]:  # type: ignore[override]
        return self.mesh.processes

    @cached_property
    def has_value_here(self) -> bool:  # type: ignore[override]
        return not self.spec.unreduced and (self.is_fully_addressable or self.has_all_here)

    def update(self, **changes: Any) -> NamedSharding:
        """A copy with another `mesh`, `spec` or `memory_kind`."""
        kind = changes.get("memory_kind", self.memory_kind)
        return NamedSharding(changes.get("mesh", self.mesh), changes.get("spec", self.spec), memory_kind=kind)

    def with_memory_kind(self, kind: str) -> NamedSharding:
        """A copy with another memory kind."""
        return self.update(memory_kind=kind)

    def waiting(self, unreduced: frozenset, reduced: frozenset) -> NamedSharding:
        """This sharding with a sum pending over `unreduced` axes, and one of the cotangent over `reduced` axes."""
        if (self.spec.unreduced, self.spec.reduced) == (unreduced, reduced):
            return self
        return self.update(spec=self.spec.update(unreduced=unreduced, reduced=reduced))

    @property
    def _pending(self) -> tuple[Any, ...]:
        """The unreduced mesh axes, in the order of the mesh."""
        return tuple(a for a in self.mesh.axis_names if a in self.spec.unreduced)

    @cached_property
    def of_summands(self) -> NamedSharding:
        """The sharding of the summands of an array with pending sums. Processes store these summands as one array, with
        one more axis in front for each unreduced mesh axis. That axis is split over the mesh axis."""
        return self.update(spec=PartitionSpec(*self._pending, *self.spec.partitions))

    def summands_shape(self, global_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the array of summands of an array with pending sums."""
        return (*(self.mesh.shape[a] for a in self._pending), *global_shape)

    @property
    def device_set(self) -> set:
        return set(self.mesh.devices.flat)

    @property
    def _device_assignment(self) -> tuple:
        """The devices in the order of the mesh."""
        return tuple(self.mesh.devices.flat)

    @property
    def num_devices(self) -> int:
        return self.mesh.size

    @property
    def addressable_devices(self) -> set:
        """The devices of the mesh that belong to this process."""
        return set(self.mesh.local_devices)

    def addressable_devices_indices_map(self, global_shape: tuple[int, ...]) -> dict:
        """This process's devices, each with its slices of a global array."""
        mine = self.addressable_devices
        return {d: index for d, index in self.devices_indices_map(global_shape).items() if d in mine}

    def is_equivalent_to(self, other: Any, ndim: int) -> bool:
        """Whether two shardings split arrays of `ndim` axes alike. `P('i')` and `P('i', None)` are equivalent.
        Shardings over different meshes are equivalent if each device has the same part."""
        if self is other:
            return True
        if (self.memory_kind or DEVICE) != (getattr(other, "memory_kind", None) or DEVICE):
            return False
        if not isinstance(other, NamedSharding):
            return self.mesh.size == 1 and isinstance(other, Sharding) and self.device_set == other.device_set
        if self.is_fully_replicated and other.is_fully_replicated:
            return self.device_set == other.device_set
        if self.mesh == other.mesh:
            same = all(self._split(d) == other._split(d) for d in range(ndim))
            return same and self.spec.unreduced == other.spec.unreduced
        if self._device_assignment != other._device_assignment or self.spec.unreduced or other.spec.unreduced:
            return False
        return all(np.array_equal(self.numbers_along(d), other.numbers_along(d)) for d in range(ndim))

    def numbers_along(self, dim: int) -> np.ndarray:
        """For each device in order, the number of its part of array axis `dim`."""
        at = dict(zip(self.mesh.axis_names, np.indices(self.mesh.devices.shape), strict=True))
        place = np.zeros(self.mesh.devices.shape, np.int64)
        for a in self._split(dim):
            place = place * self.mesh.shape[a] + at[a]
        return place.ravel()

    def _split(self, dim: int) -> tuple:
        """The mesh axes of size above 1 that split array axis `dim`."""
        return tuple(a for a in self.spec.axes_of(dim) if self.mesh.shape[a] > 1)

    @property
    def is_fully_addressable(self) -> bool:
        return not self.mesh.is_multi_process

    def shard_shape(self, global_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of one shard; raises ValueError if the parts do not divide an axis."""
        block, parts = self.block_shape(global_shape), self._parts(global_shape)
        for dim, (size, cut) in enumerate(zip(global_shape, parts, strict=True)):
            if size % cut:
                raise ValueError(
                    f"Sharding {self} implies that array axis {dim} is partitioned {cut} times, but the dimension "
                    f"size is {size} (full shape: {tuple(global_shape)}, per-dimension tiling factors: {parts} should "
                    "evenly divide the shape). Pad the array, or do not shard that axis: use None in the "
                    "PartitionSpec."
                )
        return block

    def block_shape(self, global_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the longest shard."""
        self.check_compatible_aval(global_shape)
        return tuple(-(-n // parts) for n, parts in zip(global_shape, self._parts(global_shape), strict=True))

    def _parts(self, global_shape: Sequence[int]) -> list[int]:
        """The number of parts of each array axis."""
        return [count(self.spec.axes_of(d), self.mesh.shape) for d in range(len(global_shape))]

    def check_compatible_aval(self, aval_shape: Sequence[int]) -> None:
        """Raise ValueError if an array has fewer axes than the PartitionSpec has entries."""
        if len(self.spec) > len(aval_shape):
            raise ValueError(
                f"Sharding {self} is only valid for values of rank at least {len(self.spec)}, but was applied to a "
                f"value of rank {len(aval_shape)}."
                f"{'' if aval_shape else ' For scalars the PartitionSpec should be P()'}"
            )

    def process_axes(self, dim: int) -> tuple[Any, ...]:
        """The mesh axes that divide array axis `dim` between processes."""
        return self.mesh.process_axes(self.spec.axes_of(dim))

    @cached_property
    def keeps_others(self) -> bool:  # type: ignore[override]
        if not self.mesh.holds_several:
            return False
        if self.mesh.lies_apart:
            return not self._splits_nothing
        used = {a for dim in range(len(self.spec)) for a in self.process_axes(dim)}
        return any(self.mesh.processes_along[a] > 1 and a not in used for a in self.spec.all_axes())

    def process_block(self, global_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the longest part that a process stores."""
        self.check_compatible_aval(global_shape)
        parts = self.process_parts(len(global_shape))
        return tuple(-(-n // p) for n, p in zip(global_shape, parts, strict=True))

    def process_parts(self, ndim: int) -> tuple[int, ...]:
        """The number of parts, one per process, of each of `ndim` array axes."""
        return tuple(count(self.process_axes(d), self.mesh.processes_along) for d in range(ndim))

    def _slices_of_process(self, global_shape: tuple[int, ...], place: Sequence[int]) -> tuple[slice, ...]:
        """The part of a global array that one process stores; slice(None) for axes that are not split."""
        at, out = dict(zip(self.mesh.axis_names, place, strict=True)), []
        for dim, (whole, size) in enumerate(zip(global_shape, self.process_block(global_shape), strict=True)):
            number = part_number(self.process_axes(dim), self.mesh.processes_along, at)
            out.append(_part(number, size, 0, whole, whole))
        return tuple(out)

    def _slices_at(self, global_shape: tuple[int, ...], coordinates: Sequence[int]) -> tuple[slice, ...]:
        """The part of a global array that the device at one position of the mesh has; slice(None) for unsplit axes.

        It is a subset of what its process stores: uneven blocks are divided by process first.
        """
        if not self.mesh.holds_several:
            return self._slices_of_process(global_shape, coordinates)
        within = self.mesh.within
        place = [c // n for c, n in zip(coordinates, within.values(), strict=True)]
        parts = self._slices_of_process(global_shape, place)
        at, out = dict(zip(self.mesh.axis_names, coordinates, strict=True)), []
        for dim, (whole, size) in enumerate(zip(global_shape, self.block_shape(global_shape), strict=True)):
            cut = self.process_axes(dim)
            sizes = {a: within[a] if a in cut else self.mesh.shape[a] for a in self.spec.axes_of(dim)}
            low, high, _ = parts[dim].indices(whole)
            number = part_number(sizes, sizes, {a: at[a] % n for a, n in sizes.items()})
            out.append(_part(number, size, low, high, whole))
        return tuple(out)

    def local_slices(self, global_shape: tuple[int, ...]) -> tuple[slice, ...]:
        """This process's part of a global array."""
        if self.is_elsewhere:
            return (_NOTHING,) * len(global_shape)
        return self._slices_of_process(global_shape, self.mesh.place)

    def process_shape(self, global_shape: tuple[int, ...]) -> tuple[int, ...]:
        if self.spec.unreduced:
            return self.of_summands.process_shape(self.summands_shape(global_shape))
        return super().process_shape(global_shape)

    def planned_shape(self, global_shape: tuple[int, ...]) -> tuple[int, ...]:
        return _lengths(self._slices_of_process(global_shape, self.mesh.place), global_shape)

    def devices_indices_map(self, global_shape: tuple[int, ...]) -> dict:
        """All devices, each with its slices of a global array; raises ValueError if the parts do not divide an axis."""
        self.shard_shape(global_shape)
        return self.held_indices(global_shape)

    def held_indices(self, global_shape: tuple[int, ...]) -> dict:
        """All devices, each with its slices of an existing array."""
        places = np.ndindex(self.mesh.devices.shape)
        return {self.mesh.devices[at]: self._slices_at(global_shape, at) for at in places}

    def replica(self, device: Any = None) -> int:
        """The number of this device, in row-major order, among the devices with the same part.

        Without a device: the number of this process among the processes with the same part.
        """
        split = {*self.spec.all_axes(), *self.spec.unreduced}
        names, sizes = self.mesh.axis_names, self.mesh.processes_along if device is None else self.mesh.shape
        at = self.mesh.place if device is None else np.argwhere(self.mesh.device_ids == device.id)[0].tolist()
        return part_number([a for a in names if a not in split], sizes, dict(zip(names, at, strict=True)))

    def _plain_(self) -> tuple:
        return self.mesh, self.spec, self.memory_kind

    @staticmethod
    def _from_plain_(mesh: Mesh, spec: PartitionSpec, memory_kind: str | None) -> NamedSharding:
        return NamedSharding(mesh, spec, memory_kind=memory_kind)

    def __eq__(self, other) -> bool:
        return isinstance(other, NamedSharding) and self._plain_() == other._plain_()

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        kind = "" if self.memory_kind is None else f", memory_kind={self.memory_kind}"
        return f"NamedSharding(mesh={self.mesh}, spec={self.spec}{kind})"


def _part(number: int, size: int, low: int, high: int, whole: int) -> slice:
    """Block `number`, of `size`, of the elements `[low, high)` of an array axis; slice(None) if that is all of it."""
    start, stop = (min(low + k * size, high) for k in (number, number + 1))
    return slice(None) if (start, stop) == (0, whole) else slice(start, stop)


def _check_sums_over(mesh: Any, spec: PartitionSpec) -> None:
    """Raise ValueError if unreduced or reduced axes of a spec are missing in the mesh, or are not Explicit."""
    for name, axes in (("unreduced", spec.unreduced), ("reduced", spec.reduced)):
        for a in axes:
            if a not in mesh.axis_names:
                raise ValueError(
                    f"{name.capitalize()} axes {a} is not found in mesh.axis_names={mesh.axis_names}. Got pspec={spec}"
                )
        kinds = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
        if any(kinds[a] is AxisType.Auto for a in axes):
            raise ValueError(
                f"{name.capitalize()} axes can only refer to mesh axes that is of type `Explicit`. Got {name} axes: "
                f"{axes} and mesh: {mesh}"
            )


class SingleDeviceSharding(Sharding):
    """The whole array on one device.

    >>> mpijax.sharding.SingleDeviceSharding(mpijax.local_devices()[0]).is_fully_replicated
    True
    """

    is_fully_replicated = True
    keeps_whole = True


    def __init__(self, device, *, memory_kind: str | None = None):
        self._device = device
        self.memory_kind = _memory_kind(memory_kind, abstract=False)

    def with_memory_kind(self, kind: str) -> SingleDeviceSharding:
        """The same device, another kind of memory."""
        return SingleDeviceSharding(self._device, memory_kind=kind)

    @staticmethod
    def by_default(device: Any) -> SingleDeviceSharding:
        """The sharding of an array that the user did not place."""
        sharding = SingleDeviceSharding(device)
        sharding.committed = sharding.is_followed = False
        return sharding

    @cached_property
    def is_elsewhere(self) -> bool:  # type: ignore[override]
        return self._device.process_index != provided.process_index()

    @property
    def is_fully_addressable(self) -> bool:  # type: ignore[override]
        return not self.is_elsewhere

    @property
    def processes(self) -> frozenset[int]:  # type: ignore[override]
        return frozenset((self._device.process_index,))

    @property
    def device_set(self) -> set:
        return {self._device}

    @property
    def _device_assignment(self) -> tuple:
        return (self._device,)

    def shard_shape(self, global_shape):
        return tuple(global_shape)

    def local_slices(self, global_shape):
        return (_NOTHING if self.is_elsewhere else slice(None),) * len(global_shape)

    def devices_indices_map(self, global_shape):
        return {self._device: (slice(None),) * len(global_shape)}

    def replica(self, device: Any = None) -> int:
        return 0

    num_devices = 1

    def _plain_(self) -> tuple[int, bool, str | None]:
        return self._device.id, self.committed, self.memory_kind

    @staticmethod
    def _from_plain_(id: int, committed: bool, memory_kind: str | None) -> SingleDeviceSharding:
        sharding = SingleDeviceSharding(provided.devices()[id], memory_kind=memory_kind)
        return sharding if committed else SingleDeviceSharding.by_default(sharding._device)

    @property
    def addressable_devices(self) -> set:
        return set() if self.is_elsewhere else self.device_set

    def addressable_devices_indices_map(self, global_shape):
        return {} if self.is_elsewhere else self.devices_indices_map(global_shape)

    def is_equivalent_to(self, other: Any, ndim: int) -> bool:
        """Whether two shardings split arrays of `ndim` axes alike."""
        if isinstance(other, SingleDeviceSharding):
            return self == other
        return isinstance(other, NamedSharding) and other.is_equivalent_to(self, ndim)

    def __eq__(self, other) -> bool:
        return isinstance(other, SingleDeviceSharding) and self._key() == other._key()

    def _key(self) -> tuple[int, bool, str | None]:
        return id(self._device), self.committed, self.memory_kind

    def __hash__(self) -> int:
        return hash(("single", self._key()))

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self._device!r}, memory_kind={self.memory_kind})"
