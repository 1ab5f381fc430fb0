"""Makes sharded arrays from the parts that each process has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base.errors import UnexpectedTracerError
from mpijax.core.sharding.format import Format
from mpijax.core.sharding.shardings import NamedSharding, Sharding
from mpijax.core.tracing.requested import sharding_of
from mpijax.core.tracing.trace import trace_state_clean
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.trees import tree
from mpijax.core.trees.prefix import broadcast_leaves, flatten_axes
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.runtime.arrays.array import from_numpy, index_in_part, rewrap
from mpijax.runtime.arrays.placement import carried_sharding, type_in
from mpijax.runtime.mpi import mpi_start, objects

_NO_DTYPE = "If the Array has no addressable shards, `dtype` must be provided via the `dtype` argument to `{}`."


def make_array_from_callback(
    shape: Sequence[int],
    sharding: Sharding,
    data_callback: Callable[[tuple[slice, ...] | None], Any],
    *,
    dtype: Any = None,
) -> Any:
    """An array whose shards a function computes.

    Args:
      shape: of the whole array.
      sharding: of the array.
      data_callback: takes the index of a shard, a tuple of slices, and returns the shard's elements. Each process
        calls it for the shards of its own devices only.
      dtype: of the array; by default that of the elements.

    Raises ValueError if the elements do not have the shape of the shard, TypeError for anything but a sharding or a
    `Format` with one. Communicates only if a process has several
    devices whose shards are not adjacent in the array.

    >>> rows = mpijax.NamedSharding(mpijax.make_mesh((mpijax.device_count(),), ("x",)), mpijax.P("x"))
    >>> mpijax.make_array_from_callback((4,), rows, lambda index: np.arange(4)[index])
    Array([0, 1, 2, 3], dtype=int32)
    """
    if not trace_state_clean():
        raise UnexpectedTracerError("jax.make_array_from_callback cannot be called within a traced context.")
    if isinstance(sharding, Format):
        sharding.refuse_auto("when calling `jax.make_array_from_callback`")
        sharding = sharding.sharding
    if not isinstance(sharding, Sharding):
        raise TypeError(f"sharding should be an instance of `jax.sharding`. Got {sharding} of type {type(sharding)}")
    shape = tuple(shape)
    what = "That is what data_callback returned"
    indices = list(sharding.addressable_devices_indices_map(shape).values())
    if not indices:
        return _without_part(shape, sharding, dtype, "jax.make_array_from_callback")
    distinct = [index for i, index in enumerate(indices) if index not in indices[:i]]
    return _from_parts(shape, sharding, distinct, [data_callback(index) for index in distinct], dtype, what)


def make_array_from_process_local_data(sharding: Any, local_data: Any, global_shape: Any = None) -> Any:
    """An array, or a pytree of arrays, of which each process passes its own part, `local_data`.

    Args:
      sharding: of the arrays: a prefix pytree of shardings, devices, or PartitionSpecs over the mesh in context.
      local_data: a pytree of arrays.
      global_shape: of the whole arrays: a prefix pytree of tuples. Without it (or with None for an axis), the parts
        must have equal shapes and are adjacent along the split axes. If an axis of `local_data` has the whole length,
        each process takes its part of it.

    Raises ValueError if the shapes do not fit. Does not communicate.

    >>> rows = mpijax.NamedSharding(mpijax.make_mesh((mpijax.device_count(),), ("x",)), mpijax.P("x"))
    >>> mpijax.make_array_from_process_local_data(rows, np.arange(4.0))
    Array([0., 1., 2., 3.], dtype=float32)
    """
    leaves, structure = tree.tree_flatten(local_data)
    name = "make_array_from_process_local_data"
    shardings = [sharding_of(s, name) for s in flatten_axes(f"{name} sharding", structure, sharding)]
    shapes, of_shapes = tree.tree_flatten(global_shape, is_leaf=lambda x: x is None or isinstance(x, (tuple, list)))
    out = map(_from_process_local_data, shardings, leaves, broadcast_leaves(shapes, of_shapes, structure))
    return tree.tree_unflatten(structure, out)


def _from_process_local_data(sharding: Sharding, local_data: Any, global_shape: Sequence[int | None] | None) -> Any:
    local = np.asarray(local_data) if not hasattr(local_data, "aval") else np.asarray(local_data._physical)
    given = tuple(global_shape) if global_shape is not None else (None,) * local.ndim
    if len(given) != local.ndim:
        raise ValueError(
            f"global_shape {given} and local_data of shape {local.shape} must have the same number of axes"
        )
    if isinstance(sharding, NamedSharding) and sharding.keeps_others:
        return _from_parts_apart(sharding, local, given)
    parts = sharding.process_parts(local.ndim) if isinstance(sharding, NamedSharding) else (1,) * local.ndim
    shape = tuple(n * p if g is None else g for n, p, g in zip(local.shape, parts, given, strict=True))
    sharding.shard_shape(shape)  # raises if it does not fit
    cut = sharding.local_slices(shape)
    places = zip(local.shape, shape, parts, cut, strict=True)
    own = tuple(c if n == whole and p > 1 else slice(None) for n, whole, p, c in places)
    what = "That is the shape of local_data"
    return _from_part(shape, sharding, local[own] if own else local, None, what)


def _from_parts_apart(sharding: NamedSharding, local: np.ndarray, given: tuple[int | None, ...]) -> Any:
    """An array in which a process's shards are not adjacent; `local` contains them side by side."""
    is_here = np.isin(sharding.mesh.device_ids.ravel(), [d.id for d in sharding.mesh.local_devices])
    numbers = [sharding.numbers_along(d) for d in range(local.ndim)]
    own = [np.unique(n[is_here]) for n in numbers]
    counts = [int(n.max()) + 1 for n in numbers]
    shape = tuple(
        n * count // len(mine) if g is None else g
        for n, g, count, mine in zip(local.shape, given, counts, own, strict=True)
    )
    block = sharding.shard_shape(shape)
    for n, whole, size, mine in zip(local.shape, shape, block, own, strict=True):
        if n not in (whole, size * len(mine)):
            raise ValueError(
                f"local_data of shape {local.shape} is neither the whole array of shape {shape} nor the shards of "
                f"this process under {sharding}"
            )

    def part(at: int) -> np.ndarray:
        where = (
            n[at] if local.shape[d] == shape[d] else int(np.searchsorted(own[d], n[at])) for d, n in enumerate(numbers)
        )
        return local[tuple(slice(k * size, (k + 1) * size) for k, size in zip(where, block, strict=True))]

    indices = list(sharding.addressable_devices_indices_map(shape).values())
    parts = [part(int(at)) for at in np.flatnonzero(is_here)]
    return _from_parts(shape, sharding, indices, parts, None, "That is the shape of local_data")


