"""Finds the mesh of a `shard_map`, and the cuts of its arguments and results; checks that they fit."""

from __future__ import annotations

import math
from typing import Any

from mpijax.core.base.source import callable_name
from mpijax.core.base.state import state
from mpijax.core.sharding.abstract_mesh import AbstractMesh, AxisType
from mpijax.core.sharding.context import context_mesh, get_abstract_mesh
from mpijax.core.sharding.mesh import Mesh, current_mesh, make_mesh
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.trees import tree
from mpijax.core.trees.prefix import flatten_axes
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.runtime.arrays.devices import devices, simulated_devices

P = PartitionSpec


def check_inferable(mesh: Mesh, names: frozenset) -> None:
    """Raise TypeError unless all of `names` are of type Explicit, so that arrays determine how they are cut."""
    others = [f"{n!r} is {k.name}" for n, k in zip(mesh.axis_names, mesh.axis_types, strict=True)
              if n in names and k is not AxisType.Explicit]  # fmt: skip
    if others:
        raise TypeError(
            f"in_axes was not specified, nor in_specs, for a shard_map over {set(names)}. They may only be left out "
            f"over axes of type Explicit, but {', '.join(others)}. Pass in_specs: a PartitionSpec for each argument."
        )


def given_spec(x, mesh: Mesh, names: frozenset) -> PartitionSpec:
    """An argument's sharding over the mesh axes `names`; a traced argument's sharding is in its type."""
    if isinstance(x, Tracer):
        sharding = typeof(x).sharding
        known = sharding.mesh.shape_tuple == mesh.abstract_mesh.shape_tuple
    else:
        sharding = getattr(x, "sharding", None)
        known = getattr(sharding, "mesh", None) == mesh
    if not known:
        return P()
    spec = sharding.spec
    parts = (tuple(a for a in s if a in names) for s in spec.split(len(spec)))
    return P(*parts, unreduced=spec.unreduced & names, reduced=spec.reduced & names)


def mesh_for(given: Any, args) -> Mesh:
    """The mesh to map over: the given one, or the one in context. Raises ValueError if there is none or they differ."""
    context = context_mesh()
    if given is None:
        if context is None:
            raise ValueError(
                "The context mesh cannot be empty. Use `jax.set_mesh(mesh)` to enter into a mesh context, or pass a "
                "mesh to shard_map: mesh=Mesh(mpijax.devices(), ('i',))."
            )
        return context
    if not isinstance(given, (Mesh, AbstractMesh)):
        raise TypeError(
            "shard_map requires a `jax.sharding.Mesh` or a `jax.sharding.AbstractMesh` instance for its second "
            f"argument, but got {given!r} of type {type(given).__name__}."
        )
    if given.empty:
        raise ValueError(f"shard_map requires a non-empty mesh. Got {given}")
    if state.body is not None:
        here = get_abstract_mesh()
        if given.abstract_mesh != here:
            raise ValueError(
                f"The context mesh {here} should match the mesh passed to shard_map {given}. Within a shard_map, "
                "pass axis_names and leave out `mesh`: shard_map then uses the mesh of the enclosing one."
            )
        return state.body[0]
    return _mesh_of_arguments(given, args) if isinstance(given, AbstractMesh) else given


def _mesh_of_arguments(abstract: AbstractMesh, args) -> Mesh:
    """The mesh of the arguments with the axes of `abstract`; one that stands in for it if they are traced."""
    leaves = tree.tree_leaves(args)
    found = [getattr(getattr(x, "_sharding", None), "mesh", None) for x in leaves]
    mesh = next((m for m in found if m is not None), None) or current_mesh()
    if mesh is None and any(isinstance(x, Tracer) for x in leaves):
        return _stand_in(abstract)
    if mesh is None:
        raise ValueError(
            "Please pass `jax.Array`s with a `NamedSharding` as input to `shard_map` when passing `AbstractMesh` to "
            f"the mesh argument: {abstract} has no devices."
        )
    for m in (*filter(None, found), mesh):
        if m.abstract_mesh.shape_tuple != abstract.shape_tuple:
            raise ValueError(
                f"Mesh shape of the input {m.abstract_mesh} does not match the mesh shape passed to shard_map "
                f"{abstract}"
            )
    return mesh


