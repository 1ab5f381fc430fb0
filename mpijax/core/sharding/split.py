"""Over which Explicit mesh axes a value is split: the part of its type that JAX calls its sharding."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from mpijax.core.lazy_dataclass import dataclass

# For each array axis the mesh axes it is split over.
Axes = tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Split:
    """Over which Explicit axes of a mesh a value's axes are split.

    mesh: with the types of its axes, without devices.
    axes: for each array axis the mesh axes, all of type Explicit; at least one is split, or the other fields say more.
    unreduced: mesh axes over which the value is a sum that is yet to be taken. reduced: those over which its cotangent
        is such a sum.
    """

    mesh: Any
    axes: Axes
    unreduced: frozenset = frozenset()
    reduced: frozenset = frozenset()

    @property
    def is_trivial(self) -> bool:
        """Whether it says nothing."""
        return not (any(self.axes) or self.unreduced or self.reduced)

    def parts(self, axis: int) -> int:
        """Into how many parts an array axis is cut."""
        return parts(self.mesh, self.axes[axis])

    def of_axis(self, axis: int) -> Split | None:
        """That of values with one array axis, split as an axis of this one is."""
        return normal(Split(self.mesh, (self.axes[axis],)))

    def without(self, axis: int) -> Split | None:
        """That of a value without one of the array axes."""
        return normal(replace(self, axes=self.axes[:axis] + self.axes[axis + 1 :]))

    def with_axis(self, axis: int, names: tuple[Any, ...] = ()) -> Split:
        """Returns this sharding with one axis inserted, split over `names`."""
        return replace(self, axes=(*self.axes[:axis], names, *self.axes[axis:]))

    def cotangent(self) -> Split:
        """That of cotangents."""
        return replace(self, unreduced=self.reduced, reduced=self.unreduced)


def normal(split: Split | None) -> Split | None:
    """`split`, or None where it says nothing: types have one way to say so."""
    return None if split is None or split.is_trivial else split


def parts(mesh: Any, names: tuple[Any, ...]) -> int:
    """Into how many parts an axis that is split over mesh axes is cut."""
    return math.prod(mesh.shape[a] for a in names)


def entry(names: tuple[Any, ...]) -> Any:
    """Mesh axes as an entry of a PartitionSpec: None for none, and one by itself."""
    return names if len(names) > 1 else names[0] if names else None


def entries(axes: Axes) -> tuple[Any, ...]:
    """The entries of a PartitionSpec."""
    return tuple(map(entry, axes))


def dimensions(shape: tuple[int, ...], axes: Axes) -> str:
    """``8@X,2``, the way types print."""
    return ",".join(f"{n}{_suffix(names)}" for n, names in zip(shape, axes, strict=True))


def _suffix(names: tuple[Any, ...]) -> str:
    if len(names) < 2:
        return f"@{names[0]}" if names else ""
    return f"@({','.join(map(str, names))})"


def of_sharding(sharding: Any, ndim: int) -> Split | None:
    """What a layout says of the type of a value with `ndim` axes: which of them are split over Explicit axes."""
    mesh = getattr(sharding, "mesh", None)
    if mesh is None or not mesh.is_explicit:
        return None
    mesh = mesh.abstract_mesh
    explicit = frozenset(mesh.explicit_axes)
    spec = sharding.spec
    axes = tuple(tuple(a for a in names if a in explicit) for names in spec.split(ndim))
    return normal(Split(mesh, axes, spec.unreduced & explicit, spec.reduced & explicit))
