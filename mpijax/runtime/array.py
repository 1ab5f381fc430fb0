"""`ArrayImpl`, the class of concrete arrays: what is not in every call's path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mpijax._ext.array import ArrayBase, from_numpy, register_array_type, rewrap
from mpijax.core.array_api import register_concrete
from mpijax.core.avals import ShapedArray

__all__ = ["ArrayImpl", "from_numpy", "rewrap"]

_OPENING = "Array("


@dataclass(frozen=True)
class Shard:
    """One device's part of an array.

    index: which part of the whole it is. replica_id: which of the equal copies of that part. data: the part as an
    array; None if the device belongs to another process.
    """

    device: Any
    index: tuple[slice, ...]
    replica_id: int
    data: ArrayImpl | None


class ArrayImpl(ArrayBase):
    """A concrete array. Operators and most methods are those of the NumPy layer (`core.array_api`)."""

    __slots__ = ()
    __array_priority__ = 100  # an operator of a NumPy array and this one is this one's

    def __repr__(self) -> str:
        aval = self.aval
        if not isinstance(aval.dtype, np.dtype):
            if not self._is_whole:
                return f"Array(shape={aval.shape}, dtype={aval.dtype.name})"
            return f"Array({aval.shape}, dtype={aval.dtype.name}) overlaying:\n{self._physical}"
        weak = ", weak_type=True" if aval.weak_type else ""
        ending = f"dtype={aval.dtype.name}{weak})"
        if not self._is_whole:
            body = f"shape={aval.shape}"
        elif aval.size == 0:
            body = f"[], shape={aval.shape}"
        else:
            body = np.array2string(self._value, separator=", ", prefix=_OPENING, suffix=",")
        # JAX's rule, quirk included: where the line would be too long it indents, but does not break it.
        length = len(body) - body.rfind("\n") + len(ending) + 2
        gap = len(_OPENING) if length > np.get_printoptions()["linewidth"] else 1
        return f"{_OPENING}{body},{' ' * gap}{ending}"

    def __str__(self) -> str:
        return str(self._value) if isinstance(self.dtype, np.dtype) and self._is_whole else repr(self)

    def __reduce__(self):
        if not self._is_whole:
            np.asarray(self)  # raises: another process has the rest
        return _restore, (self._physical, self.aval)

    def __copy__(self) -> ArrayImpl:
        return from_numpy(self._physical, self.aval, True, self._sharding)

    def __deepcopy__(self, memo: dict) -> ArrayImpl:
        return self.__copy__()

    @property
    def sharding(self) -> Any:
        """How the array is laid out over devices."""
        from mpijax.spmd.mesh import SingleDeviceSharding  # that layer lies above this one

        return SingleDeviceSharding(self.device) if self._sharding is None else self._sharding

    @property
    def device(self) -> Any:
        """The device that holds the array; its sharding if that is over several."""
        from mpijax.runtime import devices  # starts MPI: only when asked

        return devices.local_devices()[0] if self._sharding is None else self._sharding

    def devices(self) -> set:
        """The devices over which the array is laid out."""
        return set(self.sharding.device_set)

    @property
    def addressable_shards(self) -> list[Shard]:
        """The part of the array that this process has, as a list of one."""
        from mpijax.runtime import devices

        layout = self.sharding
        [device] = devices.local_devices()
        return [Shard(device, layout.local_slices(self.shape), layout.replica(), self._local())]

    @property
    def global_shards(self) -> list[Shard]:
        """The parts on all devices; `data` is None for those of other processes."""
        layout = self.sharding
        mine = self.addressable_shards
        here = {s.device: s for s in mine}
        indices = layout.devices_indices_map(self.shape)
        return [here.get(d) or Shard(d, index, layout.replica(d), None) for d, index in indices.items()]

    def addressable_data(self, index: int) -> ArrayImpl:
        """The part of the array on a device of this process, which is number 0."""
        if index != 0:
            raise IndexError(f"addressable_data: this process has one device, number 0; got index {index}")
        return self._local()

    def _local(self) -> ArrayImpl:
        """This process's shard as an array on its own; the memory is shared."""
        layout = self._sharding
        if layout is None:
            return self
        return rewrap(self, self.aval.update(shape=layout.shard_shape(self.shape)))

    @property
    def committed(self) -> bool:
        return self._sharding is not None

    @property
    def is_fully_addressable(self) -> bool:
        return self._sharding is None or self._sharding.is_fully_addressable

    @property
    def is_fully_replicated(self) -> bool:
        return self._sharding is None or self._sharding.is_fully_replicated


def _restore(value: np.ndarray, aval: ShapedArray) -> ArrayImpl:
    """For pickle."""
    return from_numpy(value, aval, True)


register_array_type(ArrayImpl)
register_concrete(ArrayImpl)
