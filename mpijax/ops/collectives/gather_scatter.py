"""Defines `all_gather` and `psum_scatter`, which are transposes of each other."""

from __future__ import annotations

import numpy as np

from mpijax.core.base.state import state
from mpijax.core.rules import sharding_types as types
from mpijax.core.rules.lowering import Communication, Exchange, OverRanks
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.core.rules.sum_types import kind_over, reduced_axes, unreduced_axes, with_sums
from mpijax.core.tracing.trace import axis_size as named_axis_size
from mpijax.core.trees import tree
from mpijax.core.types.typeof import typeof
from mpijax.ops import same_bits
from mpijax.ops.collectives import mixed_groups
from mpijax.ops.collectives.mixed_groups import over_mixed_groups
from mpijax.ops.collectives.position import axis_index
from mpijax.ops.collectives.reductions import numeric
from mpijax.ops.collectives.scope import (
    around,
    batched,
    check_bound,
    check_exchange,
    converted,
    divided,
    effects,
    group_size,
    groups_of,
    linear_jvp,
    merge_axes,
    names_of,
    over_groups,
    varying,
    vma_of,
    vma_with,
    vma_without,
)
from mpijax.transforms.zeros import Zero


def all_gather(x, axis_name, *, axis_index_groups=None, axis=0, tiled=False, to: str = "varying"):
    """Gathers the shards' `x` (a pytree): stacked along a new axis at `axis`, or concatenated along it with `tiled`.

    Communicates one allgather a leaf. With `axis_index_groups` each shard gathers from its group.
    to: the type of the result: 'varying', 'invarying' (the same on all shards), or 'reduced' (the same on all shards,
      with an unreduced cotangent).

    >>> mpijax.vmap(lambda x: lax.all_gather(x, "i"), axis_name="i")(jnp.array([1, 2]))
    Array([[1, 2],
           [1, 2]], dtype=int32)
    """
    if to not in ("varying", "invarying", "reduced"):
        raise ValueError(
            f"Got unexpected `to` value for `jax.lax.all_gather`: {to!r}. Allowed are 'varying', 'invarying' and "
            "'reduced'."
        )
    names = names_of(axis_name)
    check_bound(names, "all_gather")
    groups = groups_of(axis_index_groups, names, equal=True)
    if to != "varying" and groups is not None:
        raise NotImplementedError(
            f"all_gather(..., to={to!r}) does not support axis_index_groups, because the results of the groups differ"
        )
    size = group_size(names, groups)
    primitive = _GATHERS[to] if state.manual_axes else all_gather_p

    def one(leaf):
        ndim = typeof(leaf).ndim + (not tiled)
        if not -ndim <= axis < ndim:
            raise ValueError(f"all_gather: axis {axis} is out of bounds for a result with {ndim} axes")
        leaf = varying(leaf, names)
        params = {"all_gather_dimension": axis % ndim, "axis_name": names, "axis_size": size, "tiled": tiled}
        return primitive.bind(leaf, **({"axis_index_groups": groups} if primitive is all_gather_p else {}), **params)

    return tree.tree_map(one, x)


def psum_scatter(x, axis_name, *, scatter_dimension=0, axis_index_groups=None, tiled=False):
    """Sums `x` (a pytree) over named axes; each shard gets the part of the sum at its position.

    The parts are the elements of axis `scatter_dimension`, which is removed, or with `tiled` equal blocks along it.
    Communicates one reduce_scatter a leaf. Raises ValueError unless that axis has the size of the named axes
    (with `tiled`, a multiple).

    >>> mpijax.vmap(lambda x: lax.psum_scatter(x, "i"), axis_name="i")(jnp.array([[1, 2], [3, 4]]))
    Array([4, 6], dtype=int32)
    """
    names = names_of(axis_name)
    check_bound(names, "psum_scatter")
    groups = groups_of(axis_index_groups, names, equal=True)
    size = group_size(names, groups)

    params = {"axis_name": names, "scatter_dimension": scatter_dimension, "axis_size": size, "tiled": tiled}

    def one(leaf):
        if groups is None and unreduced_axes(typeof(leaf)) & {*names}:
            kind_over(typeof(leaf), names, "jax.lax.psum_scatter")
            return unreduced_reduce_scatter_p.bind(leaf, **params)
        return reduce_scatter_p.bind(varying(numeric(leaf), names), axis_index_groups=groups, **params)

    return tree.tree_map(one, x)


