"""`with_sharding_constraint`: sets the layout of a value over devices, within a program.

A layout changes no value. Under `jit` it decides where the elements of an intermediate result are stored. Its transpose
gives the cotangent the same layout.
"""

from __future__ import annotations

import math
from typing import Any

from mpijax.core.base.state import state
from mpijax.core.rules.lowering import Reshard
from mpijax.core.rules.primitive import Primitive
from mpijax.core.sharding.context import context_mesh, get_abstract_mesh, of_sharding
from mpijax.core.sharding.format import Format
from mpijax.core.sharding.memory_space import Space
from mpijax.core.sharding.mesh import Mesh, current_mesh
from mpijax.core.sharding.shardings import NamedSharding, Sharding, SingleDeviceSharding
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.trees import tree
from mpijax.core.trees.prefix import flatten_axes
from mpijax.core.types.avals import NO_AXES
from mpijax.core.types.typeof import typeof
from mpijax.transforms import key_reuse
from mpijax.transforms.zeros import Zero


def named_sharding(
    layout: Any, what: str, name: str, of: Any = None, needs_devices: bool = True
) -> NamedSharding | None:
    """The NamedSharding for a layout given by users: a sharding, a PartitionSpec over the mesh in context, or None.

    A layout over an `AbstractMesh`, such as `typeof(x).sharding`, gets the mesh in context, or that of the array `of`.
    A traced value's devices are known only when the program is compiled, so with `needs_devices` false the layout may
    stay abstract.

    Raises RuntimeError for a PartitionSpec without a mesh in context, ValueError for an AbstractMesh whose axes differ
    from those meshes, TypeError for anything else.
    """
    if isinstance(layout, Format):
        layout = layout.sharding
    if isinstance(layout, NamedSharding):
        if layout.mesh.empty:
            raise ValueError(
                f"One of {what} leaf specifications got an empty NamedSharding: {layout} which is not allowed."
            )
        return layout if isinstance(layout.mesh, Mesh) else _over_mesh_of(layout, what, name, of, needs_devices)
    if layout is None:
        return layout
    if isinstance(layout, PartitionSpec):
        mesh = context_mesh() or get_abstract_mesh()
        if mesh.empty:
            raise RuntimeError(
                f"{name} requires a non-empty mesh in context if you are passing `PartitionSpec`s to {what}. You can "
                "define a context mesh via `jax.set_mesh(mesh)`. Alternatively, provide `Sharding`s to "
                f"{what} and then the mesh context manager is not required."
            )
        return NamedSharding(mesh, layout)
    if isinstance(layout, Sharding):
        return None  # one device, so no axis is split
    raise TypeError(
        f"{what} leaf specifications are expected to be PartitionSpec instances or None, but got {layout} of type "
        f"{type(layout).__name__}"
    )


def _over_mesh_of(layout: NamedSharding, what: str, name: str, of: Any, needs_devices: bool) -> NamedSharding:
    known = context_mesh()
    if known is not None and known.shape_tuple == layout.mesh.shape_tuple:
        return NamedSharding(known, layout.spec)
    if not needs_devices:
        return layout
    if of is None:
        raise ValueError(
            f"{name}: {what} got {layout}. Its mesh has no devices, and the context mesh ({known}) does not have its "
            "axes. Enter `jax.set_mesh(mesh)`, or use a sharding over a Mesh."
        )
    if isinstance(of, Tracer):
        return layout
    of_shape = f"for shape {typeof(of).str_short(False)}"
    held = getattr(of, "sharding", None)
    if held is None:
        raise ValueError(
            f"{name}: Target sharding contains a `jax.sharding.AbstractMesh` which requires the input passed should be "
            f"a `jax.Array`. Got {type(of)} {of_shape}"
        )
    if not isinstance(held, NamedSharding):
        raise TypeError(
            f"{name}: The sharding on the input must be a `NamedSharding` since the target sharding has an "
            f"`AbstractMesh` in it. Got sharding type {type(held)} {of_shape}"
        )
    if held.mesh.shape_tuple != layout.mesh.shape_tuple:
        raise ValueError(
            f"{name}: Mesh shape of the input {held.mesh.shape_tuple} does not match the mesh shape of the target "
            f"sharding {layout.mesh.shape_tuple} {of_shape}"
        )
    return NamedSharding(held.mesh, layout.spec)


