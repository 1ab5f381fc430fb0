"""From a parsed index to slices.

There are three ways to execute an index, tried in this order: static slices (slice, rev, squeeze, expand_dims), one
`dynamic_slice` if all indices are scalars, and a gather (see `index_gather`), which can do every index.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from mpijax import lax
from mpijax.core.base.config import enable_x64
from mpijax.core.base.errors import InconclusiveDimensionOperation
from mpijax.core.shapes.dimensions import DimExpr, is_longer, max_dim, min_dim, slice_bounds
from mpijax.numpy.creation.constructors import asarray
from mpijax.numpy.indexing.parse import (
    ARRAY,
    BOOL,
    INT,
    NEWAXIS,
    IndexEntry,
    check_slices,
    expand_ellipsis,
)


class AxisChanges(NamedTuple):
    """Changes of axes after slicing: some are reversed, then some dropped, then some inserted."""

    reversed: list[int]
    dropped: list[int]
    new: list[int]

    def insert(self, sliced: int) -> None:
        """Insert an axis after `sliced` axes of the operand."""
        self.new.append(sliced - len(self.dropped) + len(self.new))

    def apply(self, x: Any) -> Any:
        if self.reversed:
            x = lax.rev(x, self.reversed)
        if self.dropped:
            x = lax.squeeze(x, self.dropped)
        return lax.expand_dims(x, self.new) if self.new else x

    def apply_to_numpy(self, x: np.ndarray) -> np.ndarray:
        x = np.flip(x, tuple(self.reversed))
        return np.expand_dims(np.squeeze(x, tuple(self.dropped)), tuple(self.new))


class StaticSlices(NamedTuple):
    """A slice of each axis with known bounds; `strides` is None if all are 1."""

    starts: list[int]
    limits: list[int]
    strides: list[int] | None
    axes: AxisChanges

    def apply(self, x: Any) -> Any:
        """x sliced; a slice of everything costs nothing."""
        if self.strides is not None or any(self.starts) or tuple(self.limits) != x.shape:
            x = lax.slice(x, self.starts, self.limits, self.strides)
        return self.axes.apply(x)


class DynamicSlices(NamedTuple):
    """A slice of each axis, with a known size and a start that may be traced."""

    starts: list[Any]
    sizes: list[int]
    axes: AxisChanges

    def apply(self, x: Any, wrap: bool) -> Any:
        starts = [asarray(s) for s in self.starts]
        if len(starts) > 1:
            # dynamic_slice wants all its starts to have one dtype.
            dtype = index_dtype(x.shape)
            starts = [lax.convert_element_type(s, dtype) for s in starts]
        return self.axes.apply(lax.dynamic_slice(x, starts, self.sizes, allow_negative_indices=wrap))

    def apply_to_numpy(self, x: np.ndarray, wrap: bool) -> np.ndarray:
        bounds = []
        for known, length, size in zip(self.starts, self.sizes, x.shape, strict=True):
            start = int(known)
            start = min(max(start + size if wrap and start < 0 else start, 0), size - length)
            bounds.append(slice(start, start + length))
        return self.axes.apply_to_numpy(x[tuple(bounds)])


def _allows_slices(mode: Any) -> bool:
    """Whether the mode promises indices in bounds, or clips them, as slices do."""
    if mode is None:
        return True
    modes = lax.GatherScatterMode
    return modes.from_any(mode) in (modes.PROMISE_IN_BOUNDS, modes.CLIP)


def _static_int(value: Any, size: Any, wrap: bool, clip: bool) -> Any | None:
    """The position that an integer index means, None if it is out of bounds."""
    position = int(value)
    if wrap and position < 0:
        position += size
    if isinstance(size, DimExpr):
        return position if _surely_inside(position, size) else None
    if size and clip:
        return min(max(position, 0), size - 1)
    return position if 0 <= position < size else None


def _surely_inside(position: Any, size: DimExpr) -> bool:
    try:
        return 0 <= position < size
    except InconclusiveDimensionOperation:
        return False


def static_plan(entries: Sequence[IndexEntry], shape: tuple[int, ...], wrap: bool, mode: Any) -> StaticSlices | None:
    """The plan of an index that is known while tracing; None if it needs another way."""
    if any(e.kind in (ARRAY, BOOL) for e in entries):
        return None
    try:
        if not _allows_slices(mode):
            return None
        check_slices(entries)
        return _static_plan(expand_ellipsis(entries, len(shape)), shape, wrap, mode)
    except (TypeError, ValueError, IndexError):
        # The last way reads the index again and reports its errors.
        return None


def _static_plan(entries: Sequence[IndexEntry], shape: tuple[int, ...], wrap: bool, mode: Any) -> StaticSlices | None:
    clip = mode is not None and lax.GatherScatterMode.from_any(mode) == lax.GatherScatterMode.CLIP
    starts: list[int] = []
    limits: list[int] = []
    strides: list[int] = []
    axes = AxisChanges([], [], [])
    for kind, value, consumed in entries:
        if kind == NEWAXIS:
            axes.insert(len(starts))
            continue
        axis = consumed[0]
        if kind == INT:
            position = _static_int(value, shape[axis], wrap, clip)
            if position is None:
                return None
            start, stop, step = position, position + 1, 1
            axes.dropped.append(axis)
        else:
            start, stop, step = slice_bounds(value, shape[axis])
            if step < 0:
                if step != -1 and any(isinstance(x, DimExpr) for x in (start, stop, step)):
                    return None  # which element is the first is a long expression
                # The same elements in rising order, to be reversed.
                last = start
                start = min_dim(shape[axis], stop + 1 + max_dim(start - stop - 1, 0) % -step)
                stop, step = max_dim(start, last + 1), -step
                axes.reversed.append(axis)
        starts.append(start)
        limits.append(start + max_dim(stop - start, 0))
        strides.append(step)
    return StaticSlices(starts, limits, None if all(s == 1 for s in strides) else strides, axes)


def dynamic_plan(entries: Sequence[IndexEntry], shape: tuple[int, ...], mode: Any) -> DynamicSlices | None:
    """The plan of an index of scalars and slices of step 1 or -1; None if it needs a gather."""
    for kind, value, _ in entries:
        if kind == BOOL or (kind == ARRAY and np.shape(value) != ()):
            return None
    try:
        if not _allows_slices(mode):
            return None
        return _dynamic_plan(expand_ellipsis(entries, len(shape)), shape)
    except (TypeError, ValueError, IndexError):
        return None


def _dynamic_plan(entries: Sequence[IndexEntry], shape: tuple[int, ...]) -> DynamicSlices | None:
    starts: list[Any] = []
    sizes: list[int] = []
    axes = AxisChanges([], [], [])
    for kind, value, consumed in entries:
        if kind == NEWAXIS:
            axes.insert(len(starts))
            continue
        axis = consumed[0]
        if kind in (INT, ARRAY):
            if shape[axis] == 0:
                return None
            starts.append(value)
            sizes.append(1)
            axes.dropped.append(axis)
            continue
        if value.step not in (None, 1, -1):
            return None
        start, stop, step = slice_bounds(value, shape[axis])
        if step < 0:
            start, stop = stop + 1, start + 1
            axes.reversed.append(axis)
        starts.append(start)
        sizes.append(max_dim(0, stop - start))
    return DynamicSlices(starts, sizes, axes)


def index_dtype(shape: Sequence[int]) -> np.dtype:
    """The signed dtype that can index an array of that shape: int32, int64 if an axis is too long for it."""
    return np.dtype(np.int64 if any(is_longer(size, np.iinfo(np.int32).max) for size in shape) else np.int32)


def wide_indices(shape: Sequence[int]) -> AbstractContextManager:
    """A scope in which indices have 64 bits if an axis is too long for int32, whatever the option is."""
    return enable_x64(True) if index_dtype(shape).itemsize > 4 else nullcontext()