# ---------------------------------------------------------------- all_gather


def _all_gather_type(x, *, all_gather_dimension, axis_name, axis_size, tiled, axis_index_groups=None):
    room = x if tiled else x.with_axis(0, 1)
    check_exchange(room, all_gather_dimension, axis_name, axis_index_groups, axis_size)
    shape = list(x.shape)
    if tiled:
        shape[all_gather_dimension] *= axis_size
    else:
        shape.insert(all_gather_dimension, axis_size)
    return x.update(shape=tuple(shape))


def _all_gather_reference(x, *, all_gather_dimension, tiled, **_):
    return x if tiled else np.expand_dims(x, all_gather_dimension)


def _all_gather_transpose(ct, x, *, all_gather_dimension, **params):
    """The sum of all shards' cotangents for this shard's part."""
    if type(ct) is Zero:
        return [Zero(x.aval)]
    return [reduce_scatter_p.bind(ct, scatter_dimension=all_gather_dimension, **params)]


def _all_gather_batch(primitive_name: str):
    def batch(axis, args, dims, *, all_gather_dimension, axis_name, axis_size, tiled, **groups):
        [x], [d] = args, dims
        primitive, at = registry[primitive_name], all_gather_dimension
        if axis.name is None or axis.name not in axis_name:
            # The batch axis stays, before or behind the gathered axis.
            shifted = at + (d is not None and d <= at)
            out = primitive.bind(
                x, all_gather_dimension=shifted, axis_name=axis_name, axis_size=axis_size, tiled=tiled, **groups
            )
            return out, d if d is None else d + (not tiled and shifted <= d)
        if groups.get("axis_index_groups") is not None:
            if len(axis_name) != 1:
                return over_mixed_groups(
                    axis, x, d, axis_name, groups["axis_index_groups"], mixed_groups.gathered(at, tiled)
                )
            return over_groups(axis, x, d, groups["axis_index_groups"], lambda inner, part: (
                _gathered(registry[primitive_name], inner, part, 0, at, axis_name, tiled), None))  # fmt: skip
        return _gathered(primitive, axis, x, d, at, axis_name, tiled), None

    return batch


def _gathered(primitive, axis, x, d, at: int, names, tiled: bool):
    """All examples from all positions of the other axes, along one axis."""
    before, behind = around(names, axis.name)
    none = {"axis_index_groups": None} if primitive is all_gather_p else {}

    def gather(x, over, at):
        return primitive.bind(
            x, all_gather_dimension=at, axis_name=over, axis_size=named_axis_size(over), tiled=False, **none
        )

    x = batched(axis, x, d)
    if behind:
        x = gather(x, behind, at + 1)
    x = batched(axis, x, 0, at)
    if before:
        x = gather(x, before, at)
    return merge_axes(x, at, 1 + bool(before) + bool(behind) + tiled)


all_gather_p = Primitive(
    "all_gather",
    type_rule=_all_gather_type,
    reference=_all_gather_reference,
    lower=Communication(Exchange.ALLGATHER),
    jvp=linear_jvp("all_gather"),
    transpose=_all_gather_transpose,
    batch=_all_gather_batch("all_gather"),
    effects=effects("axis_name"),
    vma=vma_with("axis_name"),
)


def _invariant_transpose(ct, x, *, all_gather_dimension, axis_name, axis_size, tiled):
    """All shards have the same cotangent: each takes its own part."""
    if type(ct) is Zero:
        return [Zero(x.aval)]
    part = x.aval.shape[all_gather_dimension] if tiled else 1
    here = axis_index(axis_name)
    starts = [np.int32(0)] * typeof(ct).ndim
    starts[all_gather_dimension] = here * np.int32(part)
    shape = list(typeof(ct).shape)
    shape[all_gather_dimension] = part
    mine = registry["dynamic_slice"].bind(ct, *starts, slice_sizes=tuple(shape))
    return [mine if tiled else registry["squeeze"].bind(mine, dimensions=(all_gather_dimension,))]