def make_array_from_single_device_arrays(
    shape: Sequence[int], sharding: Sharding, arrays: Sequence[Any], *, dtype: Any = None
) -> Any:
    """An array assembled from arrays on single devices: one for each device of this process.

    Raises ValueError for a wrong number of arrays, or for wrong shapes. Communicates only if a process has several
    devices whose shards are not adjacent in the array.

    >>> one = mpijax.sharding.SingleDeviceSharding(mpijax.local_devices()[0])
    >>> mpijax.make_array_from_single_device_arrays((3,), one, [jnp.arange(3)])
    Array([0, 1, 2], dtype=int32)
    """
    name = "jax.make_array_from_single_device_arrays"
    if not isinstance(arrays, (list, tuple)):
        raise TypeError(f"{name} `arrays` argument must be a list or tuple, but got {type(arrays)}.")
    if any(isinstance(part, Tracer) for part in arrays):
        kinds = {type(part) for part in arrays}
        raise ValueError(
            f"{name} requires a list of concrete arrays as input, but got types {kinds}. Call it outside of jit."
        )
    if not arrays and dtype is None:
        raise ValueError(_NO_DTYPE.format(name))
    expected = len(sharding.addressable_devices)
    if len(arrays) != expected:
        raise ValueError(
            f"Expected {expected} per-device arrays (this is how many devices are addressable by the sharding), but "
            f"got {len(arrays)}"
        )
    found = [typeof(part).dtype for part in arrays]
    if dtype is not None and any(d != dtypes.dtype(dtype) for d in found):
        raise ValueError(
            f"If `dtype` is provided to `{name}`, it must match the dtype of the addressable shards. Got "
            f"dtype={dtypes.dtype(dtype)} and shard dtype={found[0]}."
        )
    if len(set(found)) > 1:
        other = next(d for d in found if d != found[0])
        raise ValueError(f"Input buffers to `Array` must have matching dtypes. Got {other}, expected {found[0]}.")
    for part in arrays:
        held = len(part.devices()) if hasattr(part, "devices") else 1
        if held > 1:
            raise ValueError(
                "When making an array from single-device arrays the input arrays must have one shard each. An argument "
                f"array had {held} shard(s). Pass its addressable_shards' data."
            )
    if not arrays:
        return _without_part(tuple(shape), sharding, dtype, name)
    indices = sharding.addressable_devices_indices_map(tuple(shape))
    parts = _by_device(arrays, list(indices))
    what = "That is the shape of one of the arrays"
    if isinstance(sharding, NamedSharding) and sharding.spec.unreduced:
        return _from_summands(tuple(shape), sharding, parts, dtype, what)
    return _from_parts(tuple(shape), sharding, list(indices.values()), parts, dtype, what)


