"""How one array axis is divided among ranks: `Cut`. Blocks need not be of equal size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

Span = tuple[int, int]


@dataclass(frozen=True)
class Cut:
    """An array axis divided over mesh axes.

    axes: the mesh axes; parts are numbered in their row-major order.
    spans: for each part the positions `[low, high)` it has. Those of a value follow each other without gap or overlap;
      those that an operation needs of an operand may overlap (halos) or leave some out.
    """

    axes: tuple[Any, ...]
    spans: tuple[Span, ...]

    @property
    def parts(self) -> int:
        return len(self.spans)

    @property
    def widest(self) -> int:
        """The length of the longest part."""
        return max(high - low for low, high in self.spans)

    @property
    def is_even(self) -> bool:
        """Whether all parts are equally long."""
        return len({high - low for low, high in self.spans}) == 1

    @property
    def has_empty_parts(self) -> bool:
        return any(high == low for low, high in self.spans)

    def scaled(self, by: int) -> Cut:
        """The same cut of an axis each of whose elements has become `by` elements."""
        return Cut(self.axes, tuple((low * by, high * by) for low, high in self.spans))

    def moved(self, spans: Iterable[Span]) -> Cut:
        """Other spans over the same mesh axes."""
        return Cut(self.axes, tuple(spans))


# For each array axis its cut; None where every rank has all of it.
Cuts = tuple[Cut | None, ...]


@lru_cache(maxsize=4096)
def even_cut(size: int, axes: tuple[Any, ...], parts: int) -> Cut:
    """Blocks of equal size; of `ceil(size / parts)` where that does not divide, the last ones shorter or empty."""
    block = -(-size // parts)
    return Cut(axes, tuple((min(k * block, size), min((k + 1) * block, size)) for k in range(parts)))


def count(axes: Iterable[Any], sizes: Mapping[Any, int]) -> int:
    """Into how many parts mesh axes divide an array axis."""
    return math.prod(sizes[a] for a in axes)


def uncut(shape: Sequence[int]) -> Cuts:
    """Those of a value that every rank has whole."""
    return (None,) * len(shape)


def without(cuts: Cuts, dims: Iterable[int]) -> Cuts:
    """The same with some array axes whole."""
    gone = set(dims)
    return tuple(None if d in gone else c for d, c in enumerate(cuts))


def dropped(cuts: Cuts, dims: Iterable[int]) -> Cuts:
    """Those of a value without some of the array axes."""
    gone = set(dims)
    return tuple(c for d, c in enumerate(cuts) if d not in gone)


def mesh_axes(cuts: Cuts) -> tuple[Any, ...]:
    """The mesh axes that a value is divided over."""
    return tuple(a for c in cuts if c is not None for a in c.axes)


def part_number(axes: Iterable[Any], sizes: Mapping[Any, int], place: Mapping[Any, int]) -> int:
    """Which part the rank at `place` (its coordinate along each mesh axis) has."""
    number = 0
    for a in axes:
        number = number * sizes[a] + place[a]
    return number


def middle(cuts: Sequence[Cut]) -> Cut:
    """One cut for values that are cut over the same mesh axes at different positions: in the middle between them.

    The values of a stencil (`u[2:]`, `u[:-2]`, `u[1:-1]`) then each need the narrowest halo. Halves are rounded towards
    the first cut.
    """
    first = cuts[0]
    if all(c == first for c in cuts):
        return first
    lows = [[c.spans[k][0] for c in cuts] for k in range(first.parts)]
    twice = [min(at) + max(at) for at in lows]
    starts = [(t + (2 * at[0] > t)) // 2 for t, at in zip(twice, lows, strict=True)]
    return first.moved(zip(starts, [*starts[1:], first.spans[-1][1]], strict=True))