all_gather_invariant_p = Primitive(
    "all_gather_invariant",
    type_rule=_all_gather_type,
    reference=_all_gather_reference,
    lower=Communication(Exchange.ALLGATHER),
    jvp=linear_jvp("all_gather_invariant"),
    transpose=_invariant_transpose,
    batch=_all_gather_batch("all_gather_invariant"),
    effects=effects("axis_name"),
    vma=vma_without("axis_name"),
)


def _gather_reduced_type(x, *, axis_name, **params):
    gathered = _all_gather_type(x, axis_name=axis_name, **params)
    kept = with_sums(gathered, unreduced_axes(x), reduced_axes(x))
    return converted(kept, axis_name, "varying", "reduced", "all_gather_reduced")


def _gather_reduced_transpose(ct, x, *, all_gather_dimension, **params):
    if type(ct) is Zero:
        return [Zero(x.aval)]
    return [unreduced_reduce_scatter_p.bind(ct, scatter_dimension=all_gather_dimension, **params)]


all_gather_reduced_p = Primitive(
    "all_gather_reduced",
    type_rule=_gather_reduced_type,
    reference=_all_gather_reference,
    lower=Communication(Exchange.ALLGATHER),
    sharding_type=types.by_type_rule,
    jvp=linear_jvp("all_gather_reduced"),
    transpose=_gather_reduced_transpose,
    batch=_all_gather_batch("all_gather_reduced"),
    effects=effects("axis_name"),
    vma=vma_of("axis_name", "varying", "reduced"),
)

_GATHERS = {"varying": all_gather_p, "invarying": all_gather_invariant_p, "reduced": all_gather_reduced_p}

# ---------------------------------------------------------------- reduce_scatter


def _reduce_scatter_type(x, *, scatter_dimension, axis_name, axis_index_groups, axis_size, tiled):
    check_exchange(x, scatter_dimension, axis_name, axis_index_groups, axis_size)
    shape = list(x.shape)
    size = shape[scatter_dimension]
    if tiled:
        if size % axis_size:
            raise ValueError(
                f"tiled reduce_scatter operand scatter dimension size {size} must be divisible by shard_count "
                f"{axis_size}: axis {scatter_dimension} of {x.str_short(True)}"
            )
        shape[scatter_dimension] //= axis_size
    else:
        if size != axis_size:
            raise ValueError(
                f"reduce_scatter operand scatter dimension size {size} must match shard count {axis_size}: axis "
                f"{scatter_dimension} of {x.str_short(True)}. With tiled=True it may be a multiple"
            )
        del shape[scatter_dimension]
    return x.update(shape=tuple(shape))


def _reduce_scatter_transpose(ct, x, *, scatter_dimension, **params):
    if type(ct) is Zero:
        return [Zero(x.aval)]
    return [all_gather_p.bind(ct, all_gather_dimension=scatter_dimension, **params)]


def _reduce_scatter_batch(
    axis, args, dims, *, axis_name, scatter_dimension, axis_index_groups, axis_size, tiled
):
    [x], [d] = args, dims
    if axis.name is None or axis.name not in axis_name:
        at = scatter_dimension + (d is not None and d <= scatter_dimension)
        out = reduce_scatter_p.bind(
            x, axis_name=axis_name, scatter_dimension=at, axis_index_groups=axis_index_groups, axis_size=axis_size,
            tiled=tiled,
        )  # fmt: skip
        return out, d if d is None else d - (not tiled and at < d)
    if axis_index_groups is not None:
        if len(axis_name) != 1:
            rule = mixed_groups.scattered(scatter_dimension, tiled)
            return over_mixed_groups(axis, x, d, axis_name, axis_index_groups, rule)
        return over_groups(axis, x, d, axis_index_groups, lambda inner, part: _scattered(
            inner, part, 0, scatter_dimension, axis_name, tiled))  # fmt: skip
    return _scattered(axis, x, d, scatter_dimension, axis_name, tiled)


