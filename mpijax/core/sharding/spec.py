"""Defines `PartitionSpec`: the mesh axes, by name, that split each array axis."""

from __future__ import annotations

import enum
from typing import Any

from mpijax.core.sharding.split import entry


class _Unconstrained:
    """A PartitionSpec entry for an array axis that may stay split over any mesh axes."""

    def __repr__(self) -> str:
        return "UNCONSTRAINED"

    def __reduce__(self) -> str:
        return "UNCONSTRAINED"


UNCONSTRAINED = _Unconstrained()


class UnreducedKind(enum.Enum):
    """How values over `unreduced` mesh axes are combined. mpijax supports sums.

    >>> mpijax.P(unreduced={"x"}).unreduced_kind
    <UnreducedKind.sum: 1>
    """

    sum = enum.auto()
    max = enum.auto()
    min = enum.auto()


class PartitionSpec:
    """For each array axis, the mesh axis or axes that split it, or None.

    unreduced: the mesh axes over which a sum of the value is pending. reduced: the mesh axes over which a sum of its
    cotangent is pending. Both need axes of type Explicit.

    >>> mpijax.P("x", None, ("y", "z"))
    P('x', None, ('y', 'z'))
    """

    __slots__ = ("_parts", "unreduced", "reduced")
    UNCONSTRAINED = UNCONSTRAINED

    unreduced: frozenset
    reduced: frozenset

    def __init__(
        self,
        *parts: Any,
        unreduced: Any = frozenset(),
        reduced: Any = frozenset(),
        unreduced_kind: UnreducedKind | None = None,
    ) -> None:
        for p in parts:
            if not (p is None or isinstance(p, (str, tuple, list)) or hasattr(p, "__hash__")):
                raise TypeError(f"PartitionSpec entries are None, axis names or tuples of them; got {p!r}")
        self._parts = tuple(map(_canonical, parts))
        for name, axes in (("unreduced", unreduced), ("reduced", reduced)):
            if not isinstance(axes, (set, frozenset)):
                raise TypeError(
                    f"{name} argument of PartitionSpec should be of type `frozenset` or `set`. Got type {axes!r}"
                )
            setattr(self, name, frozenset(axes))
        if unreduced or reduced:
            self._check_sums()
        if unreduced_kind is not None:
            self._check_kind(unreduced_kind)

    def _check_kind(self, kind: Any) -> None:
        if not isinstance(kind, UnreducedKind):
            raise TypeError(f"Expected unreduced_kind to be of type `jax.sharding.UnreducedKind` but got {type(kind)}")
        if not self.unreduced:
            raise ValueError(f"`unreduced_kind` should be `None` when `unreduced` is an empty set. Got {kind}")
        if kind is not UnreducedKind.sum:
            raise NotImplementedError(
                f"mpijax does not support unreduced_kind={kind}: values over unreduced axes are sums. Compute the "
                "maximum or minimum directly, with jax.lax.pmax, jax.lax.pmin, jnp.max or jnp.min."
            )

    @property
    def unreduced_kind(self) -> UnreducedKind | None:
        """How values over `unreduced` axes are combined: by sum; None if there are no such axes."""
        return UnreducedKind.sum if self.unreduced else None

    def __init_subclass__(cls, *args: Any, **kwargs: Any) -> None:
        raise TypeError("Subclassing `jax.P` is prohibited.")

    def _check_sums(self) -> None:
        """Raise ValueError for a mesh axis that is two of split, unreduced and reduced."""
        both = self.unreduced & self.reduced
        for name, axes in self._sums():
            if None in axes:
                raise ValueError(f"{name} cannot contain None. All elements in {name} should refer to the mesh axes.")
        if both:
            raise ValueError(f"`unreduced` and `reduced` argument to PartitionSpec cannot overlap. Got {self}")
        for name, axes in self._sums():
            if axes & set(self.all_axes()):
                raise ValueError(f"partitions cannot overlap with {name} axes passed to PartitionSpec. Got {self}")

    def _sums(self) -> tuple[tuple[str, frozenset], ...]:
        return ("unreduced", self.unreduced), ("reduced", self.reduced)

    @property
    def partitions(self) -> tuple:
        """The entries of the array axes."""
        return self._parts

    def index(self, part: Any) -> int:
        """The first array axis with that entry. Raises ValueError if there is none."""
        return self._parts.index(_canonical(part))

    def count(self, part: Any) -> int:
        """The number of array axes with that entry."""
        return self._parts.count(_canonical(part))

    def __iter__(self):
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, i):
        return self._parts[i]

    def _key(self) -> tuple:
        return self._parts, self.unreduced, self.reduced

    def __eq__(self, other) -> bool:
        return isinstance(other, PartitionSpec) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(("PartitionSpec", self._parts, self.unreduced, self.reduced))

    def __add__(self, other):
        if not isinstance(other, PartitionSpec):
            self._check_joins(other, "__add__")
            return PartitionSpec(*self, *other)
        unreduced, reduced = self.unreduced | other.unreduced, self.reduced | other.reduced
        return PartitionSpec(*self, *other, unreduced=unreduced, reduced=reduced)

    def __radd__(self, other):
        if not isinstance(other, tuple):
            return NotImplemented
        self._check_joins(other, "__radd__")
        return PartitionSpec(*other, *self)

    def _check_joins(self, other: Any, method: str) -> None:
        """Raise TypeError for adding a tuple to a spec with unreduced or reduced axes: a tuple cannot state these."""
        for name, axes in self._sums():
            if axes:
                raise TypeError(
                    f"other {other} cannot be of instance `tuple` when self {self} has {name} in `{method}` of "
                    "PartitionSpec. Make it a PartitionSpec."
                )

    def __repr__(self) -> str:
        said = [f"{name}={set(axes)!r}" for name, axes in self._sums() if axes]
        if len(self._parts) == 1 and not said:
            return f"P({self._parts[0]!r},)"
        return f"P({', '.join([*map(repr, self._parts), *said])})"

    def __reduce__(self):
        return _spec, self._key()

    def _plain_(self) -> tuple:
        # An axis name is never None, so (None,) can encode UNCONSTRAINED.
        parts = tuple((None,) if p is UNCONSTRAINED else p for p in self._parts)
        return parts, *(tuple(sorted(axes, key=str)) for axes in (self.unreduced, self.reduced))

    @staticmethod
    def _from_plain_(parts, unreduced, reduced) -> PartitionSpec:
        return _spec((UNCONSTRAINED if p == (None,) else p for p in parts), set(unreduced), set(reduced))

    def update(self, partitions: Any = None, unreduced: Any = None, reduced: Any = None) -> PartitionSpec:
        """A copy with changes."""
        return PartitionSpec(
            *(self._parts if partitions is None else partitions),
            unreduced=self.unreduced if unreduced is None else unreduced,
            reduced=self.reduced if reduced is None else reduced,
        )

    def without_trailing_nones(self) -> PartitionSpec:
        """This spec without entries at its end that name no axis."""
        parts = list(self._parts)
        while parts and not parts[-1]:
            parts.pop()
        return self.update(parts)

    def to_ct_spec(self) -> PartitionSpec:
        """The sharding of cotangents: unreduced and reduced axes exchanged."""
        return self.update(unreduced=self.reduced, reduced=self.unreduced) if self.unreduced or self.reduced else self

    @property
    def unconstrained_dims(self) -> frozenset[int]:
        """The array axes that are unconstrained."""
        return frozenset(i for i, p in enumerate(self._parts) if p is UNCONSTRAINED)

    def padded(self, ndim: int) -> PartitionSpec:
        """This spec with an entry for each of `ndim` array axes."""
        return self.update([*self._parts, *[None] * (ndim - len(self._parts))])

    def axes_of(self, dim: int) -> tuple:
        """The mesh axes that split array axis `dim`."""
        if dim >= len(self._parts) or self._parts[dim] is None or self._parts[dim] is UNCONSTRAINED:
            return ()
        part = self._parts[dim]
        return part if isinstance(part, tuple) else (part,)

    def split(self, ndim: int) -> tuple[tuple[Any, ...], ...]:
        """The mesh axes that split each of `ndim` array axes."""
        return tuple(map(self.axes_of, range(ndim)))

    def all_axes(self) -> tuple:
        """Every mesh axis that splits an array axis, in order."""
        return tuple(a for d in range(len(self._parts)) for a in self.axes_of(d))


def _canonical(part: Any) -> Any:
    if not isinstance(part, (tuple, list)):
        return part
    if any(isinstance(axis, tuple) for axis in part):
        raise ValueError(
            "A tuple inside PartitionSpec cannot contain a nested tuple. Instead of something like "
            "`P(None, (('a', 'b'), 'c'))` you should do `P(None, ('a', 'b', 'c'))`"
        )
    return entry(tuple(part))


def _spec(parts, unreduced, reduced) -> PartitionSpec:
    """Constructor for pickle and copy."""
    return PartitionSpec(*parts, unreduced=unreduced, reduced=reduced)
