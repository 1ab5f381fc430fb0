"""`in_shardings` and `out_shardings` of `jit`: the shardings of a program's arguments and results."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core.base.state import state
from mpijax.core.sharding.abstract_mesh import AbstractMesh
from mpijax.core.sharding.format import Format, Layout
from mpijax.core.sharding.shardings import NamedSharding, Sharding, SingleDeviceSharding, check_axes_differ
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.core.tracing import transfers
from mpijax.core.tracing.requested import check_fits, named_sharding
from mpijax.core.tracing.trace import EVAL
from mpijax.core.trees import tree
from mpijax.core.trees.prefix import flatten_axes, is_prefix
from mpijax.core.types.array_api import Array
from mpijax.core.types.typeof import typeof
from mpijax.runtime.arrays.placement import device_put
from mpijax.runtime.mpi import mpi_start
from mpijax.spmd.constraints import constrain, put_on
from mpijax.spmd.reshard import with_sharding
from mpijax.transforms.flat import FlatFun
from mpijax.transforms.ref_state import is_ref


class JitShardings:
    """The shardings given to one `jit`, prefixes of the arguments (without static ones) and of the result.

    name: of the function that got them. key: distinguishes programs of one function. of_all: whether one sharding is
    for all arguments, also by keyword.
    """

    name = "jit"

    def __init__(self, in_shardings: Any, out_shardings: Any, of_all: bool):
        self._of_all = of_all
        self._in = tuple(in_shardings) if isinstance(in_shardings, list) else in_shardings
        self._out = out_shardings
        self._parts = [(what, *tree.tree_flatten(given, is_leaf=_is_none)) for what, given in
                 (("in_shardings", self._in), ("out_shardings", self._out))]  # fmt: skip
        for what, leaves, _ in self._parts:
            for leaf in leaves:
                if isinstance(leaf, PartitionSpec):
                    check_axes_differ(leaf, what)
                if not _waits(leaf):
                    named_sharding(leaf, what, self.name)
                if getattr(getattr(leaf, "spec", leaf), "unconstrained_dims", None):
                    raise ValueError(
                        f"Unconstrained dims are not allowed when passed to {what}: {leaf}. Use None instead of "
                        "UNCONSTRAINED for an axis that is not sharded."
                    )
        self.key = of_all, *((tuple(leaves), structure) for _, leaves, structure in self._parts)
        self._moves = any(isinstance(leaf, SingleDeviceSharding) for leaf in self._parts[0][1])

    def of_arguments(self, name: str, args: tuple, kwargs: dict, avals, leaves) -> tuple[NamedSharding | None, ...]:
        """A sharding or None for each leaf of the arguments. Raises ValueError for shardings that do not fit."""
        if self._in is None or self._of_all:
            return (None,) * len(avals)
        if kwargs:
            raise ValueError(
                f"pjit does not support kwargs when in_shardings is specified: jit({name}) got {sorted(kwargs)}. Pass "
                "them by position."
            )
        flat = self._flat(args)
        shardings = tuple(named_sharding(s, "in_shardings", self.name, needs_devices=False) for s in flat)
        paths = [path for path, _ in tree.tree_flatten_with_path(args)[0]]
        for given, sharding, aval, leaf, path in zip(flat, shardings, avals, leaves, paths, strict=True):
            if isinstance(given, Format):
                given.check_rank(aval)
            if sharding is not None:
                check_fits(sharding, aval, f"One of pjit arguments of {name}, args{tree.keystr(path)},")
                _check_given(sharding, leaf, aval, tree.keystr(path))
        return shardings

    def _flat(self, args: tuple) -> list:
        """What is given for each leaf of the positional arguments. Raises ValueError unless it is a tuple of as many
        entries, or one for all."""
        if not (type(self._in) is tuple and len(self._in) == len(args)) and not _is_one(self._in):
            wrong = (
                f"is the wrong length: got a tuple or list of length {len(self._in)} for an args tuple of length "
                f"{len(args)}"
                if type(self._in) is tuple
                else f"is not a tuple: got {type(self._in)} instead"
            )
            raise ValueError(
                "pjit in_shardings specification must be a tree prefix of the positional arguments tuple. In "
                "particular, pjit in_shardings must either be a Sharding, a PartitionSpec, or a tuple of length equal "
                f"to the number of positional arguments. But pjit in_shardings {wrong}."
                + (" It might need to be wrapped in a singleton tuple." if is_prefix((self._in,), args) else "")
            )
        return flatten_axes("pjit in_shardings", tree.tree_structure(args), self._in, tupled_args=True)

    def of_traced(self, name: str, args: tuple, kwargs: dict, avals, leaves, held: tuple) -> tuple[Any, ...]:
        """`of_arguments`, and instead of None the device given for the argument, or its own sharding (`held`)."""
        asked = self.of_arguments(name, args, kwargs, avals, leaves)
        if self._of_all:
            return (self._in,) * len(avals)
        flat = self._flat(args) if self._moves else held
        devices = (d if isinstance(d, SingleDeviceSharding) else h for d, h in zip(flat, held, strict=True))
        return tuple(d if s is None else s for s, d in zip(asked, devices, strict=True))

    def check_devices(self, leaves: list) -> None:
        """Raise ValueError for a sharding over an AbstractMesh for which neither the mesh in context nor the mesh of an
        argument has devices."""
        known = [getattr(getattr(x, "_sharding", None), "mesh", None) for x in leaves]
        axes = {mesh.shape_tuple for mesh in known if mesh is not None}
        for what, given, _ in self._parts:
            for leaf in given:
                if _lacks_devices(leaf) and leaf.mesh.shape_tuple not in axes:
                    named_sharding(leaf, what, self.name)

    def moved(self, args: tuple, kwargs: dict, leaves: list) -> list:
        """Leaves of the arguments, moved to the single device given for them, if any."""
        if not self._moves or (kwargs and not self._of_all):  # tracing rejects these keyword arguments
            return leaves
        if self._of_all:
            return [_moved(x, self._in) for x in leaves]
        pairs = zip(leaves, self._flat(args), strict=True)
        return [_moved(x, d) if isinstance(d, SingleDeviceSharding) else x for x, d in pairs]

    def asked_of_results(self, structure: Any) -> list[Any]:
        """Each result's sharding as the caller wrote it, over the mesh in context if it has none; None if not given."""
        given = flatten_axes("pjit out_shardings", structure, self._out)
        flat = [s.sharding if isinstance(s, Format) else s for s in given]
        return [
            s if isinstance(s, Sharding) and not _waits(s)
            else named_sharding(s, "out_shardings", self.name, needs_devices=False) for s in flat
        ]  # fmt: skip

    def of_results(self, types: Any) -> Any:
        """The result's types (a pytree of `ShapeDtypeStruct`s) with the requested shardings."""
        leaves, structure = tree.tree_flatten(types)
        given = flatten_axes("pjit out_shardings", structure, self._out)
        shardings = [
            Format(g.layout, s) if isinstance(g, Format) and isinstance(g.layout, Layout) else s
            for g, s in zip(given, self.asked_of_results(structure), strict=True)
        ]
        return tree.tree_unflatten(
            structure, [x.update(sharding=s) for x, s in zip(leaves, shardings, strict=True)]
        )

    def function(self, fun, in_tree, shardings) -> FlatFun:
        """The flat function with shardings for arguments and results."""
        return _WithShardings(fun, in_tree, shardings, self._out, self.name)