def _stand_in(abstract: AbstractMesh) -> Mesh:
    """A mesh of the first devices, until the program gets arrays; of simulated ones if this job has fewer."""
    available = devices()
    if abstract.size > len(available):
        available = simulated_devices(abstract.size, 0)
    return make_mesh(abstract.axis_sizes, abstract.axis_names, abstract.axis_types, devices=available).standing_in()


def flatten_specs(what: str, specs, structure, mesh: Mesh, names) -> tuple[list[PartitionSpec], list[int]]:
    """One specification per leaf, from a prefix pytree (None becomes `P()`), and the positions of the Nones."""
    given = flatten_axes(f"shard_map {what}", structure, specs)
    flat = [P() if s is None else s for s in given]
    for s in flat:
        if not isinstance(s, PartitionSpec):
            raise TypeError(
                f"shard_map {what} must be a pytree of `PartitionSpec` instances, but got the leaf {s!r} of type "
                f"{type(s).__name__}. Use jax.sharding.PartitionSpec({s!r})."
            )
        for a in s.all_axes():
            if a not in names:
                raise ValueError(
                    f"shard_map {what} argument must refer to an axis marked as manual "
                    f"(frozenset({set(names)})), "
                    f"but:\n\n  {what} refers to {a!r}\n\nThe mesh is {mesh}. Check the {what} values passed to "
                    f"shard_map."
                )
    return flat, [i for i, s in enumerate(given) if s is None]


def check_sums(what: str, specs, mesh: AbstractMesh, names) -> None:
    """Raise an error for unreduced or reduced axes in `in_specs` or `out_specs` (`what`) that are not Explicit, or if
    some axes of the mesh are not mapped."""
    for spec in specs:
        if not (spec.unreduced or spec.reduced):
            continue
        if not set(mesh.axis_names) <= names:
            raise NotImplementedError(
                f"unreduced/reduced can only be passed to {what} when shard_map is in full manual mode. Got mesh axis "
                f"names {mesh.axis_names}, manual_axes: {set(names)}, specs: {spec}. Leave out axis_names."
            )
        for kind, axes in (("unreduced", spec.unreduced), ("reduced", spec.reduced)):
            if not axes <= set(mesh.explicit_axes):
                raise ValueError(
                    f"{kind} in {what} {spec} can only be used when the mesh passed to shard_map contains axis names "
                    f"all of type `Explicit`. Got mesh {mesh}"
                )


def check_fits(f, mesh: Mesh, aval: ShapedArray, spec: PartitionSpec, i: int, names) -> None:
    name = callable_name(f)
    short = aval.str_short(short_dtypes=False)
    for kind, said, given in _sums(spec, aval.sharding.spec):
        if said != given:
            raise ValueError(
                f"in_specs containing {kind} {spec} passed to shard_map should be equal to the {kind} present on the "
                f"in_aval {aval.str_short(True)}"
            )

    def bound():
        known = names()
        return f", where args[{i}] is bound to {name}'s parameter '{known[i]}'," if i < len(known) else ""

    if len(spec) > aval.ndim:
        raise ValueError(
            f"shard_map applied to the function '{name}' was given an in_specs entry which is too long to be "
            f"compatible "
            f"with the corresponding input value from the function:\n\nin_specs is {spec} which has length "
            f"{len(spec)}, but "
            f"the passed args[{i}]{bound()} has shape {short}, which has rank {aval.ndim} (and {aval.ndim} < "
            f"{len(spec)})\n\n"
            "Entries in in_specs must be of length no greater than the number of axes in the corresponding input "
            "value.\n\n"
            f"Either revise the spec to be shorter, or modify '{name}' so that its inputs have sufficient rank."
            + ("\n\nFor scalar values (rank 0), consider using an in_specs entry of `P()`." if not aval.ndim else "")
        )
    for dim, size in enumerate(aval.shape):
        axes = spec.axes_of(dim)
        parts = math.prod(mesh.shape[a] for a in axes)
        if size % parts:
            which = f"axis {axes[0]!r}" if len(axes) == 1 else f"axes {axes}"
            raise ValueError(
                f"shard_map applied to the function '{name}' was given argument arrays with axis sizes that are not "
                f"evenly "
                f"divisible by the corresponding mesh axis sizes:\n\nThe mesh given has shape "
                f"{tuple(mesh.devices.shape)} with "
                f"corresponding axis names {mesh.axis_names}.\n\nthe passed args[{i}] of shape {short}{bound()} "
                f"corresponds to "
                f"in_specs of value {spec}, which maps array axis {dim} (of size {size}) to mesh {which} (of size "
                f"{parts}), but "
                f"{parts} does not evenly divide {size}\n\nArray arguments' axis sizes must be evenly divisible by "
                f"the mesh "
                "axis or axes indicated by the corresponding elements of the argument's in_specs entry. Consider "
                "checking that "
                "in_specs are correct, and if so consider changing the mesh axis sizes or else padding the input and "
                "adapting "
                f"'{name}' appropriately."
            )


