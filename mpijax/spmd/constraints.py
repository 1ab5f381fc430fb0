"""`with_sharding_constraint`: sets the sharding of a value within a program.

A sharding changes no value. Under `jit` it decides where the elements of an intermediate result are stored. The
transpose gives the cotangent the same sharding.
"""

from __future__ import annotations

from typing import Any

from mpijax.core.rules.lowering import Reshard, ReshardKind
from mpijax.core.rules.primitive import Primitive
from mpijax.core.sharding.context import mesh_types, of_sharding
from mpijax.core.sharding.memory_space import Space
from mpijax.core.sharding.mesh import Mesh, current_mesh
from mpijax.core.sharding.shardings import NamedSharding, SingleDeviceSharding
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.core.tracing.requested import check_fits, check_not_mapped, named_sharding
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.trees import tree
from mpijax.core.trees.prefix import flatten_axes
from mpijax.core.types.typeof import typeof
from mpijax.transforms import key_reuse
from mpijax.transforms.zeros import Zero


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """`x` (a pytree) with `shardings`: a prefix pytree of shardings or PartitionSpecs.

    An axis that does not divide evenly among the devices stays whole. May communicate.

    Over mesh axes of type Explicit it only checks: an array whose type has another sharding is an error.

    Raises ValueError for None and for a specification with more entries than the array has axes; AssertionError for an
    array in another sharding over Explicit axes.

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
    named = [
        named_sharding(s, "shardings", "with_sharding_constraint", leaf) for leaf, s in zip(leaves, flat, strict=True)
    ]
    outs = [
        _checked(leaf, s) if s is not None else put_on(leaf, given) if isinstance(given, SingleDeviceSharding) else leaf
        for leaf, s, given in zip(leaves, named, flat, strict=True)
    ]
    return tree.tree_unflatten(structure, outs)


def _checked(x: Any, sharding: NamedSharding) -> Any:
    """`x` in a sharding over Auto axes; over Explicit axes its type must already have that sharding."""
    check_not_mapped(sharding, "with_sharding_constraint")
    aval = typeof(x)
    check_fits(sharding, aval, "One of with_sharding_constraint arguments", strict=False)
    mesh = mesh_types(sharding.mesh)
    if not mesh.is_explicit:
        return constrain(x, sharding)
    if mesh.are_all_axes_explicit:
        held, free = aval.sharding.spec, sharding.spec.unconstrained_dims
        wanted = of_sharding(sharding.update(mesh=mesh), aval.ndim)
        axes = ((),) * aval.ndim if wanted is None else wanted.axes
        if any(held.axes_of(d) != axes[d] for d in range(aval.ndim) if d not in free):
            raise AssertionError(
                "`with_sharding_constraint` acts as an assert when all axes of mesh are of type `Explicit`. The array "
                f"sharding: {held} did not match the sharding provided: {sharding.spec.padded(aval.ndim)}. Please use "
                "`jax.sharding.reshard` to shard your input to the sharding you want."
            )
        return x
    if not set(sharding.spec.all_axes()) <= set(mesh.auto_axes):
        raise ValueError(
            "The spec of NamedSharding passed to with_sharding_constraint can only refer to Auto axes of the mesh. Got "
            f"spec={sharding.spec} and mesh={mesh}. You probably meant to use `reshard` API?"
        )
    if aval.split is not None and isinstance(x, Tracer):  # keep the split that its type has
        outer = aval.split.axes
        spec = [(*own, *names) for own, names in zip(outer, sharding.spec.split(aval.ndim), strict=True)]
        sharding = sharding.update(spec=PartitionSpec(*spec))
    return constrain(x, sharding)


def constrain(x: Any, sharding: NamedSharding, by: Primitive | None = None) -> Any:
    """One array in a sharding that is not part of its type."""
    free = sharding.spec.unconstrained_dims
    return (by or sharding_constraint_p).bind(
        x, sharding=sharding, layout=None, context_mesh=current_mesh(), unconstrained_dims=free
    )


def put_on(x: Any, sharding: SingleDeviceSharding | Space) -> Any:
    """One array, whole on one device of this process, or on its device in another kind of memory."""
    return sharding_constraint_p.bind(
        x, sharding=sharding, layout=None, context_mesh=current_mesh(), unconstrained_dims=frozenset()
    )


# ---------------------------------------------------------------- the primitive


def _type_rule(x, *, sharding: NamedSharding, **_):
    """For a value split over Explicit axes of the same mesh, the sharding becomes its type."""
    if x.split is None or not hasattr(sharding, "mesh"):
        return x
    return x.update(split=of_sharding(sharding.update(mesh=x.split.mesh), x.ndim))


def _transpose(ct, x, **params):
    return [Zero(x.aval) if type(ct) is Zero else sharding_constraint_p.bind(ct, **params)]


def _jvp(primals, tangents, **params):
    [x], [t] = primals, tangents
    out = sharding_constraint_p.bind(x, **params)
    return out, Zero.of_primal(out) if type(t) is Zero else sharding_constraint_p.bind(t, **params)


def with_batch_axis(axis, sharding: NamedSharding, d: int) -> NamedSharding:
    """A sharding of examples with the batch axis inserted at `d`, split over the mesh axes that `vmap` has for it.

    If `vmap` has none, it is unconstrained; over a mesh without Auto axes, where types say all, it is whole.
    """
    parts = list(sharding.spec)
    parts += [None] * (d - len(parts))
    free = PartitionSpec.UNCONSTRAINED if sharding.mesh.auto_axes else None
    parts.insert(d, axis.spmd or free)
    return NamedSharding(sharding.mesh, PartitionSpec(*parts))


def _batch(axis, args, dims, *, sharding, unconstrained_dims, **params):
    """The sharding of each example stays. The batch axis is unconstrained unless `vmap` has mesh axes for it."""
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


def _sharding_primitive(name: str, lower: Reshard) -> Primitive:
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


sharding_constraint_p = _sharding_primitive("sharding_constraint", Reshard("sharding"))
# The form of `device_put` in a compiled program: the devices may change.
move_p = _sharding_primitive("move", Reshard("sharding", ReshardKind.MOVE))
