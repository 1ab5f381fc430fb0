"""`ArrayImpl`, the class of concrete arrays: the methods that are not on the path of every call."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from mpijax._ext.array import ArrayBase, from_numpy, register_array_type, rewrap
from mpijax.core import dtypes
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.module_names import name_in_jax
from mpijax.core.sharding.format import Format, row_by_row
from mpijax.core.sharding.shardings import SingleDeviceSharding
from mpijax.core.tracing.out_sharding import put
from mpijax.core.types.array_api import register_concrete
from mpijax.core.types.avals import ShapedArray
from mpijax.runtime.arrays import devices

__all__ = ["ArrayImpl", "from_numpy", "rewrap"]

_OPENING = "Array("


@dataclass(frozen=True)
class Shard:
    """One device's shard of an array.

    index: its position in the whole array. replica_id: its number among equal copies. data: the shard as an array; None
    if the device belongs to another process.

    >>> jnp.arange(3).addressable_shards[0].index
    (slice(None, None, None),)
    """

    device: Any
    index: tuple[slice, ...]
    replica_id: int
    data: ArrayImpl | None


class _ClassOfArrays(type):
    """Shows the attributes that `ArrayBase` reads in C as properties, as JAX's class does: libraries copy these. An
    array reads them in C all the same."""


def _shown(name: str) -> property:
    of_arrays = property(getattr(ArrayBase, name).__get__)
    return property(lambda _: of_arrays)


for _name in ("aval", "dtype", "itemsize", "nbytes", "ndim", "shape", "size", "weak_type"):
    setattr(_ClassOfArrays, _name, _shown(_name))


class ArrayImpl(ArrayBase, metaclass=_ClassOfArrays):
    """A concrete array. Operators and most methods are those of the NumPy layer (`core.types.array_api`)."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 100  # NumPy arrays leave operators with these arrays to this class

    def __repr__(self) -> str:
        aval = self.aval
        if not isinstance(aval.dtype, np.dtype):
            if not self._is_whole:
                return f"Array(shape={aval.shape}, dtype={aval.dtype.name})"
            return f"Array({aval.shape}, dtype={aval.dtype.name}) overlaying:\n{self._physical}"
        weak = ", weak_type=True" if aval.weak_type else ""
        if self._is_sum:
            return f"Array(shape={aval.shape}, dtype={aval.dtype.name}{weak}, sharding={self.sharding})"
        ending = f"dtype={aval.dtype.name}{weak})"
        if not self._is_whole:
            body = f"shape={aval.shape}"
        elif aval.size == 0:
            body = f"[], shape={aval.shape}"
        else:
            body = np.array2string(self._value, separator=", ", prefix=_OPENING, suffix=",")
        # JAX's rule, including its quirk: a line that would be too long is indented but not broken.
        length = len(body) - body.rfind("\n") + len(ending) + 2
        gap = len(_OPENING) if length > np.get_printoptions()["linewidth"] else 1
        return f"{_OPENING}{body},{' ' * gap}{ending}"

    def __str__(self) -> str:
        is_plain = isinstance(self.dtype, np.dtype) and self._is_whole and not self._is_sum
        return str(self._value) if is_plain else repr(self)

    def __reduce__(self):
        if not self._is_whole:
            np.asarray(self)  # raises: the rest is on other processes
        return _restore, (self._physical, self.aval.unsplit())

    def __copy__(self) -> ArrayImpl:
        return from_numpy(self._physical, self.aval, True, self._sharding)

    def __deepcopy__(self, memo: dict) -> ArrayImpl:
        return self.__copy__()

    def is_ready(self) -> bool:
        """True: the value is always complete when the array is returned."""
        return True

    @property
    def _is_sum(self) -> bool:
        """Whether the array is an unreduced sum of its shards."""
        return bool(self.aval.pending)

    @property
    def _summands(self) -> ArrayImpl:
        """The same memory as the array of the summands; the array itself if no sum is pending."""
        return rewrap(self, self.aval.of_summands(), self._sharding.of_summands) if self._is_sum else self

    @property
    def sharding(self) -> Any:
        """The array's sharding; over Explicit axes, the one in its type."""
        if not self.committed:
            return SingleDeviceSharding(self.device)
        split = self.aval.split
        return self._sharding if split is None else self._sharding.waiting(split.unreduced, split.reduced)

    @property
    def format(self) -> Format:
        """The array's layout in memory and its sharding."""
        return Format(row_by_row(self.ndim), self.sharding)

    @property
    def device(self) -> Any:
        """The device that holds the array; its sharding if it is on several devices."""
        if self._sharding is None:
            return devices.local_devices()[0]
        held = self._sharding.device_set
        return next(iter(held)) if len(held) == 1 else self._sharding

    def devices(self) -> set:
        """The devices that hold the array or parts of it."""
        return set(self.sharding.device_set)

    @property
    def addressable_shards(self) -> list[Shard]:
        """The shards on this process's devices."""
        parts = _addressable(self.sharding, self.shape)
        return [Shard(d, index, replica, self._part(d, index)) for d, index, replica in parts]

    @property
    def global_shards(self) -> list[Shard]:
        """The shards on all devices; `data` is None for those of other processes."""
        sharding = self.sharding
        mine = self.addressable_shards
        here = {s.device: s for s in mine}
        indices = sharding.held_indices(self.shape)
        return [here.get(d) or Shard(d, index, sharding.replica(d), None) for d, index in indices.items()]

    def addressable_data(self, index: int) -> ArrayImpl:
        """The shard on one of this process's devices of the array, counted from 0."""
        parts = _addressable(self.sharding, self.shape)
        if not parts:
            others = "Its devices are those of other processes"
            raise RuntimeError(f"FullyReplicatedShard: Array has no addressable shards. {others}: {self.sharding}")
        if not 0 <= index < len(parts):
            raise IndexError(f"addressable_data: this process has {len(parts)} of the devices; got index {index}")
        device, where, _ = parts[index]
        return self._part(device, where)

    def _part(self, device: Any, index: tuple[slice, ...]) -> ArrayImpl:
        """The shard on one device of this process as a separate array; shares memory where it can.

        If the array is the sum of its shards (unreduced), it is the summand of the device.
        """
        if not self.committed:
            return self
        sharding = self.sharding
        if self._is_sum:
            summands = self._summands
            shard = summands._part(device, summands.sharding.held_indices(summands.shape)[device])
            return rewrap(shard, shard.aval.update(shape=shard.shape[len(self.aval.pending) :]), shard._sharding)
        held = sharding.local_slices(self.shape)
        if index == held and not self._is_whole:  # everything this process has
            whole = rewrap(self, self.aval.update(shape=sharding.process_shape(self.shape)))
        else:
            value = np.asarray(self._physical[index_in_part(index, held, self.shape)], order="C")
            whole = from_numpy(value, self.aval.update(shape=tuple(value.shape[: self.ndim])), False)
        return put(whole, SingleDeviceSharding(device, memory_kind=sharding.memory_kind))

    def _fully_replicated_shard(self) -> ArrayImpl:
        """JAX's name for one of the equal shards of this process; some libraries read it."""
        return self.addressable_data(0)

    @property
    def committed(self) -> bool:
        """Whether the user placed the array, so that it decides where results go."""
        return self._sharding is not None and self._sharding.committed

    _committed = committed

    @property
    def is_fully_addressable(self) -> bool:
        return self._sharding is None or self._sharding.is_fully_addressable

    @property
    def is_fully_replicated(self) -> bool:
        return self.sharding.is_fully_replicated


