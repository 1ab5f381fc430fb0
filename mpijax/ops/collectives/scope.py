"""Shared parts of collectives: names in scope, groups along an axis, varying axes in types, splitting of batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.core.base import config
from mpijax.core.base.state import state
from mpijax.core.rules.registry import registry
from mpijax.core.rules.sum_types import kind_over, reduced_axes, unreduced_axes, with_sums
from mpijax.core.tracing.trace import axis_size as named_axis_size
from mpijax.core.types import effects as fx
from mpijax.core.types.avals import NO_AXES, ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.transforms.batching import batch_at
from mpijax.transforms.zeros import Zero

Groups = tuple[tuple[int, ...], ...]


def names_of(axis_name) -> tuple:
    """One or several names as a tuple."""
    return tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)


def check_bound(names, caller: str = "the function") -> None:
    """Raise NameError for a name that is not in scope, on behalf of `caller`; ints are array axes."""
    for n in names:
        if not isinstance(n, int):
            named_axis_size(n, caller)


def groups_of(groups, names, *, equal: bool) -> Groups | None:
    """`axis_index_groups` as tuples that contain every position once. equal: all groups must have the same size."""
    if groups is None:
        return None
    if any(isinstance(n, int) for n in names):
        raise ValueError(f"axis_index_groups only supported over named axes, got axes {names}")
    found: Groups = tuple(tuple(int(i) for i in g) for g in groups)
    size = named_axis_size(names)
    if sorted(i for g in found for i in g) != list(range(size)):
        raise ValueError(
            f"axis_index_groups must cover all indices exactly once: 0 to {size - 1} for axis {_show(names)} of size "
            f"{size}, got {found}"
        )
    if equal and len({len(g) for g in found}) > 1:
        raise ValueError(f"axis_index_groups must all be the same size here, got {found}")
    return found


def _show(names) -> str:
    return repr(names[0] if len(names) == 1 else names)


def group_size(names, groups: Groups | None) -> int:
    """The number of shards in one exchange."""
    return named_axis_size(names) if groups is None else len(groups[0])


def effects(key: str) -> Callable:
    """Effects of communication over the names in parameter `key`; array axes have none."""

    def rule(params):
        names = [n for n in names_of(params[key]) if not isinstance(n, int)]
        return frozenset([fx.communication, *(fx.NamedAxisEffect(n) for n in names)]) if names else fx.no_effects

    return rule


# ---------------------------------------------------------------- varying axes in types


def varying(x: Any, names) -> Any:
    """`x` typed as varying over those of `names` that are mesh axes, unless `jax_auto_pcast` is off."""
    if not config.values.jax_auto_pcast:
        return x
    vma = typeof(x).vma
    missing = tuple(n for n in names if n in state.manual_axes and n not in vma)
    return registry["pvary"].bind(x, axes=missing) if missing else x


def vma_without(key: str) -> Callable:
    """The result is the same along the axes communicated over, unless groups along them differ."""

    def rule(avals, params):
        vma = avals[0].vma
        return vma if params.get("axis_index_groups") is not None else vma - set(names_of(params[key]))

    return rule


def vma_with(key: str) -> Callable:
    """The result varies along the axes communicated over."""

    def rule(avals, params):
        mesh_axes = frozenset(n for n in names_of(params[key]) if n in state.manual_axes)
        return (avals[0].vma if avals else frozenset()) | mesh_axes

    return rule


def converted(x: ShapedArray, names, start: str, end: str, name: str) -> ShapedArray:
    """The type `x`, which must be `start` over named axes, as `end` over them. `vma` is set elsewhere.

    Raises ValueError if it is something else. Does nothing where types are not tracked (`check_vma=False`).
    """
    over = frozenset(names)
    if not over <= state.manual_axes:
        return x
    found = kind_over(x, names, name)
    if found != start:
        raise ValueError(
            f"{name.removesuffix('_p')} is a {start.capitalize()}->{end.capitalize()} collective: it only accepts "
            f"inputs that are {start} over axes={tuple(names)}. Got {x.str_short(True)}, which is {found} there."
        )
    gone = {"unreduced": NO_AXES, "reduced": NO_AXES, start: over}
    new = {"unreduced": NO_AXES, "reduced": NO_AXES, end: over}
    unreduced = (unreduced_axes(x) - gone["unreduced"]) | new["unreduced"]
    return with_sums(x, unreduced, (reduced_axes(x) - gone["reduced"]) | new["reduced"])


def vma_of(param: str, start: str, end: str) -> Callable:
    """The rule for varying axes of a conversion from `start` to `end`."""

    def rule(avals, params):
        names = frozenset(params[param]) & state.manual_axes
        found = avals[0].vma - names if start == "varying" else avals[0].vma
        return found | names if end == "varying" else found

    return rule


# ---------------------------------------------------------------- rules


def same_type(x, **_):
    return x


def check_exchange(x: Any, axis: int, names, groups: Groups | None, size: int | None = None) -> int:
    """The number of shards in an exchange along array axis `axis` of x.

    Raises ValueError for an axis that x does not have, for groups that do not contain each position once or differ in
    size, and if the number is not `size`.
    """
    found = group_size(names_of(names), groups)
    whole = named_axis_size(names_of(names))
    if groups is not None and (
        sorted(i for g in groups for i in g) != list(range(whole)) or len({len(g) for g in groups}) != 1
    ):
        raise ValueError(f"axis_index_groups {groups} of an axis of size {whole}")
    if not -x.ndim <= axis < x.ndim:
        has = f"{x.str_short(True)} has {x.ndim} axes"
        raise ValueError(f"An exchange over {names_of(names)} needs array axis {axis}, but {has}")
    if size not in (None, found):
        raise ValueError(f"An exchange over {names_of(names)} has {found} shards, but axis_size={size}")
    return found


def linear_jvp(name: str) -> Callable:
    """For linear operations: the tangent is the operation applied to the tangent."""

    def jvp(primals, tangents, **params):
        primitive = registry[name]
        [x], [t] = primals, tangents
        out = primitive.bind(x, **params)
        return out, Zero.of_primal(out) if type(t) is Zero else primitive.bind(t, **params)

    return jvp


def around(names, name) -> tuple[tuple, tuple]:
    """The names before and behind the name of a batch axis. Positions are row-major over all names."""
    k = names.index(name)
    return tuple(names[:k]), tuple(names[k + 1 :])


def batched(axis, x, d, target: int = 0):
    """`x` with its batch axis at `target`; repeated if it has none."""
    return batch_at(x, d, target, axis)


def reshape(x, shape):
    shape = tuple(shape)
    if typeof(x).shape == shape:
        return x
    return registry["reshape"].bind(x, new_sizes=shape, dimensions=None, sharding=None)


def divided(x, axis: int, sizes):
    """Splits axis `axis` into several; the last one takes the remaining size."""
    shape = typeof(x).shape
    rest = shape[axis] // math.prod(sizes)
    return reshape(x, (*shape[:axis], *sizes, rest, *shape[axis + 1 :]))


def merge_axes(x, axis: int, count: int):
    """Merges `count` axes from `axis` on into one."""
    shape = typeof(x).shape
    return reshape(x, (*shape[:axis], math.prod(shape[axis : axis + count]), *shape[axis + count :]))


def row(x, i: int, keep: bool = False):
    """Element `i` along the first axis."""
    shape = typeof(x).shape
    zeros = (0,) * (len(shape) - 1)
    out = registry["slice"].bind(
        x, start_indices=(i, *zeros), limit_indices=(i + 1, *shape[1:]), strides=None
    )
    return out if keep else reshape(out, shape[1:])


def rows(x, order):
    """The elements of the first axis in the given order."""
    order = list(order)
    if order == list(range(typeof(x).shape[0])):
        return x
    return registry["concatenate"].bind(*(row(x, i, keep=True) for i in order), dimension=0)


def over_groups(axis, x, d, groups: Groups, rule: Callable):
    """A collective over groups of a batch: `rule(axis of the group, its elements first) -> (result, dim)`."""
    x = batched(axis, x, d)
    parts = []
    for g in groups:
        inner = type(axis)(axis.name, len(g))
        out, dim = rule(inner, rows(x, g))
        parts.append(batched(inner, out, dim))
    together = parts[0] if len(parts) == 1 else registry["concatenate"].bind(*parts, dimension=0)
    members = [i for g in groups for i in g]
    return rows(together, np.argsort(members).tolist()), 0
