"""Defines `pvary` and `pcast`, which change the type of a value over mesh axes.

`psum` of a varying value is invariant. If an operation combines an invariant value with a varying one, `pvary` converts
the type. It moves no data, and is the transpose of `psum`. With that pairing, gradients through collectives are those
of the global program.
"""

from __future__ import annotations

from mpijax.core.base.state import state
from mpijax.core.rules import shape_rules, sum_types
from mpijax.core.rules.index_maps import identity
from mpijax.core.rules.lowering import Structural, ViewKind
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.core.rules.sum_types import kind_over
from mpijax.core.sharding.context import get_abstract_mesh, in_types
from mpijax.core.trees import tree
from mpijax.core.types.typeof import typeof
from mpijax.ops.collectives.scope import check_bound, linear_jvp, names_of, same_type, vma_with
from mpijax.transforms import key_reuse
from mpijax.transforms.zeros import Zero


def pvary(x, axis_name):
    """Types `x` (a pytree) as varying over mesh axes; moves no data.

    >>> mesh = mpijax.make_mesh((1,), ("x",))
    >>> f = mpijax.shard_map(lambda x: lax.pvary(x, "x"), mesh=mesh, in_specs=mpijax.P(), out_specs=mpijax.P("x"))
    >>> f(jnp.arange(3))
    Array([0, 1, 2], dtype=int32)
    """
    names = _tracked(names_of(axis_name), "pvary")
    return tree.tree_map(lambda leaf: pvary_p.bind(leaf, axes=names), x) if names else x


def _tracked(names: tuple, caller: str) -> tuple:
    """Those of the names that are mesh axes over which types are tracked; `check_vma=False` tracks none."""
    if not state.axis_env:
        raise ValueError(
            f"{caller} should be called under jax.shard_map: axis {names!r} is not in scope."
        )
    check_bound(names, caller)
    return tuple(n for n in names if n in state.manual_axes)


def _in_types(names: tuple) -> tuple:
    """The names without those of axes of the mesh in context that types do not contain."""
    mesh = get_abstract_mesh()
    return tuple(n for n in names if n not in mesh.shape or in_types((n,), mesh))


# The primitive for each conversion of `pcast`.
_CASTS = {
    ("invarying", "varying"): "pvary",
    ("invarying", "reduced"): "preduced",
    ("varying", "unreduced"): "vary_unreduced_cast_p",
    ("reduced", "varying"): "reduced_vary_cast_p",
}


def pcast(x, axis_name, *, to: str):
    """Converts `x` (a pytree) to another type over mesh axes; moves no data.

    to: 'varying' is for a value that is the same on all shards, or reduced. 'reduced' is for a value that is the same
      on all shards: its cotangent is then unreduced. 'unreduced' is for a varying value: the shards become summands of
      a sum that `psum` or `psum_scatter` takes.

    Raises ValueError for other conversions; TypeError for names that are neither a string nor a tuple.

    >>> f = lambda x: x + lax.pcast(jnp.zeros(()), "x", to="varying")
    >>> mesh = mpijax.make_mesh((1,), ("x",))
    >>> mpijax.shard_map(f, mesh=mesh, in_specs=mpijax.P("x"), out_specs=mpijax.P("x"))(jnp.arange(3.0))
    Array([0., 1., 2.], dtype=float32)
    """
    if to not in ("varying", "reduced", "unreduced"):
        raise ValueError(
            f"Got unexpected `to` value {to!r}. Allowed `to` values are: varying, reduced, unreduced. For a value "
            "that is equal on all shards, use psum or all_gather(..., to='invarying')."
        )
    if not isinstance(axis_name, (str, tuple)):
        raise TypeError(f"axis_name={axis_name} must be a tuple or a str. Got {axis_name!r}")
    names = names_of(axis_name)
    if not names:
        return x

    def one(leaf):
        kind = kind_over(typeof(leaf), names, "jax.lax.pcast")
        if (kind, to) not in _CASTS:
            raise ValueError(
                f"Unsupported pcast from={kind}, to={to!r}: its type is {typeof(leaf)}. Possible are "
                f"{', '.join(f'{a} to {b}' for a, b in _CASTS)}."
            )
        cast = _CASTS[kind, to]
        kept = _in_types(names) if cast == "pvary" else names
        tracked = _tracked(kept, cast.removesuffix("_p")) if kept else ()
        return registry[cast].bind(leaf, axes=tracked) if tracked else leaf

    return tree.tree_map(one, x)


class _Pvary(Primitive):
    """Binds only axes over which the value does not vary yet: the transpose sums over each of them once."""

    def bind(self, x, *, axes):
        already = typeof(x).vma
        missing = tuple(a for a in axes if a not in already)
        return super().bind(x, axes=missing) if missing else x


def _transpose(ct, x, *, axes):
    return [ct if type(ct) is Zero else registry["psum_invariant"].bind(ct, axes=axes)]


def _batch(axis, args, dims, *, axes):
    """The examples of a batch vary along its own axis, so only the other axes remain."""
    [x], [d] = args, dims
    rest = tuple(n for n in axes if n != axis.name)
    return (pvary_p.bind(x, axes=rest) if rest else x), d


pvary_p = _Pvary(
    "pvary",
    type_rule=same_type,
    reference=lambda x, *, axes: x,
    lower=Structural(identity, ViewKind.SAME),
    sharding=shape_rules.copied,
    jvp=linear_jvp("pvary"),
    transpose=_transpose,
    batch=_batch,
    vma=vma_with("axes"),
    keys=key_reuse.SAME,
    sums=sum_types.over_other_axes,
)
