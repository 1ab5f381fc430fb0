"""Defines `all_to_all` and `pswapaxes`: every shard sends a part of its array to every other shard."""

from __future__ import annotations

from mpijax.core.rules.lowering import Communication, Exchange
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.core.tracing.trace import axis_size as named_axis_size
from mpijax.core.trees import tree
from mpijax.core.types.typeof import typeof
from mpijax.ops.collectives.mixed_groups import exchanged, over_mixed_groups
from mpijax.ops.collectives.scope import (
    around,
    batched,
    check_bound,
    check_exchange,
    divided,
    effects,
    group_size,
    groups_of,
    linear_jvp,
    merge_axes,
    names_of,
    over_groups,
    varying,
    vma_with,
)
from mpijax.transforms.zeros import Zero


def all_to_all(x, axis_name, split_axis, concat_axis, *, axis_index_groups=None, tiled=False):
    """Sends part `k` of `x` (a pytree) along `split_axis` to shard `k`; received parts are along `concat_axis`.

    Without `tiled`, `split_axis` has the size of the named axes and is removed, and the received parts are along a new
    axis at `concat_axis`. With `tiled`, the parts are blocks, and are concatenated. Communicates one alltoall a leaf.

    Raises ValueError unless the size of `split_axis` is that of the named axes (with `tiled`, a multiple).

    >>> mpijax.vmap(lambda x: lax.all_to_all(x, "i", 0, 0), axis_name="i")(jnp.array([[1, 2], [3, 4]]))
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    names = names_of(axis_name)
    check_bound(names, "all_to_all")
    groups = groups_of(axis_index_groups, names, equal=True)
    size = group_size(names, groups)

    def one(leaf):
        split, concat = split_axis, concat_axis
        length = typeof(leaf).shape[split]
        if tiled and length % size:
            raise ValueError(
                f"The size of all_to_all split_axis ({length}) has to be divisible by the size of the named axis "
                f"{axis_name} ({size})"
            )
        if not tiled:
            if length != size:
                raise ValueError(
                    "all_to_all requires the size of the mapped axis axis_name to equal x.shape[split_axis], but "
                    f"they are {size} and {length} respectively. With tiled=True, x.shape[split_axis] may be a "
                    "multiple of the size."
                )
            ndim = typeof(leaf).ndim
            split, concat = split % ndim, concat % ndim
            if split < concat:
                # `concat_axis` is a position after the removal of the split axis.
                concat += 1
                leaf = _with_new_axis(leaf, concat)
            elif concat < split:
                leaf = _with_new_axis(leaf, concat)
                split += 1
        out = all_to_all_p.bind(
            varying(leaf, names), split_axis=split, concat_axis=concat, axis_name=axis_name, axis_index_groups=groups,
            tiled=tiled,
        )  # fmt: skip
        return out if tiled or split == concat else registry["squeeze"].bind(out, dimensions=(split,))

    return tree.tree_map(one, x)


def _with_new_axis(x, at: int):
    shape = list(typeof(x).shape)
    shape.insert(at, 1)
    kept = tuple(i for i in range(len(shape)) if i != at)
    return registry["broadcast_in_dim"].bind(x, shape=tuple(shape), broadcast_dimensions=kept, sharding=None)


def pswapaxes(x, axis_name, axis, *, axis_index_groups=None):
    """Exchanges array axis `axis` of `x` (a pytree) with the named axis; both have the same size.

    >>> mpijax.vmap(lambda x: lax.pswapaxes(x, "i", 0), axis_name="i")(jnp.array([[1, 2], [3, 4]]))
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


# ---------------------------------------------------------------- rules


def _type(x, *, split_axis, concat_axis, axis_name, axis_index_groups, tiled):
    size = check_exchange(x, split_axis, axis_name, axis_index_groups)
    check_exchange(x, concat_axis, axis_name, axis_index_groups)
    shape = list(x.shape)
    if tiled and shape[split_axis] % size or not tiled and shape[split_axis] != size:
        raise ValueError(f"all_to_all: axis {split_axis} of {x.str_short(True)} goes to {size} shards")
    shape[split_axis] //= size
    shape[concat_axis] *= size
    return x.update(shape=tuple(shape))


def _transpose(ct, x, *, split_axis, concat_axis, **params):
    """Parts return to the shards that they came from."""
    if type(ct) is Zero:
        return [Zero(x.aval)]
    return [all_to_all_p.bind(ct, split_axis=concat_axis, concat_axis=split_axis, **params)]


def _batch(axis, args, dims, *, split_axis, concat_axis, axis_name, axis_index_groups, tiled):
    [x], [d] = args, dims
    names = names_of(axis_name)
    ndim = typeof(x).ndim - (d is not None)
    split, concat = split_axis % ndim, concat_axis % ndim
    if axis.name is None or axis.name not in names:
        shift = (lambda at: at) if d is None else (lambda at: at + (d <= at))
        out = all_to_all_p.bind(
            x, split_axis=shift(split), concat_axis=shift(concat), axis_name=axis_name,
            axis_index_groups=axis_index_groups, tiled=tiled,
        )  # fmt: skip
        return out, d
    if axis_index_groups is not None:
        if len(names) != 1:
            return over_mixed_groups(axis, x, d, names, axis_index_groups, exchanged(split, concat))
        return over_groups(
            axis, x, d, axis_index_groups, lambda inner, part: _exchanged(inner, part, 0, split, concat, names)
        )
    return _exchanged(axis, x, d, split, concat, names)


def _exchanged(axis, x, d, split: int, concat: int, names):
    """Splits an axis into positions before, examples and positions behind, and exchanges each of them."""
    before, behind = around(names, axis.name)
    sizes = [*([named_axis_size(before)] if before else []), axis.size, *([named_axis_size(behind)] if behind else [])]
    at, count = split + 1, len(sizes)
    x = divided(batched(axis, x, d), at, sizes)
    own = at + bool(before)
    if before:
        x = _in_place(x, at, before)
    order = list(range(typeof(x).ndim))
    order[0], order[own] = order[own], order[0]
    x = registry["transpose"].bind(x, permutation=tuple(order))
    if behind:
        x = _in_place(x, own + 1, behind)
    # The axes of the source positions must come before the axis along which they are joined.
    positions = list(range(at, at + count))
    joined = concat + 1 if concat < split else concat + 1 + count
    others = [i for i in range(len(order)) if i not in positions]
    target = others.index(joined)
    order = others[:target] + positions + others[target:]
    if order != sorted(order):
        x = registry["transpose"].bind(x, permutation=tuple(order))
    return merge_axes(x, target, count + 1), 0


def _in_place(x, at: int, names):
    return all_to_all_p.bind(
        x, split_axis=at, concat_axis=at, axis_name=names, axis_index_groups=None, tiled=False
    )


all_to_all_p = Primitive(
    "all_to_all",
    type_rule=_type,
    reference=lambda x, **_: x,
    lower=Communication(Exchange.ALLTOALL),
    jvp=linear_jvp("all_to_all"),
    transpose=_transpose,
    batch=_batch,
    effects=effects("axis_name"),
    vma=vma_with("axis_name"),
)
