"""Blocks: describes which part of a whole array this rank's value is."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.sharding.cuts import Cut, Cuts, Span, count, even_cut, part_number
from mpijax.core.sharding.shardings import NamedSharding
from mpijax.core.sharding.spec import PartitionSpec


@dataclass(frozen=True)
class Blocks:
    """A whole array of `shape`, cut over a mesh: one block for each process, which its devices share."""

    mesh: Any
    shape: tuple[int, ...]
    cuts: Cuts

    @cached_property
    def place(self) -> Mapping[Any, int]:
        return place_in(self.mesh)

    @property
    def is_whole(self) -> bool:
        return not any(c is not None for c in self.cuts)

    @property
    def is_even(self) -> bool:
        """Whether a `NamedSharding` can describe these blocks."""
        return all(map(self._is_even_along, range(len(self.shape))))

    def _is_even_along(self, dim: int) -> bool:
        n, c = self.shape[dim], self.cuts[dim]
        return c is None or (
            n % c.parts == 0 and c.axes == self.mesh.process_axes(c.axes) and c == self.even(dim, c.axes)
        )

    def evened(self, exactly: bool) -> Blocks:
        """The same array over the same mesh axes, in blocks of `ceil(size / parts)`.

        exactly: leave the last mesh axes out until the parts divide the size.
        """

        def even(dim: int, cut: Cut | None) -> Cut | None:
            axes = () if cut is None else self.mesh.process_axes(cut.axes)
            while exactly and self.shape[dim] % count(axes, self.mesh.processes_along):
                axes = axes[:-1]
            return self.even(dim, axes) if axes else None

        return self.recut(tuple(map(even, range(len(self.shape)), self.cuts)))

    def even(self, dim: int, axes: tuple[Any, ...]) -> Cut:
        return even_cut(self.shape[dim], axes, count(axes, self.mesh.processes_along))

    def span(self, cut: Cut) -> Span:
        """This rank's range along an axis."""
        return cut.part(part_number(cut.axes, self.mesh.processes_along, self.place))

    @property
    def local_shape(self) -> tuple[int, ...]:
        """The shape of this rank's part."""
        spans = [(0, n) if c is None else self.span(c) for n, c in zip(self.shape, self.cuts, strict=True)]
        return tuple(high - low for low, high in spans)

    def recut(self, cuts: Cuts) -> Blocks:
        """The same array with other cuts."""
        return Blocks(self.mesh, self.shape, cuts)

    @property
    def sharding(self) -> NamedSharding:
        """The `NamedSharding` over the same mesh axes; it describes these blocks exactly if they are even."""
        return sharding_over(self.mesh, tuple(() if c is None else c.axes for c in self.cuts))


def place_in(mesh: Any) -> Mapping[Any, int]:
    """This rank's coordinate along each mesh axis."""
    return dict(zip(mesh.axis_names, mesh.place, strict=True))


@lru_cache(maxsize=4096)
def sharding_over(mesh: Any, axes: tuple[tuple[Any, ...], ...]) -> NamedSharding:
    """A sharding over the given mesh axes. Without Explicit axes, the spec ends at the last split array axis."""
    parts = list(axes)
    while parts and not parts[-1] and not mesh.is_explicit:
        parts.pop()
    return NamedSharding(mesh, PartitionSpec(*parts))


def split_of(sharding: Any, ndim: int) -> tuple[tuple[Any, ...], ...]:
    """The mesh axes that split each array axis, without mesh axes of size 1."""
    sizes = sharding.mesh.shape
    return tuple(tuple(a for a in axes if sizes[a] > 1) for axes in sharding.spec.split(ndim))


def blocks_by(sharding: Any, shape: tuple[int, ...]) -> Blocks:
    """The blocks of a whole array in a sharding; axes that do not divide get blocks of `ceil(size / parts)`."""
    sizes = sharding.mesh.processes_along
    cuts = [
        even_cut(n, axes, count(axes, sizes)) if axes else None
        for n, axes in zip(shape, map(sharding.process_axes, range(len(shape))), strict=True)
    ]
    return Blocks(sharding.mesh, tuple(shape), tuple(cuts))


def whole_shape(sharding: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the whole array whose shard on this rank has `shape`."""
    return tuple(n * parts for n, parts in zip(shape, sharding.process_parts(len(shape)), strict=True))