def _from_summands(shape: tuple[int, ...], sharding: NamedSharding, parts: list[Any], dtype: Any, what: str) -> Any:
    """An array with pending sums, assembled from the summands of this process's devices."""
    apart, whole = sharding.of_summands, sharding.summands_shape(shape)
    lead = (1,) * (len(whole) - len(shape))
    indices = list(apart.addressable_devices_indices_map(whole).values())
    summands = [np.reshape(np.asarray(part), (*lead, *np.shape(part))) for part in parts]
    found = _from_parts(whole, apart, indices, summands, dtype, what)
    return rewrap(found, type_in(ShapedArray(shape, found.dtype), sharding), sharding)


def _by_device(arrays: Sequence[Any], devices: list[Any]) -> list[Any]:
    """The arrays in the order of their devices; NumPy arrays stay in the given order."""
    found = [next(iter(x.devices()), None) if hasattr(x, "devices") else None for x in arrays]
    held = [d for d in found if d is not None]
    if len(held) < len(found):
        return list(arrays)
    if len(set(held)) < len(held):
        raise ValueError(
            "When making an array from single-device arrays, the input arrays must be from distinct devices, but got "
            f"device IDs {[d.id for d in held]}"
        )
    if set(held) != set(devices):
        absent, other = ({d.id for d in a} for a in (set(devices) - set(held), set(held) - set(devices)))
        raise ValueError(
            "Addressable devices and per-device arrays devices do not match. Sharding contains devices "
            f"{absent} that are not present in per-device arrays. Per-device arrays contain devices {other} that are "
            "not present in the sharding."
        )
    return [arrays[held.index(d)] for d in devices]


def _from_parts(shape: tuple[int, ...], sharding: Sharding, indices, parts, dtype: Any, what: str) -> Any:
    """An array assembled from the shards of this process's devices."""
    if len(parts) == 1 and not sharding.keeps_others:
        return _from_part(shape, sharding, parts[0], dtype, what)
    wanted = sharding.shard_shape(shape)
    checked = [_checked(part, wanted, dtype, what, shape, sharding) for part in parts]
    first, aval = checked[0]
    held = sharding.local_slices(shape)
    local = np.empty((*sharding.process_shape(shape), *first.shape[len(wanted) :]), first.dtype)
    found = [(index, value) for index, (value, _) in zip(indices, checked, strict=True)]
    for index, value in _with_others(sharding, found) if sharding.keeps_others else found:
        local[index_in_part(index, held, shape)] = value
    return from_numpy(local, type_in(ShapedArray(shape, aval.dtype), sharding), False, sharding)


def _with_others(sharding: Sharding, own: list[tuple[Any, np.ndarray]]) -> list[tuple[Any, np.ndarray]]:
    """The shards of all devices, for processes that also keep those of others. Communicates."""
    if len(sharding.processes) < mpi_start.size():
        raise NotImplementedError(
            f"The devices of a process are not neighbours in the mesh of {sharding}, which also leaves out some "
            "processes. Order the devices by process, as jax.make_mesh does."
        )
    everyone = objects.allgather(own, "assembling an array whose shards of a rank are not neighbours")
    return [part for parts in everyone for part in parts]


def _without_part(shape: tuple[int, ...], sharding: Sharding, dtype: Any, name: str) -> Any:
    """An array of which this process has no part."""
    if dtype is None:
        raise ValueError(_NO_DTYPE.format(name))
    sharding.shard_shape(shape)  # raises if it does not fit
    aval = ShapedArray(shape, dtypes.canonicalize_dtype(dtype, allow_extended_dtype=True))
    words = () if isinstance(aval.dtype, np.dtype) else aval.dtype.physical_shape
    element = aval.dtype if isinstance(aval.dtype, np.dtype) else aval.dtype.physical_dtype
    nothing = np.empty((*sharding.process_shape(shape), *words), element)
    return from_numpy(nothing, type_in(aval, sharding), True, sharding)


def _from_part(shape: tuple[int, ...], sharding: Sharding, part: Any, dtype: Any, what: str) -> Any:
    """An array whose part on this process is `part`."""
    value, aval = _checked(part, sharding.process_shape(shape), dtype, what, shape, sharding)
    return from_numpy(value, type_in(ShapedArray(shape, aval.dtype), sharding), True, carried_sharding(sharding))


def _checked(
    part: Any, wanted: Any, dtype: Any, what: str, shape, sharding: Sharding
) -> tuple[np.ndarray, ShapedArray]:
    """The elements of a shard and its type. Raises ValueError unless it has the shape `wanted`."""
    aval = typeof(part) if hasattr(part, "aval") else typeof(np.asarray(part))
    if dtype is not None:
        aval = aval.update(dtype=dtype)
    if aval.shape != tuple(wanted):
        raise ValueError(
            f"Expected shard shape {tuple(wanted)} doesn't match the single device array shape {aval.shape}. Shape of "
            f"Array is {aval.update(shape=shape).str_short(False)} with sharding {sharding}. {what}."
        )
    value = part._physical if hasattr(part, "_physical") else np.asarray(part).astype(aval.dtype, copy=False)
    return value, aval