def _sums(spec: PartitionSpec, other: Any) -> tuple:
    """The unreduced and reduced axes of a specification, beside those of another one or of a type."""
    return ("unreduced", spec.unreduced, other.unreduced), ("reduced", spec.reduced, other.reduced)


def check_out(f, mesh: Mesh, aval: ShapedArray, spec: PartitionSpec, checked: frozenset) -> None:
    """Raise ValueError for a specification with too many entries, or one that omits an axis in `checked` over which the
    result varies."""
    name = callable_name(f)
    if len(spec) > aval.ndim:
        raise ValueError(
            f"shard_map applied to the function '{name}' was given an out_specs entry which is too long to be "
            f"compatible with "
            f"the corresponding output value from the function:\n\nout_specs is {spec} which has length {len(spec)}, "
            f"but "
            f"{name}(*args) has shape {aval.str_short(False)}, which has rank {aval.ndim} (and {aval.ndim} < "
            f"{len(spec)})\n\n"
            "Entries in out_specs must be of length no greater than the number of axes in the corresponding output "
            "value.\n\n"
            f"Either revise the spec to be shorter, or modify '{name}' so that its outputs have sufficient "
            f"rank.\n\nFor scalar "
            "values (rank 0), consider using an out_specs entry of `P()`. In particular, for rank 0 outputs which are "
            "not "
            "constant over the mesh, add at least one (singleton) axis to them so that they can be concatenated using "
            "out_specs."
        )
    for kind, said, found in _sums(spec, aval.mat) if checked else ():
        if said != found:
            raise ValueError(
                f"out_specs passed to shard_map should be equal to the {kind} present on the out_aval. Got "
                f"out_specs={spec} and out_aval={aval.str_short(True)}"
            )
    missing = [str(n) for n in mesh.axis_names if n in (aval.vma & checked) - set(spec.all_axes())]
    if not missing:
        return
    if len(missing) == 1:
        claim = f"replicated across mesh axis '{missing[0]}', but could not infer replication over "
        known = [str(n) for n in mesh.axis_names if n not in aval.vma]
        found = f"only {','.join(known)}" if known else "any axes"
    else:
        said, varies = (
            ",".join(str(n) for n in mesh.axis_names if n in names) for names in (spec.all_axes(), aval.vma)
        )
        claim = f"only varying across mesh axes {{{said}}} and not {{{','.join(missing)}}}, "
        found = f"but it was inferred to be possibly varying over {{{varies}}}"
    raise ValueError(
        f"shard_map applied to the function '{name}' was given out_specs which require replication which can't be "
        f"statically inferred given the mesh:\n\nThe mesh given has shape {tuple(mesh.devices.shape)} with "
        f"corresponding axis names {mesh.axis_names}.\n\nout_specs is {spec} which implies that the corresponding "
        f"output value is {claim}{found}\n\nCheck if these output values are meant to be replicated over those mesh "
        "axes. If not, consider revising the corresponding out_specs entries. If so, consider disabling the check by "
        "passing the check_vma=False argument to `jax.shard_map`."
    )