def over_devices(out_sharding: Any, name: str) -> Any:
    """`out_sharding`, with the mesh in context instead of an `AbstractMesh` (which array types have); None without such
    a mesh, on one device. Raises ValueError for an AbstractMesh with a kind of memory."""
    if not isinstance(out_sharding, NamedSharding) or isinstance(out_sharding.mesh, Mesh):
        return out_sharding
    check_memory(out_sharding)
    alone = out_sharding.mesh.empty or context_mesh() is None
    return None if alone else named_sharding(out_sharding, "out_sharding", name)


def check_memory(layout: NamedSharding) -> None:
    """Raise ValueError for a layout with a kind of memory and no devices."""
    if layout.memory_kind is not None and not isinstance(layout.mesh, Mesh):
        raise ValueError(
            "sharding with memory_kind is not allowed. Please use `jax.device_put` to transfer to different memory "
            f"spaces. Got sharding={layout}"
        )


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """`x` (a pytree) with the layouts `shardings`: a prefix pytree of shardings or PartitionSpecs.

    An axis that does not divide evenly among the devices stays whole. May communicate.

    Over mesh axes of type Explicit it only checks: an array whose type has another layout is an error.

    Raises ValueError for None and for a specification with more entries than the array has axes; AssertionError for an
    array in another layout over Explicit axes.

    >>> mesh = mpijax.make_mesh((1,), ("x",), axis_types=(mpijax.sharding.AxisType.Auto,))
    >>> rows = mpijax.NamedSharding(mesh, mpijax.P("x"))
    >>> mpijax.jit(lambda x: lax.with_sharding_constraint(2 * x, rows))(jnp.arange(3))
    Array([0, 2, 4], dtype=int32)
    """
    leaves, structure = tree.tree_flatten(x)
    flat = flatten_axes("with_sharding_constraint shardings", structure, shardings)
    if None in flat:
        raise ValueError(
            "One of with_sharding_constraint arguments got sharding None which is not allowed. Use "
            "NamedSharding(mesh, P()) for a replicated array."
        )
    layouts = [
        named_sharding(s, "shardings", "with_sharding_constraint", leaf) for leaf, s in zip(leaves, flat, strict=True)
    ]
    outs = [
        _checked(leaf, s) if s is not None else put_on(leaf, given) if isinstance(given, SingleDeviceSharding) else leaf
        for leaf, s, given in zip(leaves, layouts, flat, strict=True)
    ]
    return tree.tree_unflatten(structure, outs)


def _checked(x: Any, layout: NamedSharding) -> Any:
    """`x` in a layout over Auto axes; over Explicit axes its type must already have that layout."""
    check_not_mapped(layout, "with_sharding_constraint")
    aval = typeof(x)
    check_fits(layout, aval, "One of with_sharding_constraint arguments", strict=False)
    mesh = mesh_types(layout.mesh)
    if not mesh.is_explicit:
        return constrain(x, layout)
    if mesh.are_all_axes_explicit:
        held, free = aval.sharding.spec, layout.spec.unconstrained_dims
        wanted = of_sharding(layout.update(mesh=mesh), aval.ndim)
        axes = ((),) * aval.ndim if wanted is None else wanted.axes
        if any(held.axes_of(d) != axes[d] for d in range(aval.ndim) if d not in free):
            raise AssertionError(
                "`with_sharding_constraint` acts as an assert when all axes of mesh are of type `Explicit`. The array "
                f"sharding: {held} did not match the sharding provided: {layout.spec.padded(aval.ndim)}. Please use "
                "`jax.sharding.reshard` to shard your input to the sharding you want."
            )
        return x
    if not set(layout.spec.all_axes()) <= set(mesh.auto_axes):
        raise ValueError(
            "The spec of NamedSharding passed to with_sharding_constraint can only refer to Auto axes of the mesh. Got "
            f"spec={layout.spec} and mesh={mesh}. You probably meant to use `reshard` API?"
        )
    if aval.split is not None and isinstance(x, Tracer):  # keep the split that its type has
        outer = aval.split.axes
        spec = [(*own, *names) for own, names in zip(outer, layout.spec.split(aval.ndim), strict=True)]
        layout = layout.update(spec=PartitionSpec(*spec))
    return constrain(x, layout)


