"""Defines `Cut`: how one array axis is divided among ranks. Blocks may differ in size."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

Span = tuple[int, int]


class Cut:
    """An array axis divided over mesh axes.

    axes: the mesh axes. Parts are numbered in their row-major order.
    lows, highs: part `k` has the positions `[lows[k], highs[k])`. The parts of a value follow each other without gaps
      or overlaps. The parts that an operation needs of an operand may overlap (halos) or leave positions out.

    Methods handle all parts at once with NumPy, so planning a program for a thousand ranks is as fast as for four.
    """

    def __init__(self, axes: tuple[Any, ...], spans: Iterable[Span]):
        bounds = np.array([*spans], np.int64).reshape(-1, 2)
        self._set(axes, bounds[:, 0], bounds[:, 1])

    @classmethod
    def between(cls, axes: tuple[Any, ...], lows: np.ndarray, highs: np.ndarray) -> Cut:
        """The cut with these bounds."""
        cut = cls.__new__(cls)
        cut._set(axes, lows, highs)
        return cut

    def _set(self, axes: tuple[Any, ...], lows: np.ndarray, highs: np.ndarray) -> None:
        self.axes = axes
        self.lows, self.highs = lows, highs

    @cached_property
    def _bounds(self) -> tuple[bytes, bytes]:
        return self.lows.tobytes(), self.highs.tobytes()

    @cached_property
    def _hash(self) -> int:
        return hash((self.axes, self._bounds))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Cut) and self.axes == other.axes and self._bounds == other._bounds

    def __repr__(self) -> str:
        return f"Cut(axes={self.axes}, spans={self.spans})"

    @property
    def parts(self) -> int:
        return len(self.lows)

    def part(self, number: int) -> Span:
        """The positions of one part."""
        return int(self.lows[number]), int(self.highs[number])

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """The positions of all parts."""
        return tuple(zip(self.lows.tolist(), self.highs.tolist(), strict=True))

    @cached_property
    def lengths(self) -> np.ndarray:
        """How many positions each part has."""
        return self.highs - self.lows

    @cached_property
    def size(self) -> int:
        """The end of the last part: the length of the axis, if this is the cut of a value."""
        return int(self.highs[-1])

    @cached_property
    def widest(self) -> int:
        """The length of the longest part."""
        return int(self.lengths.max())

    @cached_property
    def narrowest(self) -> int:
        """The length of the shortest part."""
        return int(self.lengths.min())

    @property
    def is_even(self) -> bool:
        """Whether all parts are equally long."""
        return self.narrowest == self.widest

    @property
    def has_empty_parts(self) -> bool:
        return bool((self.lengths == 0).any())

    @cached_property
    def follows(self) -> bool:
        """Whether the parts follow each other from 0 on without gap or overlap."""
        return bool(self.lows[0] == 0 and (self.lows[1:] == self.highs[:-1]).all())

    def scaled(self, by: int) -> Cut:
        """The cut of an axis in which each element has become `by` elements."""
        return self.mapped(lambda at: at * by)

    def moved(self, spans: Iterable[Span]) -> Cut:
        """A cut over the same mesh axes with other spans."""
        return Cut(self.axes, spans)

    def mapped(self, position: Callable[[np.ndarray], np.ndarray]) -> Cut:
        """The cut whose bounds are a function of these bounds. The function receives arrays of all bounds."""
        return Cut.between(self.axes, position(self.lows), position(self.highs))

    @cached_property
    def runs(self) -> list[tuple[Span, int]]:
        """Groups of parts. Each group is one slice, and stays one slice if every part is padded to the widest length.

        Returns the positions of each group, and where the padded group begins. Only the first group may be empty.
        """
        before, after = self.lengths[:-1], self.lengths[1:]
        begins = (after > 0) & ((before < self.widest) | (self.lows[1:] != self.highs[:-1]))
        firsts = [0, *(np.flatnonzero(begins) + 1).tolist(), self.parts]
        found = []
        for first, end in itertools.pairwise(firsts):
            low, length = int(self.lows[first]), int(self.lengths[first:end].sum())
            found.append(((low, low + length), first * self.widest))
        return found


class WindowCut(Cut):
    """Positions that are read, as one of the parts of an axis. The parts are no shares of work: none is made equal."""


# The cut of each array axis; None for an axis that every rank has whole.
Cuts = tuple[Cut | None, ...]


@lru_cache(maxsize=4096)
def even_cut(size: int, axes: tuple[Any, ...], parts: int) -> Cut:
    """Blocks of `ceil(size / parts)`; if that does not divide `size`, the last blocks are shorter or empty."""
    borders = np.minimum(np.arange(parts + 1) * -(-size // parts), size)
    return Cut.between(axes, borders[:-1], borders[1:])


def count(axes: Iterable[Any], sizes: Mapping[Any, int]) -> int:
    """The number of parts into which mesh axes divide an array axis."""
    return math.prod(sizes[a] for a in axes)


def uncut(shape: Sequence[int]) -> Cuts:
    """The cuts of a value that every rank has whole."""
    return (None,) * len(shape)


def without(cuts: Cuts, dims: Iterable[int]) -> Cuts:
    """The same cuts, but with some array axes whole."""
    gone = set(dims)
    return tuple(None if d in gone else c for d, c in enumerate(cuts))


def dropped(cuts: Cuts, dims: Iterable[int]) -> Cuts:
    """The cuts without some of the array axes."""
    gone = set(dims)
    return tuple(c for d, c in enumerate(cuts) if d not in gone)


def mesh_axes(cuts: Cuts) -> tuple[Any, ...]:
    """The mesh axes that a value is divided over."""
    return tuple(a for c in cuts if c is not None for a in c.axes)


def part_number(axes: Iterable[Any], sizes: Mapping[Any, int], place: Mapping[Any, int]) -> int:
    """The number of the part of the rank at `place` (its coordinate along each mesh axis)."""
    number = 0
    for a in axes:
        number = number * sizes[a] + place[a]
    return number


def middle(cuts: Sequence[Cut]) -> Cut:
    """One cut halfway between several cuts over the same mesh axes.

    The values of a stencil (`u[2:]`, `u[:-2]`, `u[1:-1]`) then each need the narrowest halo. Halves are rounded towards
    the first cut.
    """
    first = cuts[0]
    if all(c == first for c in cuts):
        return first
    lows = np.array([c.lows for c in cuts])
    twice = lows.min(0) + lows.max(0)
    starts = (twice + (2 * lows[0] > twice)) // 2
    return Cut.between(first.axes, starts, np.append(starts[1:], first.size))
