"""Makes arrays from host memory, and arrays sharded over ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax._ext.array import ArrayBase
from mpijax.core.base import provided
from mpijax.core.base.state import state
from mpijax.core.sharding.context import context_mesh, of_sharding
from mpijax.core.sharding.format import Format
from mpijax.core.sharding.memory_space import DEVICE, Space
from mpijax.core.sharding.shardings import NamedSharding, SingleDeviceSharding
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.core.tracing import transfers
from mpijax.core.tracing.requested import check_fits
from mpijax.core.tracing.trace import EVAL
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.trees import tree
from mpijax.core.trees.prefix import flatten_axes
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.runtime.arrays.array import from_numpy, rewrap  # importing it also registers the array class
from mpijax.runtime.arrays.default_sharding import default_place, default_sharding
from mpijax.runtime.arrays.devices import Device, SimulatedDevice, local_devices
from mpijax.runtime.matching import same_values
from mpijax.runtime.mpi import mpi_start


def from_host(value: np.ndarray, aval: ShapedArray) -> Any:
    """An array of type `aval` with a copy of the elements of an ndarray."""
    transfers.to_device(value)
    sharding = default_sharding()
    return from_numpy(np.asarray(value), aval, copy=True, sharding=sharding)


def device_put(
    x: Any, device: Any = None, *, src: Any = None, donate: Any = False, may_alias: Any = None
) -> Any:
    """`x` (a pytree) as arrays on a device, or with the sharding of a `NamedSharding` (or of a `Format` with one).

    For a sharding over several ranks, every rank passes the same whole array and keeps its shard. Arrays already in
    place are returned as they are; with `may_alias=False` they are copied.

    `donate` (one value for all, or a pytree, like `device`) gives arrays away: those that move are deleted.
    For a sharding over all processes, the ranks compare checksums of the uncommitted values. So every rank must call
    it, and MismatchError names the first value that differs. Calls in threads are not compared.

    Raises ValueError for a device of another process, for anything but a device or sharding, for an array committed to
    devices of this process and a sharding that spans other processes, and for `may_alias` with `donate`.

    >>> mpijax.device_put(np.arange(3.0), mpijax.local_devices()[0])
    Array([0., 1., 2.], dtype=float32)
    """
    leaves, structure = tree.tree_flatten(x)

    def each(what: str, given: Any) -> list[Any]:
        one = given is None or tree.all_leaves([given])
        return [given] * len(leaves) if one else flatten_axes(what, structure, given)

    places, sources = each("device_put device", device), each("device_put source", src)
    given_away, aliases = each("device_put donate", donate), each("device_put may_alias", may_alias)
    if any(a and d for a, d in zip(aliases, given_away, strict=True)):
        raise ValueError("may_alias and donate cannot be True at the same time.")
    if state.trace is not EVAL or any(isinstance(leaf, Tracer) for leaf in leaves):
        outs = provided.put(leaves, places, sources, given_away, aliases)
    else:
        if mpi_start.started() and mpi_start.size() > 1:
            same_values.check(x, leaves, [p if isinstance(p, Space) else carried_sharding(p) for p in places])
        outs = list(map(put_one, leaves, places))
        for i, (out, leaf) in enumerate(zip(outs, leaves, strict=True)):
            if out is leaf and aliases[i] is False and isinstance(out, ArrayBase):
                outs[i] = out.copy()
            elif out is not leaf and given_away[i] and isinstance(leaf, ArrayBase):
                leaf.delete()
    return tree.tree_unflatten(structure, outs)


def put_one(x: Any, place: Any) -> Any:
    aval = typeof(x)
    if _is_unreduced(place):
        return _as_summands(x, carried_sharding(place))
    if isinstance(place, Space):
        place = _in_memory(x, place.kind)
    elif isinstance(place, Format):
        place = place.sharding_of(aval)
    if not isinstance(x, ArrayBase):
        transfers.to_device(x, explicit=True)
        value = np.asarray(x).astype(aval.dtype, copy=False)
        return _placed(value, aval, carried_sharding(place))
    if place is None:
        return x
    sharding = carried_sharding(place)
    if x._sharding == sharding:
        return x
    transfers.between(x, sharding, explicit=True)
    if x._is_whole and (sharding is None or sharding.has_all_here):
        if sharding is not None:
            sharding.shard_shape(aval.shape)  # raises if it does not fit
        return rewrap(x, type_in(aval, sharding), sharding)
    if not x._is_whole:
        return _with_sharding(x, sharding or SingleDeviceSharding(local_devices()[0]))
    if x.committed and x.is_fully_addressable and sharding is not None and not sharding.is_fully_addressable:
        raise ValueError(
            "device_put's second argument must be a Device or a Sharding which represents addressable devices, but "
            f"got {sharding}. Please pass device or Sharding which represents addressable devices. The array is on "
            f"devices of this process only, {x.sharding}, and mpijax does not support cross-host device transfers by "
            "device_put. Pass np.asarray(x), or make a sharded array from the parts "
            "of all processes with jax.make_array_from_process_local_data."
        )
    return _placed(x._physical, aval, sharding)


def _is_unreduced(place: Any) -> bool:
    spec = getattr(place, "spec", place)
    return isinstance(spec, PartitionSpec) and bool(spec.unreduced)


def _as_summands(x: Any, sharding: NamedSharding) -> Any:
    """A value as the sum of its shards: its shards over the unreduced axes, each in its place among zeros, or else the
    whole value on the first device and zeros on the others."""
    if not isinstance(x, ArrayBase) or not hasattr(x._sharding, "mesh"):
        x = put_one(x, sharding.update(spec=sharding.spec.update(unreduced=frozenset())))
    out = provided.move_to(x, sharding)
    return rewrap(out, out.aval, sharding)


def _in_memory(x: Any, kind: str | None) -> Any:
    """The sharding of an array or ndarray in another kind of memory; None if `kind` is None."""

    if kind is None:
        return None
    held = x.sharding if isinstance(x, ArrayBase) else SingleDeviceSharding(local_devices()[0])
    return held.with_memory_kind(kind)


def carried_sharding(place: Any) -> Any:
    """The sharding that an array stores for a device or sharding; None for a process's only device and its default
    memory."""
    if place is None:
        return place
    if hasattr(place, "mesh"):
        _ = place.is_fully_addressable  # raises for a mesh without devices
        if place.mesh.simulation is not None:
            place.mesh.simulation.refuse("an array")
        return place

    if isinstance(place, Format):  # all arrays have the same layout in memory
        return carried_sharding(place.sharding)
    if isinstance(place, Device):
        place = SingleDeviceSharding(place)
    if isinstance(place, PartitionSpec):
        mesh = context_mesh()
        if mesh is None:
            raise ValueError(
                f"Please set a mesh via `jax.set_mesh` if a PartitionSpec is passed to device_put. Got {place}. Or "
                "pass a NamedSharding."
            )
        return NamedSharding(mesh, place)
    if not isinstance(place, SingleDeviceSharding):
        raise ValueError(
            "`jax.device_put` only accepts `None`, `jax.sharding.Sharding`, `jax.Device`, `Format`, `jax.memory.Space` "
            f"or a pytree of these values. Received invalid value: {place}"
        )
    [device] = place.device_set
    if isinstance(device, SimulatedDevice):
        device.simulation.refuse("an array")
    return None if [device] == local_devices() and place.memory_kind == DEVICE else place


def type_in(aval: ShapedArray, sharding: Any) -> ShapedArray:
    """The type `aval` for an array with this sharding; over Explicit axes the type includes it."""
    return aval.update(split=of_sharding(sharding, aval.ndim))


def _placed(value: np.ndarray, aval: ShapedArray, sharding: Any) -> Any:
    """A copy of a whole array's elements, or of this process's shard."""
    aval = type_in(aval, sharding)
    if sharding is None:
        return from_numpy(np.asarray(value), aval, copy=True, sharding=default_place())
    sharding.shard_shape(aval.shape)  # raises if it does not fit
    part = value if sharding.has_all_here else value[sharding.local_slices(aval.shape)]
    return from_numpy(part, aval, copy=True, sharding=sharding)


def _with_sharding(x: Any, sharding: Any) -> Any:
    """An array or traced value in another sharding. Communicates: every rank must call it."""
    held, wanted = x._sharding.device_set, sharding.device_set
    if wanted != held and not hasattr(sharding, "mesh"):
        raise ValueError(
            "When the second argument to `device_put` is a Device, the first argument must be a fully addressable "
            f"array or a non-addressable array with a single device sharding. Got value with devices {held}. mpijax "
            "does not support cross-host device transfers by device_put. Gather it with "
            "jax.experimental.multihost_utils.process_allgather first."
        )
    if wanted != held:
        raise ValueError(
            "device_put over processes: input and target sharding should have the same set of devices, got those "
            f"with ids {sorted(d.id for d in held)} and {sorted(d.id for d in wanted)}. Gather the array with "
            "jax.experimental.multihost_utils.process_allgather first."
        )
    check_fits(sharding, typeof(x), "One of device_put arguments")
    return provided.move_to(x, sharding)


def gathered(x: Any) -> Any:
    """The whole of a sharded array, on every rank. Communicates: every rank must call it."""
    if x._is_whole:
        return x
    whole = PartitionSpec()
    return provided.shard_map(lambda whole: whole, mesh=x._sharding.mesh, in_specs=whole, out_specs=whole)(x)


def device_get(x: Any) -> Any:
    """`x` (a pytree) with arrays as NumPy arrays (read-only views of the same memory); PRNG keys as they are.

    >>> mpijax.device_get({"a": jnp.arange(3)})
    {'a': array([0, 1, 2], dtype=int32)}
    """

    def fetched(leaf):
        return np.asarray(leaf) if isinstance(leaf, ArrayBase) and isinstance(leaf.dtype, np.dtype) else leaf

    return tree.tree_map(fetched, x)


def block_until_ready(x: Any) -> Any:
    """`x` itself, because results are complete when they are returned.

    >>> mpijax.block_until_ready(jnp.arange(3))
    Array([0, 1, 2], dtype=int32)
    """
    for leaf in tree.tree_leaves(x):
        if hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()
    return x