def mesh_types(mesh: Any) -> Any:
    """The mesh without devices; its axes have the types of the mesh in context if that has the same shape."""
    context, given = get_abstract_mesh(), mesh.abstract_mesh
    return context if context.shape_tuple == given.shape_tuple else given


def check_explicit(layout: NamedSharding, mesh: Any, name: str) -> None:
    """Raise ValueError for a layout that names axes that are not Explicit, which types do not contain."""
    for a in (*layout.spec.all_axes(), *layout.spec.unreduced, *layout.spec.reduced):
        if a not in mesh.explicit_axes:
            kind = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))[a]
            raise ValueError(
                f"PartitionSpec passed to {name} cannot contain axis names that are of type Auto or Manual. Got "
                f"PartitionSpec: {layout.spec} with axis name: {a} of type: AxisType.{kind.name}. Use "
                "with_sharding_constraint for those."
            )


def constrain(x: Any, layout: NamedSharding, by: Primitive | None = None) -> Any:
    """One array in a layout that is not part of its type."""
    return (by or sharding_constraint_p).bind(
        x, sharding=layout, layout=None, context_mesh=current_mesh(), unconstrained_dims=layout.spec.unconstrained_dims
    )


def check_not_mapped(layout: NamedSharding, name: str) -> None:
    """Raise ValueError for a layout over an axis that the enclosing `shard_map` maps: a shard is not split over it."""
    manual = NO_AXES if state.body is None else state.body[1]
    mapped = [a for a in layout.spec.all_axes() if a in manual]
    if mapped:
        raise ValueError(
            f"{name}: {layout.spec} contains a manual axes {mapped} of mesh {layout.mesh}. The enclosing shard_map "
            "maps over them. Its body can only shard values over the other axes of the mesh."
        )


def fitted(layout: NamedSharding, aval, what: str) -> NamedSharding:
    """A requested layout, without entries of None for more axes than the array has. Raises ValueError if it does not
    fit."""
    spec = layout.spec
    if len(spec) > aval.ndim and not any(spec[aval.ndim :]):
        layout = layout.update(spec=spec.update(partitions=tuple(spec)[: aval.ndim]))
    check_fits(layout, aval, what)
    return layout


def check_fits(layout: NamedSharding, aval, what: str, strict: bool = True) -> None:
    """Raise ValueError for an array with fewer axes than the layout, or (strict) one that it does not divide evenly."""
    if len(layout.spec) > aval.ndim:
        raise ValueError(
            f"{what} is incompatible with its sharding annotation {layout}: Sharding {layout} is only valid for values "
            f"of rank at least {len(layout.spec)}, but was applied to a value of rank {aval.ndim}."
        )
    if not strict:
        return
    for dim, size in enumerate(aval.shape):
        parts = math.prod(layout.mesh.shape[a] for a in layout.spec.axes_of(dim))
        if size % parts:
            raise ValueError(
                f"{what}: Sharding {layout} implies that array axis {dim} is partitioned {parts} times, but the "
                f"dimension size is {size} (full shape: {aval.shape}), and parts should evenly divide the shape. Pad "
                "the array, or do not shard that axis: use None in the PartitionSpec."
            )