def _moved(x: Any, device: Any) -> Any:
    """An argument on the device given for it."""
    if isinstance(x, Array):
        transfers.between(x, device)
    else:
        transfers.to_device(x)
    return device_put(x, device)


def _waits(sharding: Any) -> bool:
    """Whether a sharding depends on the mesh in context at the call: a PartitionSpec, or one over an AbstractMesh."""
    return isinstance(sharding, PartitionSpec) or _lacks_devices(sharding)


def _lacks_devices(sharding: Any) -> bool:
    mesh = getattr(sharding, "mesh", None)
    return isinstance(mesh, AbstractMesh) and not mesh.empty


def _has_peers() -> bool:
    """Whether there are other processes."""
    return mpi_start.started() and mpi_start.size() > 1


def _is_one(given: Any) -> bool:
    """Whether `given` is a single sharding, for all arguments."""
    return tree.treedef_is_leaf(tree.tree_flatten(given, is_leaf=_is_none)[1])


def _is_none(x) -> bool:
    return x is None


def _check_given(sharding: NamedSharding, leaf: Any, aval, path: str) -> None:
    """Raise ValueError for an argument that lies otherwise than `in_shardings` says.

    Over processes also for ndarrays that are split: each process may have another one, and would keep its part of it.
    """
    if isinstance(leaf, np.ndarray) and not sharding.is_fully_replicated and state.trace is EVAL and _has_peers():
        raise ValueError(
            "Passing non-trivial shardings for numpy inputs is not allowed. To fix this error, either specify a "
            "replicated sharding explicitly or use `jax.make_array_from_process_local_data(...)` to convert your host "
            "local numpy inputs to a jax.Array which you can pass to jit. If the numpy input is the same on each "
            "process, then you can use `jax.make_array_from_callback(...)` or `jax.device_put(x, sharding)` to create "
            f"a `jax.Array` which you can pass to jit. Got arg type: {aval.str_short(False)}, args{path}, and the "
            f"sharding {sharding}"
        )
    given = getattr(leaf, "_sharding", None)
    if given is not None and given.memory_kind != sharding.memory_kind:
        raise ValueError(
            f"Memory kinds passed to jax.jit does not match memory kind on the respective arg. Got jit memory kind: "
            f"{sharding.memory_kind}, arg memory kind: {given.memory_kind} for arg type: {aval.str_short(False)}. Move "
            "the argument with jax.device_put(x, sharding)."
        )
    if given is not None and not given.is_equivalent_to(sharding, aval.ndim):
        raise ValueError(
            f"Sharding passed to jit does not match the sharding on the respective arg. Got jit sharding: {sharding},\n"
            f"arg sharding: {given} for args{path} of type {aval.str_short(False)}. Reshard the argument with "
            "jax.device_put(x, sharding), or leave in_shardings out: jit then uses the shardings of its arguments."
        )


class _WithShardings(FlatFun):
    __slots__ = ("_shardings", "_out", "_name")

    def __init__(self, fun, in_tree, shardings, out_shardings, name: str):
        super().__init__(fun, in_tree)
        self._shardings, self._out, self._name = shardings, out_shardings, name

    def __call__(self, *leaves):
        outs = super().__call__(*map(_held_as, leaves, self._shardings))
        if self._out is None:
            return outs
        flat = flatten_axes("pjit out_shardings", self.out_tree, self._out)
        return [self._placed(out, given, i) for i, (out, given) in enumerate(zip(outs, flat, strict=True))]

    def _placed(self, out, given, i: int):
        if isinstance(given, SingleDeviceSharding):
            return put_on(out, given)
        sharding = named_sharding(given, "out_shardings", self._name, needs_devices=False)
        if sharding is None:
            return out
        check_fits(sharding, typeof(out), f"One of pjit outputs, number {i},")
        return with_sharding(out, sharding)


def _held_as(x: Any, sharding: Any) -> Any:
    """An argument in the sharding given for it, which is not part of its type unless it came with it."""
    if sharding is None or is_ref(x):
        return x
    return constrain(x, sharding) if typeof(x).split is None else with_sharding(x, sharding)
