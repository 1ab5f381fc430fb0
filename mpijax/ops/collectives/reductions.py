"""Defines `psum`, `pmean`, `pmax`, `pmin`: elementwise reductions over named axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mpijax.core.base.state import state
from mpijax.core.rules.factors import Factor, FactorRule, finished_over_ranks
from mpijax.core.rules.lowering import Communication, Exchange, OverRanks
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.rules.registry import registry
from mpijax.core.rules.sharding_rules import Operation
from mpijax.core.rules.sum_types import kind_over, unreduced_axes
from mpijax.core.trees import tree
from mpijax.core.types.typeof import typeof
from mpijax.ops import same_bits
from mpijax.ops.collectives.mixed_groups import over_mixed_groups, reduced
from mpijax.ops.collectives.scope import (
    check_bound,
    effects,
    group_size,
    groups_of,
    linear_jvp,
    names_of,
    over_groups,
    same_type,
    varying,
    vma_without,
)
from mpijax.transforms.zeros import Zero


def psum(x, axis_name, *, axis_index_groups=None):
    """Sum of `x` (a pytree) over one or more named axes; every shard gets the sum. Communicates one allreduce a leaf.

    A Python number is multiplied by the axis size. Bools are counted, as int32. Over no axes, `x` is returned as it is.

    axis_index_groups: lists of positions that together cover the axis; each shard gets the sum over its group.

    Raises NameError for an axis that is not in scope, ValueError for groups that do not cover the axis.

    >>> mpijax.vmap(lambda x: x / lax.psum(x, "i"), axis_name="i")(jnp.array([1.0, 3.0, 4.0]))
    Array([0.125, 0.375, 0.5  ], dtype=float32)
    """
    names = names_of(axis_name)
    check_bound(names, "psum")
    if not names:
        return x
    groups = groups_of(axis_index_groups, names, equal=False)

    def one(leaf):
        if isinstance(leaf, (bool, int, float, complex)):
            if groups is not None:
                groups_of(groups, names, equal=True)
            return leaf * group_size(names, groups)
        return _reduce(psum_p, numeric(leaf), names, groups)

    return tree.tree_map(one, x)


def numeric(x):
    """Bools converted to int32 for addition; other values unchanged."""
    if typeof(x).dtype == np.bool_:
        return registry["convert_element_type"].bind(x, new_dtype=np.dtype(np.int32), weak_type=False, sharding=None)
    return x


def _reduce(primitive, x, names, groups):
    """Reduce over batch axes and over mesh axes separately, because their types differ."""
    if not state.manual_axes:
        return primitive.bind(x, axes=names, axis_index_groups=groups)
    mesh_names = tuple(n for n in names if n in state.manual_axes)
    if groups is not None:
        # Groups along an axis have different results, so the result varies over the axis.
        return primitive.bind(varying(x, mesh_names), axes=names, axis_index_groups=groups)
    others = tuple(n for n in names if n not in state.manual_axes)
    if others:
        x = primitive.bind(x, axes=others, axis_index_groups=None)
    if mesh_names:
        if primitive is psum_p and unreduced_axes(typeof(x)) & {*mesh_names}:
            kind_over(typeof(x), mesh_names, "jax.lax.psum")
            return registry["unreduced_psum"].bind(x, axes=mesh_names)
        x = varying(x, mesh_names)
        if primitive is psum_p:
            return psum_invariant_p.bind(x, axes=mesh_names)
        return primitive.bind(x, axes=mesh_names, axis_index_groups=None)
    return x


def pmean(x, axis_name, *, axis_index_groups=None):
    """Mean of `x` (a pytree) over named axes; communicates as `psum`.

    >>> mpijax.vmap(lambda x: x - lax.pmean(x, "i"), axis_name="i")(jnp.array([1.0, 5.0, 3.0]))
    Array([-2.,  2.,  0.], dtype=float32)
    """
    names = names_of(axis_name)
    check_bound(names, "pmean")
    groups = groups_of(axis_index_groups, names, equal=True)
    total = psum(x, axis_name, axis_index_groups=groups)
    count = group_size(names, groups)
    return tree.tree_map(lambda v: v / count, total)


def pmax(x, axis_name, *, axis_index_groups=None):
    """Elementwise maximum of `x` (a pytree) over named axes, or over groups along them.

    >>> mpijax.vmap(lambda x: lax.pmax(x, "i"), axis_name="i")(jnp.array([1, 5, 3]))
    Array([5, 5, 5], dtype=int32)
    """
    return _extremum(pmax_p, x, axis_name, axis_index_groups)


def pmin(x, axis_name, *, axis_index_groups=None):
    """Elementwise minimum of `x` (a pytree) over named axes, or over groups along them.

    >>> mpijax.vmap(lambda x: lax.pmin(x, "i"), axis_name="i")(jnp.array([1, 5, 3]))
    Array([1, 1, 1], dtype=int32)
    """
    return _extremum(pmin_p, x, axis_name, axis_index_groups)


def _extremum(primitive, x, axis_name, groups):
    names = names_of(axis_name)
    check_bound(names, primitive.name)
    groups = groups_of(groups, names, equal=False)
    return tree.tree_map(lambda leaf: _reduce(primitive, leaf, names, groups), x)


# ---------------------------------------------------------------- rules


def _reduced_type(x, *, axes, **_):
    positional = [a for a in axes if isinstance(a, int)]
    if not all(0 <= a < x.ndim for a in positional):
        raise ValueError(f"a reduction over axes {axes} of {x.str_short(True)}")
    return x.update(shape=tuple(d for i, d in enumerate(x.shape) if i not in positional))


def _shifted(n, d):
    return n + 1 if isinstance(n, int) and d is not None and n >= d else n


_ALONG_AXES = {"psum": "reduce_sum", "pmax": "reduce_max", "pmin": "reduce_min"}


def _batch(name: str):
    """Over its own batch axis the collective is a reduction; otherwise the batch axis is passed through."""

    def batch(axis, args, dims, *, axes, axis_index_groups):
        [x], [d] = args, dims
        primitive = registry[name]
        if axis.name is None or axis.name not in axes:
            out = primitive.bind(
                x, axes=tuple(_shifted(n, d) for n in axes), axis_index_groups=axis_index_groups
            )
            removed = sum(1 for n in axes if isinstance(n, int) and d is not None and _shifted(n, d) < d)
            return out, None if d is None else d - removed
        if axis_index_groups is not None:
            if len(axes) != 1:
                rule = reduced(_ALONG_AXES[name])
                return over_mixed_groups(axis, x, d, axes, axis_index_groups, rule)
            return over_groups(axis, x, d, axis_index_groups, lambda inner, part: (
                primitive.bind(part, axes=(0,), axis_index_groups=None), None))  # fmt: skip
        names = tuple(n for n in axes if n != axis.name)
        if d is None:
            if name == "psum":
                x = x * axis.size
            return (primitive.bind(x, axes=names, axis_index_groups=None) if names else x), None
        return primitive.bind(x, axes=(*(_shifted(n, d) for n in names), d), axis_index_groups=None), None

    return batch


def _over_array_axes(op: OverRanks) -> FactorRule:
    """The sharding rule of a collective over array axes alone: it is the reduction along them."""
    rule = finished_over_ranks(op)

    def factors(s: Operation) -> Sequence[Factor] | None:
        return rule.factors(s) if all(isinstance(a, int) for a in s.params["axes"]) else None

    return rule.but(factors=factors)


def _psum_transpose(ct, x, *, axes, axis_index_groups):
    if type(ct) is Zero:
        return [Zero(x.aval)]
    named = tuple(a for a in axes if not isinstance(a, int))
    ct = _spread(ct, x.aval.shape, axes)
    return [psum_p.bind(ct, axes=named, axis_index_groups=axis_index_groups) if named else ct]


psum_p = Primitive(
    "psum",
    type_rule=_reduced_type,
    reference=lambda x, *, axes, **_: x.sum(axis=tuple(a for a in axes if isinstance(a, int))),
    lower=Communication(Exchange.ALLREDUCE, OverRanks.SUM),
    jvp=linear_jvp("psum"),
    transpose=_psum_transpose,
    batch=_batch("psum"),
    sharding=_over_array_axes(OverRanks.SUM),
    effects=effects("axes"),
    vma=lambda avals, params: avals[0].vma,
)


def _psum_invariant_transpose(ct, x, *, axes):
    return [ct if type(ct) is Zero else registry["pvary"].bind(ct, axes=axes)]


def invariant_batch(name: str):
    """Over a mesh axis inside this process, whose shards are the batch, a sum over mesh axes is a reduction."""

    def batch(axis, args, dims, *, axes):
        [x], [d] = args, dims
        if axis.name is None or axis.name not in axes:
            return registry[name].bind(x, axes=axes), d
        rest = tuple(n for n in axes if n != axis.name)
        x = x * axis.size if d is None else psum_p.bind(x, axes=(d,), axis_index_groups=None)
        return (registry[name].bind(x, axes=rest) if rest else x), None

    return batch


psum_invariant_p = Primitive(
    "psum_invariant",
    type_rule=same_type,
    reference=lambda x, *, axes: x,
    lower=Communication(Exchange.ALLREDUCE, OverRanks.SUM),
    jvp=linear_jvp("psum_invariant"),
    transpose=_psum_invariant_transpose,
    batch=invariant_batch("psum_invariant"),
    effects=effects("axes"),
    vma=vma_without("axes"),
)


def of_same_bits(primitive: Primitive):
    """Rounds each rank's elements to grids that all ranks share, so that sums do not depend on their order."""

    def rule(x, *, axes, axis_index_groups=None):
        if not same_bits.adds_floats(x):
            return None
        groups = {} if primitive is psum_invariant_p else {"axis_index_groups": axis_index_groups}
        positional = [a for a in axes if isinstance(a, int)]
        names = tuple(a for a in axes if not isinstance(a, int))

        def largest(v):
            found = pmax_p.bind(v, axes=axes, axis_index_groups=axis_index_groups)
            return _spread(found, typeof(v).shape, axes), found

        count = group_size(names, axis_index_groups) if names else 1
        count *= math.prod(typeof(x).shape[a] for a in positional)
        return same_bits.of_sum(x, lambda v: primitive.bind(v, axes=axes, **groups), largest, count)

    return rule