def put_on(x: Any, layout: SingleDeviceSharding | Space) -> Any:
    """One array, whole on one device of this process, or on its device in another kind of memory."""
    return sharding_constraint_p.bind(
        x, sharding=layout, layout=None, context_mesh=current_mesh(), unconstrained_dims=frozenset()
    )


# ---------------------------------------------------------------- the primitive


def _type_rule(x, *, sharding: NamedSharding, **_):
    """For a value split over Explicit axes of the same mesh, the layout becomes its type."""
    if x.split is None or not hasattr(sharding, "mesh"):
        return x
    return x.update(split=of_sharding(sharding.update(mesh=x.split.mesh), x.ndim))


def _transpose(ct, x, **params):
    return [Zero(x.aval) if type(ct) is Zero else sharding_constraint_p.bind(ct, **params)]


def _jvp(primals, tangents, **params):
    [x], [t] = primals, tangents
    out = sharding_constraint_p.bind(x, **params)
    return out, Zero.of_primal(out) if type(t) is Zero else sharding_constraint_p.bind(t, **params)


def with_batch_axis(axis, layout: NamedSharding, d: int) -> NamedSharding:
    """A layout of examples with the batch axis inserted at `d`, split over the mesh axes that `vmap` has for it.

    If `vmap` has none, it is unconstrained; over a mesh without Auto axes, where types say all, it is whole.
    """
    parts = list(layout.spec)
    parts += [None] * (d - len(parts))
    free = PartitionSpec.UNCONSTRAINED if layout.mesh.auto_axes else None
    parts.insert(d, axis.spmd or free)
    return NamedSharding(layout.mesh, PartitionSpec(*parts))


def _batch(axis, args, dims, *, sharding, unconstrained_dims, **params):
    """The layout of each example stays. The batch axis is unconstrained unless `vmap` has mesh axes for it."""
    [x], [d] = args, dims
    if d is not None and axis.spmd and isinstance(sharding, SingleDeviceSharding):
        raise ValueError(
            "If you are using spmd_axis_name parameter of jax.vmap, please make sure to run your jitted function "
            "inside the mesh context manager. Only `jax.lax.with_sharding_constraint` with `jax.sharding.NamedSharding`"
            f" as an input can be transformed with spmd_axis_name batching rules, got {sharding!r}"
        )
    if d is not None and hasattr(sharding, "mesh"):
        if not set(axis.spmd).isdisjoint(sharding.spec.all_axes()):
            raise ValueError(
                f"vmap spmd_axis_name {axis.spmd} cannot appear in with_sharding_constraint spec, but got spec "
                f"{sharding.spec}"
            )
        free = (i + (d <= i) for i in unconstrained_dims)
        unconstrained_dims = frozenset(free if axis.spmd else {d, *free})
        sharding = with_batch_axis(axis, sharding, d)
    return sharding_constraint_p.bind(x, sharding=sharding, unconstrained_dims=unconstrained_dims, **params), d


def _pretty(eqn, _names) -> list[tuple[str, Any]]:
    p = eqn.params
    mesh: Mesh | None = p["context_mesh"]
    free = ", ".join(map(str, sorted(p["unconstrained_dims"])))
    return [
        ("context_mesh", "Mesh()" if mesh is None else mesh), ("layout", None), ("sharding", p["sharding"]),
        ("unconstrained_dims", f"frozenset({{{free}}})"),
    ]  # fmt: skip


def _layout_primitive(name: str, lower: Reshard) -> Primitive:
    return Primitive(
        name,
        type_rule=_type_rule,
        reference=lambda x, **_: x,
        lower=lower,
        jvp=_jvp,
        transpose=_transpose,
        batch=_batch,
        pretty=_pretty,
        keys=key_reuse.SAME,
    )


sharding_constraint_p = _layout_primitive("sharding_constraint", Reshard("sharding"))
# The form of `device_put` in a compiled program: the devices may change.
move_p = _layout_primitive("move", Reshard("sharding", "move"))
