"""Types over Explicit mesh axes of reshapes, gathers and scatters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mpijax.core.base.errors import ShardingTypeError
from mpijax.core.rules import shape_rules
from mpijax.core.rules.sharding_types import TypedOperation, by_factors
from mpijax.core.sharding.split import Axes

# ---------------------------------------------------------------- reshape


def reshape(s: TypedOperation) -> Sequence[Axes]:
    """One axis may be split into several, or several merged into one; axes of size 1 may be added or removed."""
    shape, new = s.types[0].shape, s.results[0].shape
    if not any(s.axes()):
        return [((),) * len(new)]
    axes = tuple(names for n, names in zip(shape, s.axes(), strict=True) if n != 1)
    found = iter(_reshaped(s, axes, [n for n in shape if n != 1], [n for n in new if n != 1]))
    return [tuple(() if n == 1 else next(found) for n in new)]


def _reshaped(s: TypedOperation, axes: Axes, shape: list[int], new: list[int]) -> Axes:
    """`reshape` of shapes without axes of size 1."""
    if shape == new:
        return axes
    if s.params["dimensions"] is None:
        cut = _groups(shape, new) if len(new) > len(shape) else None
        if cut is not None:
            return _cut_axes(s, axes, cut)
        merged = _groups(new, shape) if len(new) < len(shape) else None
        if merged is not None:
            return _merged_axes(s, axes, merged, new)
    raise _no_reshape(s)


def _groups(few: Sequence[int], many: Sequence[int]) -> list[list[int]] | None:
    """For each axis of `few`, the sizes in `many` that make it up; None if several axes are split up or none fits.
    """
    groups: list[list[int]] = []
    j = 0
    for n in few:
        group = [many[j]] if j < len(many) else []
        j += 1
        if not group:
            return None
        while math.prod(group) != n and j < len(many):
            group.append(many[j])
            j += 1
        groups.append(group)
    groups[-1] += many[j:]
    fits = all(math.prod(g) == n for g, n in zip(groups, few, strict=True))
    return groups if fits and sum(len(g) > 1 for g in groups) <= 1 else None


def _dealt(s: TypedOperation, names: tuple, sizes: Sequence[int]) -> list[tuple]:
    """Distributes the mesh axes of an array axis over the axes it is split into; each takes as many as its size."""
    left, out = list(names), []
    for n in sizes:
        mine = []
        while n > 1 and left:
            n, rest = divmod(n, s.mesh.shape[left[0]])
            if rest:
                raise _no_reshape(s)
            mine.append(left.pop(0))
        out.append(tuple(mine))
    return out


def _cut_axes(s: TypedOperation, axes: Axes, groups: list[list[int]]) -> Axes:
    out: list[tuple] = []
    for names, group in zip(axes, groups, strict=True):
        out += [names] if len(group) == 1 else _dealt(s, names, group)
    return tuple(out)


def _merged_axes(s: TypedOperation, axes: Axes, groups: list[list[int]], new: Sequence[int]) -> Axes:
    out: list[tuple] = []
    given = iter(axes)
    for n, group in zip(new, groups, strict=True):
        mine = [next(given) for _ in group]
        while len(mine) > 1 and not mine[-1]:
            mine.pop()
        if not all(mine) and any(mine):
            raise _no_reshape(s)
        out += _dealt(s, tuple(a for names in mine for a in names), [n]) if len(group) > 1 else mine
    return tuple(out)


def _no_reshape(s: TypedOperation) -> ShardingTypeError:
    return ShardingTypeError(
        "This reshape is not supported. Please specify the sharding of the output via the `out_sharding` argument of "
        f"jax.lax.reshape. Got operand type: {s.types[0]}, new sizes: {tuple(s.results[0].shape)}"
    )


# ---------------------------------------------------------------- gather and scatter


def gather(s: TypedOperation) -> Sequence[Axes]:
    """Operand axes that slices take whole, and batch axes of the indices, stay split."""
    operand, indices = s.axes(0), s.axes(1)
    numbers, sizes, shape = s.params["dimension_numbers"], s.params["slice_sizes"], s.types[0].shape
    along = list(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    sliced = all(sizes[i] == shape[i] or not operand[i] for i in numbers.start_index_map)
    agree = all(not operand[i] or not indices[j] or operand[i] == indices[j] for i, j in along)
    queries = not any(names for j, names in enumerate(indices) if j not in numbers.start_indices_batching_dims)
    if not (sliced and agree and queries):
        raise ShardingTypeError(
            "Use `.at[...].get(out_sharding=)` to provide output PartitionSpec for the gather indexing as out sharding "
            "could not be resolved unambiguously (or would require collectives on inputs). Got "
            f"operand={s.types[0]!r}, indices={s.types[1]!r}"
        )
    return by_factors(shape_rules.gather)(s)


def scatter(s: TypedOperation) -> Sequence[Axes]:
    """Operand axes that updates cover whole stay split, if the updates are split alike, or are whole."""
    operand, indices, updates = s.all_axes()
    n = s.params["dimension_numbers"]
    batch_of_updates = [d for d in range(len(updates)) if d not in n.update_window_dims]
    pairs = zip(n.operand_batching_dims, n.scatter_indices_batching_dims, strict=True)
    along = [(i, j, batch_of_updates[j]) for i, j in pairs]
    window = [i for i in range(len(operand)) if i not in n.inserted_window_dims and i not in n.operand_batching_dims]
    windows = list(zip(n.update_window_dims, window, strict=True))
    shape, new = s.types[0].shape, s.types[2].shape
    fits = (
        all(len({a for a in (operand[i], indices[j], updates[k]) if a}) < 2 for i, j, k in along)
        and all(updates[u] in (operand[o], ()) and (new[u] == shape[o] or not operand[o]) for u, o in windows)
        and not any(operand[i] for i in n.inserted_window_dims)
        and not any(updates[k] for k in batch_of_updates if k not in {k for *_, k in along})
        and not any(names for j, names in enumerate(indices) if j not in n.scatter_indices_batching_dims)
    )
    if not fits:
        raise ShardingTypeError(
            "Use `.at[...].set/add/mul/...(out_sharding=)` to provide output PartitionSpec for the scatter update as "
            "out sharding could not be resolved unambiguously (or would require collectives on inputs). Got "
            f"operand={s.types[0]!r}, indices={s.types[1]!r}, updates={s.types[2]!r}"
        )
    return by_factors(shape_rules.scatter)(s)
