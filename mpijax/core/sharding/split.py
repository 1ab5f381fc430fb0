"""Defines `Split`: the Explicit mesh axes that split a value. JAX calls this part of the type its sharding."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from mpijax.core.base.lazy_dataclass import dataclass

# The mesh axes that split each array axis.
Axes = tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Split:
    """The Explicit mesh axes that split a value's axes.

    mesh: the mesh without devices, with its axis types.
    axes: for each array axis the Explicit mesh axes that split it. At least one field is not empty.
    unreduced: mesh axes over which a sum of the value is pending. reduced: mesh axes over which a sum of its cotangent
        is pending.
    """

    mesh: Any
    axes: Axes
    unreduced: frozenset = frozenset()
    reduced: frozenset = frozenset()

    @property
    def is_trivial(self) -> bool:
        """Whether no axis is split, unreduced or reduced."""
        return not (any(self.axes) or self.unreduced or self.reduced)

    def parts(self, axis: int) -> int:
        """The number of parts of an array axis."""
        return parts(self.mesh, self.axes[axis])

    def of_axis(self, axis: int) -> Split | None:
        """The split of a value with one array axis, split like `axis` of this one."""
        return normal(Split(self.mesh, (self.axes[axis],)))

    def without(self, axis: int) -> Split | None:
        """The split of a value with one array axis removed."""
        return normal(replace(self, axes=self.axes[:axis] + self.axes[axis + 1 :]))

    def with_axis(self, axis: int, names: tuple[Any, ...] = ()) -> Split:
        """This split with one axis inserted, split over `names`."""
        return replace(self, axes=(*self.axes[:axis], names, *self.axes[axis:]))

    @property
    def outside(self) -> Split:
        """This split without unreduced and reduced axes that the enclosing `shard_map` maps: these are no sharding."""
        manual = frozenset(self.mesh.manual_axes)
        return replace(self, unreduced=self.unreduced - manual, reduced=self.reduced - manual)

    @property
    def pending(self) -> tuple[Any, ...]:
        """The mesh axes over which a sum is pending outside of `shard_map` bodies, in the order of the mesh."""
        if not self.unreduced:
            return ()
        manual = self.mesh.manual_axes
        return tuple(a for a in self.mesh.axis_names if a in self.unreduced and a not in manual)

    def of_summands(self) -> Split:
        """The split of the array of summands: one more axis in front for each pending mesh axis, split over it."""
        kept, manual = frozenset(self.pending), frozenset(self.mesh.manual_axes)
        axes = (*((a,) for a in self.pending), *self.axes)
        return Split(self.mesh, axes, self.unreduced - kept, self.reduced & manual)

    def cotangent(self) -> Split:
        """The split of cotangents."""
        return replace(self, unreduced=self.reduced, reduced=self.unreduced)


def normal(split: Split | None) -> Split | None:
    """`split`, or None if it is trivial, so that equal types have one representation."""
    return None if split is None or split.is_trivial else split


def parts(mesh: Any, names: tuple[Any, ...]) -> int:
    """The number of parts of an axis that these mesh axes split."""
    return math.prod(mesh.shape[a] for a in names)


def entry(names: tuple[Any, ...]) -> Any:
    """Mesh axes as an entry of a PartitionSpec: None for no axis, the name itself for one axis."""
    return names if len(names) > 1 else names[0] if names else None


def entries(axes: Axes) -> tuple[Any, ...]:
    """The entries of a PartitionSpec."""
    return tuple(map(entry, axes))


def dimensions(shape: tuple[int, ...], axes: Axes) -> str:
    """``8@X,2``, as types print it."""
    return ",".join(f"{n}{_suffix(names)}" for n, names in zip(shape, axes, strict=True))


def _suffix(names: tuple[Any, ...]) -> str:
    if len(names) < 2:
        return f"@{names[0]}" if names else ""
    return f"@({','.join(map(str, names))})"