def index_in_part(
    index: tuple[slice, ...], held: tuple[slice, ...], shape: tuple[int, ...]
) -> tuple[slice, ...]:
    """The index of a part of a global array of `shape`, relative to the part that a process holds."""
    starts = (h.start or 0 for h in held)
    bounds = (i.indices(n) for i, n in zip(index, shape, strict=True))
    return tuple(slice(low - start, high - start) for (low, high, _), start in zip(bounds, starts, strict=True))


@functools.lru_cache(maxsize=256)
def _addressable(sharding: Any, shape: tuple[int, ...]) -> list[tuple[Any, tuple[slice, ...], int]]:
    """This process's devices, each with the index (slices) of its shard and the number of that among equal copies."""
    mine = sharding.addressable_devices
    return [(d, index, sharding.replica(d)) for d, index in sharding.held_indices(shape).items() if d in mine]


def _restore(value: np.ndarray, aval: ShapedArray) -> ArrayImpl:
    """Unpickles an array."""
    dtype = dtypes.canonicalize_dtype(aval.dtype, allow_extended_dtype=True)
    if dtype != aval.dtype:  # a 64-bit type, while those are disabled
        value, aval = value.astype(dtype), aval.update(dtype=dtype)
    return from_numpy(value, aval, True)


register_array_type(ArrayImpl)
register_concrete(ArrayImpl)
name_in_jax(ArrayImpl, "jaxlib._jax")
