"""`auto_axes` and `explicit_axes`: functions that run with other types of mesh axes.

Changing the type of an axis moves no data. Along Auto axes the compiler decides how values are sharded; along Explicit
axes their types do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from mpijax.core.sharding.abstract_mesh import AbstractMesh, AxisType
from mpijax.core.sharding.context import get_abstract_mesh, use_abstract_mesh
from mpijax.core.sharding.shardings import NamedSharding
from mpijax.core.trees import tree
from mpijax.spmd.reshard import cast, reshard


def auto_axes(f: Callable | None = None, /, *, axes: Any = None, out_sharding: Any = None) -> Callable:
    """A function that runs with mesh axes of type Auto; its results get the sharding `out_sharding`.

    Args:
      f: a function of arrays; without it, a decorator is returned.
      axes: the axes, by default all axes of the mesh in context, or of the mesh of `out_sharding`. Without any mesh,
        `f` is called unchanged.
      out_sharding: a sharding, or a tree of shardings; if it is not given here, each call must pass it by keyword.

    Raises:
      TypeError: `out_sharding` was not given. ValueError: shardings over different meshes.

    >>> with mpijax.set_mesh(mpijax.make_mesh((1,), ("x",))):
    ...     double = mpijax.sharding.auto_axes(lambda x: 2 * x, out_sharding=mpijax.P("x"))
    ...     double(jnp.arange(3)).sharding.spec
    P('x',)
    """
    if f is None:
        return lambda g: auto_axes(g, axes=axes, out_sharding=out_sharding)

    @wraps(f)
    def within(*args: Any, **kwargs: Any) -> Any:
        shardings = _given("out_sharding", out_sharding, kwargs)
        mesh = _mesh("auto_axes", shardings)
        inner = _with_types(mesh, axes, AxisType.Auto)
        if inner == mesh:
            return f(*args, **kwargs)
        with use_abstract_mesh(inner):
            args = tree.tree_map(lambda x: cast(x, inner), args)
            out = f(*args, **kwargs)
        return reshard(out, shardings)

    return within


def explicit_axes(f: Callable | None = None, /, *, axes: Any = None, in_sharding: Any = None) -> Callable:
    """A function that runs with mesh axes of type Explicit; its arguments get the sharding `in_sharding`.

    Args:
      f: a function of arrays; without it, a decorator is returned.
      axes: the axes, by default all axes of the mesh in context.
      in_sharding: a sharding, or a tree of shardings, for the positional arguments; if it is not given here, each call
        must pass it by keyword.

    Raises:
      TypeError: `in_sharding` was not given. ValueError: there is no mesh in context.

    >>> with mpijax.set_mesh(mpijax.make_mesh((1,), ("x",))):
    ...     spec_of = mpijax.sharding.explicit_axes(lambda x: x.sharding.spec, in_sharding=mpijax.P("x"))
    ...     spec_of(jnp.arange(3))
    P('x',)
    """
    if f is None:
        return lambda g: explicit_axes(g, axes=axes, in_sharding=in_sharding)

    @wraps(f)
    def within(*args: Any, **kwargs: Any) -> Any:
        shardings = _given("in_sharding", in_sharding, kwargs)
        mesh = get_abstract_mesh()
        if mesh.empty:
            raise ValueError(
                "Context mesh cannot be empty. Please use `jax.set_mesh` API to enter into a mesh context when using "
                "`explicit_axes` API."
            )
        with use_abstract_mesh(_with_types(mesh, axes, AxisType.Explicit)):
            out = f(*reshard(args, shardings), **kwargs)
        return tree.tree_map(lambda x: cast(x, mesh), out)

    return within


def _given(name: str, here: Any, kwargs: dict[str, Any]) -> Any:
    if here is not None:
        return here
    if name not in kwargs:
        raise TypeError(f"Missing required keyword argument: {name!r}")
    return kwargs.pop(name)


def _mesh(name: str, shardings: Any) -> AbstractMesh:
    """The mesh in context, or the mesh of the shardings. Raises ValueError if they differ."""
    found = {x.mesh.abstract_mesh for x in tree.tree_leaves(shardings) if isinstance(x, NamedSharding)}
    context = get_abstract_mesh()
    shapes = {m.shape_tuple for m in found} | (set() if context.empty else {context.shape_tuple})
    if len(shapes) > 1:
        raise ValueError(
            f"Shardings passed to {name} should have the same mesh, which must equal the mesh of jax.set_mesh if set. "
            f"Got meshes {sorted(map(str, shapes))}"
        )
    return context if not context.empty or not found else found.pop()


def _with_types(mesh: AbstractMesh, axes: Any, kind: AxisType) -> AbstractMesh:
    names = mesh.axis_names if axes is None else axes if isinstance(axes, tuple) else (axes,)
    known = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    for name in names:
        if name not in known:
            raise ValueError(f"The mesh {mesh} does not have the axis {name!r}")
        if known[name] is AxisType.Manual:
            raise NotImplementedError(
                "Going from `Manual` AxisType to `Auto` or `Explicit` AxisType is not allowed: the enclosing "
                f"shard_map makes the axis {name!r} Manual"
            )
    return mesh.update(axis_types=[kind if n in names else t for n, t in known.items()])
