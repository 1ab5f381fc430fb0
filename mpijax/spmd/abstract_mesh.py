"""Meshes without devices: names, sizes and kinds of axes."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, NoReturn

from mpijax.core.trace import state
from mpijax.spmd.mesh import AxisType, Mesh, NamedSharding, PartitionSpec, current_mesh


class AbstractMesh:
    """Named axes and their sizes.

    Args:
      axis_sizes, axis_names: of equal length.
      axis_types: an `AxisType` for each axis, or one for all (Auto).

    >>> mpijax.sharding.AbstractMesh((4, 2), ("x", "y")).axis_sizes
    (4, 2)
    """

    def __init__(
        self,
        axis_sizes: Sequence[int],
        axis_names: Sequence[Any],
        axis_types: AxisType | Sequence[AxisType] | None = None,
    ):
        self.axis_sizes, self.axis_names = tuple(axis_sizes), tuple(axis_names)
        if len(self.axis_sizes) != len(self.axis_names):
            raise ValueError(
                f"AbstractMesh: one size for each name, got axis_sizes={self.axis_sizes}, axis_names={self.axis_names}"
            )
        kinds = AxisType.Auto if axis_types is None else axis_types
        self.axis_types = tuple(kinds) if isinstance(kinds, (tuple, list)) else (kinds,) * len(self.axis_names)

    size = property(lambda self: math.prod(self.axis_sizes) if self.axis_sizes else 0)
    is_local = False
    empty = property(lambda self: self.size == 0)
    shape_tuple = property(lambda self: tuple(zip(self.axis_names, self.axis_sizes, strict=True)))
    shape = property(lambda self: OrderedDict(self.shape_tuple))
    abstract_mesh = property(lambda self: self)
    auto_axes = property(lambda self: self._axes_of(AxisType.Auto))
    explicit_axes = property(lambda self: self._axes_of(AxisType.Explicit))
    manual_axes = property(lambda self: self._axes_of(AxisType.Manual))
    are_all_axes_auto = property(lambda self: self._are_all(AxisType.Auto))
    are_all_axes_explicit = property(lambda self: self._are_all(AxisType.Explicit))
    are_all_axes_manual = property(lambda self: self._are_all(AxisType.Manual))

    def _axes_of(self, kind: AxisType) -> tuple[Any, ...]:
        return tuple(n for n, k in zip(self.axis_names, self.axis_types, strict=True) if k is kind)

    def _are_all(self, kind: AxisType) -> bool:
        return bool(self.axis_types) and all(k is kind for k in self.axis_types)

    def update(self, axis_sizes=None, axis_names=None, axis_types=None) -> AbstractMesh:
        """A copy with changes."""
        return AbstractMesh(
            self.axis_sizes if axis_sizes is None else axis_sizes,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
        )

    @property
    def devices(self) -> NoReturn:
        raise ValueError("AbstractMesh does not implement devices: it has names and sizes of axes only. Use a Mesh.")

    def _key(self) -> tuple:
        return self.axis_sizes, self.axis_names, self.axis_types

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbstractMesh) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        axes = ", ".join(f"'{n}': {s}" for n, s in self.shape_tuple) or "()"
        return f"AbstractMesh({axes}, axis_types={self.axis_types})"


@cache
def unsplit(mesh: AbstractMesh, ndim: int) -> NamedSharding:
    """The layout over a mesh of an array of which no axis is split."""
    return NamedSharding(mesh, PartitionSpec(*[None] * ndim))


@lru_cache(maxsize=256)
def in_body(mesh: AbstractMesh, manual: frozenset) -> AbstractMesh:
    """`mesh` in the body of `shard_map`s over the axes `manual`."""
    kinds = zip(mesh.axis_names, mesh.axis_types, strict=True)
    return mesh.update(axis_types=[AxisType.Manual if n in manual else kind for n, kind in kinds])


def get_abstract_mesh() -> AbstractMesh:
    """The mesh of the enclosing `shard_map`, or that of `set_mesh`, without its devices; one without axes if none.

    In the body of a `shard_map` the axes it maps are of type Manual.

    >>> with mpijax.set_mesh(mpijax.make_mesh((1,), ("x",))):
    ...     mpijax.sharding.get_abstract_mesh().axis_names
    ('x',)
    """
    if state.body is not None:
        mesh, manual = state.body
        return in_body(mesh.abstract_mesh, manual)
    mesh = current_mesh()
    return AbstractMesh((), ()) if mesh is None else mesh.abstract_mesh


def context_mesh() -> Mesh | None:
    """The mesh that a PartitionSpec is about: that of the enclosing `shard_map`, or else of `set_mesh`."""
    return current_mesh() if state.body is None else state.body[0]
