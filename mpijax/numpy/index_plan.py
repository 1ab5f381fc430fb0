"""From a parsed index to slices.

An index is carried out in one of three ways, tried in this order: static slices (slice, rev,
squeeze, expand_dims), one `dynamic_slice` where all indices are scalars, and a gather (see
`index_gather`), which can do everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mpijax import lax
from mpijax.numpy.creation import asarray
from mpijax.numpy.index_parse import (
    ARRAY,
    BOOL,
    INT,
    NEWAXIS,
    Entry,
    check_slices,
    expand_ellipsis,
)


class SlicePlan(NamedTuple):
    """A slice of each axis, then the axes to reverse, to drop and to insert.

    `starts` are ints in a static plan, and may be traced scalars in a dynamic one. `limits` is None in a
    dynamic plan, `sizes` in a static one.
    """

    starts: list[Any]
    limits: list[int] | None
    strides: list[int] | None
    sizes: list[int] | None
    reversed_axes: list[int]
    dropped_axes: list[int]
    new_axes: list[int]

    def finish(self, x: Any) -> Any:
        """Reverse, drop and insert axes."""
        if self.reversed_axes:
            x = lax.rev(x, self.reversed_axes)
        if self.dropped_axes:
            x = lax.squeeze(x, self.dropped_axes)
        if self.new_axes:
            x = lax.expand_dims(x, self.new_axes)
        return x

    def slice_statically(self, x: Any) -> Any:
        """x sliced with bounds known now; a slice of everything costs nothing."""
        if self.strides is not None or any(self.starts) or tuple(self.limits) != x.shape:
            x = lax.slice(x, self.starts, self.limits, self.strides)
        return self.finish(x)

    def view(self, x: np.ndarray, wrap: bool) -> np.ndarray:
        """What `slice_dynamically` gives, of a NumPy array."""
        bounds = []
        for start, length, size in zip(self.starts, self.sizes, x.shape, strict=True):
            start = int(start)
            start = min(max(start + size if wrap and start < 0 else start, 0), size - length)
            bounds.append(slice(start, start + length))
        x = np.flip(x[tuple(bounds)], self.reversed_axes)
        return np.expand_dims(np.squeeze(x, tuple(self.dropped_axes)), tuple(self.new_axes))

    def slice_dynamically(self, x: Any, wrap: bool) -> Any:
        """x sliced from starts that may be traced."""
        starts = [asarray(s) for s in self.starts]
        if len(starts) > 1:
            # dynamic_slice wants all its starts to have one dtype.
            dtype = index_dtype(x.shape)
            starts = [lax.convert_element_type(s, dtype) for s in starts]
        return self.finish(lax.dynamic_slice(x, starts, self.sizes, allow_negative_indices=wrap))


def _allows_slices(mode: Any) -> bool:
    """Whether indices are promised to be in bounds, or clipped: what slices do with them."""
    if mode is None:
        return True
    modes = lax.GatherScatterMode
    return modes.from_any(mode) in (modes.PROMISE_IN_BOUNDS, modes.CLIP)


def _static_int(value: Any, size: int, wrap: bool, clip: bool) -> int | None:
    """The position that an integer index means, None if it is out of bounds."""
    position = int(value)
    if wrap and position < 0:
        position += size
    if size and clip:
        return min(max(position, 0), size - 1)
    return position if 0 <= position < size else None


def static_plan(entries: Sequence[Entry], shape: tuple[int, ...], wrap: bool, mode: Any) -> SlicePlan | None:
    """The plan of an index known now; None if it needs another way."""
    if any(e.kind in (ARRAY, BOOL) for e in entries):
        return None
    try:
        if not _allows_slices(mode):
            return None
        check_slices(entries)
        return _static_plan(expand_ellipsis(entries, len(shape)), shape, wrap, mode)
    except (TypeError, ValueError, IndexError):
        # What is wrong with the index is reported by the last way, which reads it once more.
        return None


def _static_plan(entries, shape, wrap, mode) -> SlicePlan | None:
    clip = mode is not None and lax.GatherScatterMode.from_any(mode) == lax.GatherScatterMode.CLIP
    plan = SlicePlan([], [], [], None, [], [], [])
    for kind, value, axes in entries:
        if kind == NEWAXIS:
            plan.new_axes.append(len(plan.starts) - len(plan.dropped_axes) + len(plan.new_axes))
            continue
        axis = axes[0]
        if kind == INT:
            position = _static_int(value, shape[axis], wrap, clip)
            if position is None:
                return None
            plan.starts.append(position)
            plan.limits.append(position + 1)
            plan.strides.append(1)
            plan.dropped_axes.append(axis)
            continue
        start, stop, step = value.indices(shape[axis])
        if step < 0:
            # The same elements in rising order, to be reversed.
            last = start
            start = min(shape[axis], stop + 1 + abs(start - stop - 1) % -step)
            stop, step = max(start, last + 1), -step
            plan.reversed_axes.append(axis)
        plan.starts.append(start)
        plan.limits.append(max(start, stop))
        plan.strides.append(step)
    return plan._replace(strides=None) if all(s == 1 for s in plan.strides) else plan


def dynamic_plan(entries: Sequence[Entry], shape: tuple[int, ...], mode: Any) -> SlicePlan | None:
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


def _dynamic_plan(entries, shape) -> SlicePlan | None:
    plan = SlicePlan([], None, None, [], [], [], [])
    starts = []
    for kind, value, axes in entries:
        if kind == NEWAXIS:
            plan.new_axes.append(len(starts) - len(plan.dropped_axes) + len(plan.new_axes))
            continue
        axis = axes[0]
        if kind in (INT, ARRAY):
            if shape[axis] == 0:
                return None
            starts.append(value)
            plan.sizes.append(1)
            plan.dropped_axes.append(axis)
            continue
        if value.step not in (None, 1, -1):
            return None
        start, stop, step = value.indices(shape[axis])
        if step < 0:
            start, stop = stop + 1, start + 1
            plan.reversed_axes.append(axis)
        starts.append(start)
        plan.sizes.append(max(0, stop - start))
    return plan._replace(starts=starts)


def index_dtype(shape: Sequence[int]) -> np.dtype:
    """The signed dtype that can index an array of that shape: int32, int64 if an axis is too long for it."""
    return np.dtype(np.int64 if any(size > np.iinfo(np.int32).max for size in shape) else np.int32)
