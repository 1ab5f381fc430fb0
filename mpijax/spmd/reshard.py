"""`reshard`: moves a value to another sharding; over Explicit mesh axes its type changes too.

A sharding changes no value. The transpose moves the cotangent to the sharding of the operand.
"""

from __future__ import annotations

from typing import Any

from mpijax.core.rules.lowering import Reshard, ReshardKind
from mpijax.core.rules.primitive import Primitive
from mpijax.core.sharding.abstract_mesh import AbstractMesh
from mpijax.core.sharding.context import context_mesh, mesh_types, of_sharding
from mpijax.core.sharding.mesh import Mesh
from mpijax.core.sharding.shardings import NamedSharding
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.core.tracing.requested import check_explicit, check_not_mapped, fitted, named_sharding
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.trees import tree
from mpijax.core.trees.prefix import flatten_axes
from mpijax.core.types.typeof import typeof
from mpijax.spmd.constraints import constrain, move_p
from mpijax.transforms import key_reuse
from mpijax.transforms.zeros import Zero


def reshard(xs: Any, out_shardings: Any) -> Any:
    """`xs` (a pytree) in another sharding. Raises ValueError if an axis does not divide evenly. May communicate.

    out_shardings: a prefix pytree of NamedShardings, or PartitionSpecs over the mesh in context. Over a mesh without
      Explicit axes, one that names no axes leaves arrays as they are.

    >>> mesh = mpijax.make_mesh((1,), ("x",))
    >>> mpijax.reshard(jnp.arange(3), mpijax.NamedSharding(mesh, mpijax.P("x"))).sharding.spec
    P('x',)
    """
    leaves, structure = tree.tree_flatten(xs)
    flat = flatten_axes("reshard out_shardings", structure, out_shardings)
    out = []
    for leaf, given in zip(leaves, flat, strict=True):
        sharding = named_sharding(given, "shardings", "reshard", leaf)
        if sharding is not None:
            check_not_mapped(sharding, "reshard")
            sharding = fitted(sharding, typeof(leaf), "One of reshard arguments")
            mesh = mesh_types(sharding.mesh)
            check_explicit(sharding, mesh, "reshard")
            if not mesh.is_explicit:  # over Auto axes this has no effect
                leaf = cast(leaf, mesh)
                sharding = None
        out.append(leaf if sharding is None else with_sharding(leaf, sharding))
    return tree.tree_unflatten(structure, out)


def with_sharding(x: Any, sharding: NamedSharding, by: Primitive | None = None) -> Any:
    """One array in a sharding: by its type if the mesh has Explicit axes, else by the primitive `by`."""
    mesh = mesh_types(sharding.mesh)
    if not mesh.is_explicit:
        return constrain(x, sharding, by)
    return _bind(x, NamedSharding(mesh, sharding.spec.padded(typeof(x).ndim)), sharding.mesh)


def move_to(x: Any, sharding: NamedSharding) -> Any:
    """`with_sharding` for `device_put`, after which values may be on other devices or in another device order."""
    return with_sharding(x, sharding, move_p)


def resharded(x: Any, sharding: NamedSharding) -> Any:
    """One array, with the sharding in its type. The mesh has Explicit axes, and may be abstract."""
    return reshard_p.bind(x, dst_sharding=sharding, concrete_mesh=None)


def cast(x: Any, mesh: AbstractMesh) -> Any:
    """A value in its present sharding, with its type adjusted to the axis types of `mesh`.

    An example of a batch is cast even if its own type has no split, because the type of the batch may have one.
    """
    try:
        aval = typeof(x)
    except TypeError:
        return x
    split = aval.split
    if (split is None and not isinstance(x, Tracer)) or (split is not None and split.mesh == mesh):
        return x
    names = ((),) * aval.ndim if split is None else split.axes
    kept = [tuple(a for a in n if a in mesh.explicit_axes) for n in names]
    return _bind(x, NamedSharding(mesh, PartitionSpec(*kept)), None)


def _bind(x: Any, sharding: NamedSharding, devices: Any) -> Any:
    concrete = devices if isinstance(devices, Mesh) else context_mesh()
    return reshard_p.bind(x, dst_sharding=sharding, concrete_mesh=concrete)


# ---------------------------------------------------------------- the primitive


def _type_rule(x, *, dst_sharding, concrete_mesh):
    return x.update(split=of_sharding(dst_sharding, x.ndim))


def _jvp(primals, tangents, **params):
    [x], [t] = primals, tangents
    out = reshard_p.bind(x, **params)
    return out, Zero.of_primal(out) if type(t) is Zero else reshard_p.bind(t, **params)


def _transpose(ct, x, *, dst_sharding, concrete_mesh):
    if type(ct) is Zero:
        return [Zero(x.aval)]
    sharding = x.aval.to_cotangent_aval().sharding
    known = concrete_mesh is not None and concrete_mesh.shape_tuple == sharding.mesh.shape_tuple
    return [reshard_p.bind(ct, dst_sharding=sharding, concrete_mesh=concrete_mesh if known else None)]


def _batch(axis, args, dims, *, dst_sharding, concrete_mesh):
    """The sharding of the batch axis is that in the types of the batch."""
    [x], [d] = args, dims
    return reshard_p.bind(x, dst_sharding=axis.of_batch(dst_sharding, d), concrete_mesh=concrete_mesh), d


reshard_p = Primitive(
    "reshard",
    type_rule=_type_rule,
    reference=lambda x, **_: x,
    lower=Reshard("dst_sharding", ReshardKind.RESHARD),
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    pretty=lambda eqn, names: [],
    keys=key_reuse.SAME,
)
