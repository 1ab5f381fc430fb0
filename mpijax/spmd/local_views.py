"""Converts between arrays of each process and one global array of which they are the shards.

No data moves: each process's array is its shard. Each of the two conversions is the other's transpose.
"""

from __future__ import annotations

from typing import Any

from mpijax._ext.array import ArrayBase
from mpijax.core.rules.lowering import Reshard, ReshardKind
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.core.sharding.mesh import Mesh
from mpijax.core.sharding.shardings import NamedSharding
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.core.tracing.requested import check_fits
from mpijax.core.types.typeof import typeof
from mpijax.runtime.arrays.array import rewrap
from mpijax.runtime.arrays.devices import process_index
from mpijax.runtime.arrays.placement import type_in
from mpijax.transforms.zeros import Zero


def to_global(x: Any, mesh: Mesh, spec: PartitionSpec) -> Any:
    """The global array whose shard on every process is `x`; `x` must be the whole array if `spec` splits nothing.

    An array over several processes is returned as it is.
    """
    if not mesh.is_multi_process or (isinstance(x, ArrayBase) and not x.is_fully_addressable):
        return x
    _check_is_here(mesh, "host_local_array_to_global_array")
    _ = mesh.local_mesh  # raises if there is none
    sharding = NamedSharding(mesh, spec)
    check_fits(sharding, typeof(x), "host_local_array_to_global_array", strict=False)
    if isinstance(x, ArrayBase):
        return rewrap(x, type_in(_global_type(typeof(x), sharding=sharding), sharding), sharding)
    return from_local_p.bind(x, sharding=sharding)


def to_local(x: Any, mesh: Mesh, spec: PartitionSpec) -> Any:
    """This process's shard as a separate array. Communicates if the array has another sharding."""
    if not mesh.is_multi_process:
        return x
    _check_is_here(mesh, "global_array_to_host_local_array")
    _ = mesh.local_mesh  # raises if there is none
    check_fits(NamedSharding(mesh, spec), typeof(x), "global_array_to_host_local_array")
    return to_local_p.bind(x, sharding=NamedSharding(mesh, spec))


def _check_is_here(mesh: Mesh, name: str) -> None:
    if mesh.coordinates() is None:
        raise ValueError(
            f"{name}: process {process_index()} has no device of {mesh}. Call it on processes "
            f"{sorted(mesh.processes)}."
        )


def _global_type(x, *, sharding: NamedSharding):
    return x.update(shape=tuple(n * parts for n, parts in zip(x.shape, sharding.process_parts(x.ndim), strict=True)))


def _local_type(x, *, sharding: NamedSharding):
    sharding.shard_shape(x.shape)  # raises if it does not fit
    return x.update(shape=sharding.planned_shape(x.shape))


def _jvp(name: str):
    def jvp(primals, tangents, *, sharding):
        [x], [t] = primals, tangents
        out = registry[name].bind(x, sharding=sharding)
        return out, Zero.of_primal(out) if type(t) is Zero else registry[name].bind(t, sharding=sharding)

    return jvp


def _transpose(name: str):
    def transpose(ct, x, *, sharding):
        return [Zero(x.aval) if type(ct) is Zero else registry[name].bind(ct, sharding=sharding)]

    return transpose


def _batch(name: str):
    def batch(axis, args, dims, *, sharding):
        [x], [d] = args, dims
        if d is not None:
            parts = list(sharding.spec)
            parts += [None] * (d - len(parts))
            parts.insert(d, None)
            sharding = NamedSharding(sharding.mesh, PartitionSpec(*parts))
        return registry[name].bind(x, sharding=sharding), d

    return batch


def _view(name: str, other: str, kind: ReshardKind, type_rule) -> Primitive:
    return Primitive(
        name,
        type_rule=type_rule,
        reference=lambda x, *, sharding: x,
        lower=Reshard("sharding", kind),
        jvp=_jvp(name),
        transpose=_transpose(other),
        batch=_batch(name),
    )


_NAMES = "host_local_array_to_global_array", "global_array_to_host_local_array"
from_local_p = _view(*_NAMES, ReshardKind.FROM_LOCAL, _global_type)
to_local_p = _view(*_NAMES[::-1], ReshardKind.TO_LOCAL, _local_type)
