"""`device_put` of traced values: in a program, it sets their sharding from there on."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from mpijax.core.records import plain
from mpijax.core.rules.lowering import Decompose
from mpijax.core.rules.primitive import Primitive
from mpijax.core.sharding.context import mesh_types, of_sharding
from mpijax.core.sharding.memory_space import Space
from mpijax.core.sharding.shardings import NamedSharding, SingleDeviceSharding
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.core.tracing.requested import check_fits, named_sharding
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.runtime.arrays.devices import Device, local_devices
from mpijax.runtime.arrays.placement import put_one
from mpijax.spmd.constraints import put_on, with_batch_axis
from mpijax.spmd.reshard import move_to
from mpijax.transforms import key_reuse
from mpijax.transforms.transpose import UndefPrimal
from mpijax.transforms.zeros import Zero, instantiate


class ArrayCopySemantics(enum.IntEnum):
    """How a move may use its operand's memory. Compiled programs manage memory themselves and ignore this."""

    ALWAYS_COPY = 0
    REUSE_INPUT = 1
    DONATE_INPUT = 2

    def __repr__(self) -> str:
        return f"ArrayCopySemantics.{self.name}"


def copy_semantics(donate: bool, may_alias: bool | None) -> ArrayCopySemantics:
    """The copy semantics for arguments of `device_put`, which has checked them."""
    if donate:
        return ArrayCopySemantics.DONATE_INPUT
    return ArrayCopySemantics.REUSE_INPUT if may_alias in (None, True) else ArrayCopySemantics.ALWAYS_COPY


def put(leaves: Sequence[Any], devices: Sequence[Any], sources: Sequence[Any], donate, may_alias) -> list[Any]:
    """Values, some of them traced, on devices or in shardings (None: unchanged).

    sources: their present devices or shardings, to which derivatives return; None if unknown.

    Raises ValueError for an array that its sharding does not divide.
    """
    devices = [named_sharding(d, "device", "device_put") if isinstance(d, PartitionSpec) else d for d in devices]
    for x, device in zip(leaves, devices, strict=True):
        sharding = getattr(device, "sharding", device)
        if hasattr(sharding, "mesh"):
            check_fits(sharding, typeof(x), "One of device_put arguments")
    how = tuple(map(copy_semantics, donate, may_alias))
    return device_put_p.bind(*leaves, devices=tuple(devices), srcs=tuple(sources), copy_semantics=how)


def _type_rule(*avals, devices, **_):
    shardings = (getattr(d, "sharding", d) for d in devices)
    return [_type_in(x, s) if hasattr(s, "mesh") else x for x, s in zip(avals, shardings, strict=True)]


def _type_in(x: ShapedArray, sharding: NamedSharding) -> ShapedArray:
    return x.update(split=of_sharding(sharding.update(mesh=mesh_types(sharding.mesh)), x.ndim))


def _with_shardings(*xs: Any, devices, **_params: Any) -> list[Any]:
    """Sets shardings; moves to a `Device` have no effect inside a program."""
    return [_one(x, getattr(d, "sharding", d)) for x, d in zip(xs, devices, strict=True)]


def _one(x: Any, sharding: Any) -> Any:
    if hasattr(sharding, "mesh"):
        return move_to(x, sharding)
    return put_on(x, sharding) if isinstance(sharding, (SingleDeviceSharding, Space)) else x


def _now(*xs: Any, devices, **_params: Any) -> list[Any]:
    """Outside of programs, values move to other devices too."""
    shardings = [getattr(d, "sharding", d) for d in devices]
    followed = [to is None or hasattr(to, "mesh") or isinstance(to, Space) for to in shardings]
    triples = zip(xs, shardings, followed, strict=True)
    return [_one(x, to) if same else put_one(x, to) for x, to, same in triples]


def _jvp(primals, tangents, **params):
    outs = device_put_p.bind(*primals, **params)
    if all(type(t) is Zero for t in tangents):
        return outs, [Zero.of_primal(out) for out in outs]
    # Cotangents return to the devices of the arguments, if known.
    known = (getattr(p, "_sharding", None) if s is None else s for p, s in zip(primals, params["srcs"], strict=True))
    return outs, device_put_p.bind(*map(instantiate, tangents), **{**params, "srcs": tuple(known)})


def _transpose(cts, *args, devices, srcs, copy_semantics) -> list[Any]:
    """Moves cotangents back to the devices of the operands."""
    back: list[Any] = [Zero(x.aval) if type(x) is UndefPrimal else None for x in args]
    moved = [i for i, (ct, x) in enumerate(zip(cts, args, strict=True)) if back[i] is not None and type(ct) is not Zero]
    if moved:
        outs = device_put_p.bind(
            *(cts[i] for i in moved),
            devices=tuple(srcs[i] for i in moved),
            srcs=tuple(devices[i] for i in moved),
            copy_semantics=(ArrayCopySemantics.ALWAYS_COPY,) * len(moved),
        )
        for i, out in zip(moved, outs, strict=True):
            back[i] = out
    return back


def _batch(axis, args, dims, *, devices, **params):
    """The sharding of each example stays; see `with_batch_axis` for the batch axis."""
    devices = tuple(_with_axis(axis, getattr(x, "sharding", x), d) for x, d in zip(devices, dims, strict=True))
    return device_put_p.bind(*args, devices=devices, **params), list(dims)


def _with_axis(axis, sharding: Any, d: int | None) -> Any:
    return sharding if d is None or not hasattr(sharding, "mesh") else with_batch_axis(axis, sharding, d)


device_put_p = Primitive(
    "device_put",
    type_rule=_type_rule,
    reference=lambda *xs, **_: list(xs),
    lower=Decompose(_with_shardings),
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    multiple_results=True,
    vma=lambda avals, params: None,
    keys=key_reuse.each_its_own,
)
device_put_p.impl = _now


def _read_device(_reader: plain.Reader, content: list) -> Device:
    """This process's device with the number in a file, or its first device if it has fewer."""
    own = local_devices()
    return own[content[1]] if content[1] in range(len(own)) else own[0]


plain.register_writer(Device, lambda w, x: ["h", x.local_hardware_id])
plain.register_reader("h", _read_device)