def _scattered(axis, x, d, at: int, names, tiled: bool):
    """Sums over examples and other axes; splits the scattered axis into positions before, examples, and behind."""
    before, behind = around(names, axis.name)

    def scatter(x, over, at):
        return reduce_scatter_p.bind(
            x, axis_name=over, scatter_dimension=at, axis_index_groups=None, axis_size=named_axis_size(over),
            tiled=False,
        )  # fmt: skip

    sizes = [*([named_axis_size(before)] if before else []), axis.size, *([named_axis_size(behind)] if behind else [])]
    x = divided(batched(axis, x, d), at + 1, sizes)
    if before:
        x = scatter(x, before, at + 1)
    x = registry["reduce_sum"].bind(x, axes=(0,), out_sharding=None)
    if behind:
        x = scatter(x, behind, at + 1)
    return (x if tiled else registry["squeeze"].bind(x, dimensions=(at + 1,))), at


reduce_scatter_p = Primitive(
    "reduce_scatter",
    type_rule=_reduce_scatter_type,
    reference=lambda x, *, scatter_dimension, tiled, **_: x if tiled else x.squeeze(scatter_dimension),
    lower=Communication(Exchange.REDUCE_SCATTER, OverRanks.SUM),
    jvp=linear_jvp("reduce_scatter"),
    transpose=_reduce_scatter_transpose,
    batch=_reduce_scatter_batch,
    effects=effects("axis_name"),
    vma=vma_with("axis_name"),
)


def _same_bits(x, *, axis_name, scatter_dimension, axis_index_groups, axis_size, tiled):
    """Exchanges the blocks and sums them here. Sends as many bytes as a reduce_scatter."""
    if not same_bits.adds_floats(x):
        return None
    shape, at = typeof(x).shape, scatter_dimension
    blocks = registry["reshape"].bind(
        x, new_sizes=(*shape[:at], axis_size, shape[at] // axis_size, *shape[at + 1 :]), dimensions=None, sharding=None
    )
    params = {"split_axis": at, "concat_axis": at, "axis_name": axis_name, "axis_index_groups": axis_index_groups}
    blocks = registry["all_to_all"].bind(blocks, **params, tiled=True)
    out = same_bits.reduce_sum(blocks, axes=(at,))
    return out if tiled else registry["squeeze"].bind(out, dimensions=(at,))


reduce_scatter_p.same_bits = _same_bits


def _unreduced_scatter_type(x, *, axis_name, **params):
    scattered = _reduce_scatter_type(x, axis_name=axis_name, axis_index_groups=None, **params)
    kept = with_sums(scattered, unreduced_axes(x), reduced_axes(x))
    return converted(kept, axis_name, "unreduced", "varying", "unreduced_psum_scatter")


def _unreduced_scatter_transpose(ct, x, *, scatter_dimension, **params):
    if type(ct) is Zero:
        return [Zero(x.aval)]
    return [all_gather_reduced_p.bind(ct, all_gather_dimension=scatter_dimension, **params)]


def _unreduced_scatter_batch(axis, args, dims, **params):
    """Over a mesh axis inside this process, whose shards are the batch, types are not tracked."""
    if axis.name is not None and axis.name in params["axis_name"]:
        return _reduce_scatter_batch(axis, args, dims, axis_index_groups=None, **params)
    [x], [d] = args, dims
    at, tiled = params["scatter_dimension"], params["tiled"]
    shifted = at + (d is not None and d <= at)
    out = unreduced_reduce_scatter_p.bind(x, **{**params, "scatter_dimension": shifted})
    return out, None if d is None else d - (not tiled and shifted < d)


unreduced_reduce_scatter_p = Primitive(
    "unreduced_reduce_scatter",
    type_rule=_unreduced_scatter_type,
    reference=lambda x, *, scatter_dimension, tiled, **_: x if tiled else x.squeeze(scatter_dimension),
    lower=Communication(Exchange.REDUCE_SCATTER, OverRanks.SUM),
    sharding_type=types.by_type_rule,
    jvp=linear_jvp("unreduced_reduce_scatter"),
    transpose=_unreduced_scatter_transpose,
    batch=_unreduced_scatter_batch,
    effects=effects("axis_name"),
    vma=vma_of("axis_name", "unreduced", "varying"),
)
unreduced_reduce_scatter_p.same_bits = lambda x, **params: _same_bits(x, axis_index_groups=None, **params)
