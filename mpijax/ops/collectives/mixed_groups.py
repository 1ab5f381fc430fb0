"""Collectives over groups along several axes, one of which is a batch axis.

Positions along several axes are not positions along one of them, so reordering the batch cannot form the groups.
Instead every shard gathers the values of all shards, selects those of its group, and applies the collective to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.core.rules.registry import registry
from mpijax.core.tracing.trace import axis_size as named_axis_size
from mpijax.core.types.typeof import typeof
from mpijax.ops.collectives.scope import Groups, merge_axes, reshape, row
from mpijax.transforms.batching import batch_flat, move_dim

# (values of a group, its members first; a member's position in the group, a scalar) -> that member's result.
Rule = Callable[[Any, Any], Any]


def over_mixed_groups(axis, x: Any, d: int | None, names: tuple, groups: Groups, rule: Rule) -> tuple[Any, int | None]:
    """The result of a collective on a batch over `axis`, and its batch axis.

    Raises NotImplementedError for groups of different sizes.
    """
    if len({len(g) for g in groups}) > 1:
        raise NotImplementedError(
            f"Groups of different sizes, {groups}, are not supported over a batch axis together with other axes, "
            f"{names}. Communicate over one axis at a time, or make the groups an axis of the mesh."
        )
    count = named_axis_size(names)
    place = np.empty((2, count), np.int32)  # for each position its group, and its position in the group
    for k, members in enumerate(groups):
        for j, i in enumerate(members):
            place[:, i] = k, j
    order = [i for g in groups for i in g]

    def shard(value):
        everything = registry["all_gather"].bind(
            value, all_gather_dimension=0, axis_name=names, axis_index_groups=None, axis_size=count, tiled=False
        )
        rows = registry["concatenate"].bind(*(row(everything, i, keep=True) for i in order), dimension=0)
        by_group = reshape(rows, (len(groups), len(groups[0]), *typeof(value).shape))
        here = _position(names)
        return [rule(_element(by_group, _element(place[0], here)), _element(place[1], here))]

    [out], [dim] = batch_flat(shard, axis, [x], [d])
    return out, dim


def _position(names: tuple):
    position, stride = np.int32(0), 1
    for n in reversed(names):
        position = position + registry["axis_index"].bind(axis_name=n) * np.int32(stride)
        stride *= named_axis_size(n)
    return position


def _element(x, i):
    """The element at position `i` of the first axis."""
    return block(x, 0, i, 1, keep=False)


def block(x, at: int, i, size: int, keep: bool = True):
    """The block of `size` elements that starts at `i * size` along axis `at`."""
    shape = typeof(x).shape
    starts: list[Any] = [np.int32(0)] * len(shape)
    starts[at] = i * np.int32(size)
    part = (*shape[:at], size, *shape[at + 1 :])
    out = registry["dynamic_slice"].bind(x, *starts, slice_sizes=part)
    return out if keep else registry["squeeze"].bind(out, dimensions=(at,))


# ---------------------------------------------------------------- what each collective does


def reduced(name: str) -> Rule:
    """A reduction, given by the name of its primitive for array axes."""
    params = {"axes": (0,), "out_sharding": None}
    return lambda values, _place: registry[name].bind(values, **params)


def gathered(at: int, tiled: bool) -> Rule:
    """Stacks or concatenates the values."""

    def rule(values, _place):
        values = move_dim(values, 0, at)
        return merge_axes(values, at, 2) if tiled else values

    return rule


def scattered(at: int, tiled: bool) -> Rule:
    """This member's part of the sum."""

    def rule(values, place):
        total = reduced("reduce_sum")(values, place)
        size = typeof(total).shape[at] // typeof(values).shape[0]
        return block(total, at, place, size, keep=tiled)

    return rule


def exchanged(split: int, concat: int) -> Rule:
    """This member's parts of all values, concatenated."""

    def rule(values, place):
        size = typeof(values).shape[split + 1] // typeof(values).shape[0]
        return merge_axes(move_dim(block(values, split + 1, place, size), 0, concat), concat, 2)

    return rule