psum_p.same_bits, psum_invariant_p.same_bits = of_same_bits(psum_p), of_same_bits(psum_invariant_p)


def _extremum_jvp(name: str):
    """The tangent of the largest (or smallest) value; the mean of tangents for ties, as for array axes."""

    def jvp(primals, tangents, **params):
        primitive = registry[name]
        [x], [t] = primals, tangents
        out = primitive.bind(x, **params)
        if type(t) is Zero:
            return out, Zero.of_primal(out)
        names, groups = params["axes"], params["axis_index_groups"]
        wins = registry["eq"].bind(x, _spread(varying(out, names), typeof(x).shape, names))
        mask = registry["convert_element_type"].bind(wins, new_dtype=typeof(x).dtype, weak_type=False, sharding=None)
        count = _reduce(psum_p, mask, names, groups)
        return out, _reduce(psum_p, t * mask, names, groups) / count

    return jvp


def _spread(out, shape, axes):
    """Broadcasts `out` along the array axes that a value of this shape was reduced over."""
    positional = [a for a in axes if isinstance(a, int)]
    if not positional:
        return out
    kept = tuple(i for i in range(len(shape)) if i not in positional)
    return registry["broadcast_in_dim"].bind(out, shape=shape, broadcast_dimensions=kept, sharding=None)


def _extremum_primitive(name: str, operation: OverRanks, ufunc) -> Primitive:
    return Primitive(
        name,
        type_rule=_reduced_type,
        reference=lambda x, *, axes, **_: ufunc.reduce(x, axis=tuple(a for a in axes if isinstance(a, int))),
        lower=Communication(Exchange.ALLREDUCE, operation),
        jvp=_extremum_jvp(name),
        transpose=Unsupported(f"{name} is not linear, so it has no transpose. Its jvp rule differentiates it"),
        batch=_batch(name),
        sharding=_over_array_axes(operation),
        effects=effects("axes"),
        vma=vma_without("axes"),
    )


pmax_p = _extremum_primitive("pmax", OverRanks.MAX, np.maximum)
pmin_p = _extremum_primitive("pmin", OverRanks.MIN, np.minimum)
