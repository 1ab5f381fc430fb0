"""From a parsed index to the operations that carry it out.

Three ways, tried in this order: static slices (slice, rev, squeeze, expand_dims), one
`dynamic_slice` where all indices are scalars, and a gather, which can do everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mpijax import lax
from mpijax.core.trace import typeof
from mpijax.numpy.creation import asarray
from mpijax.numpy.index_parse import (
    ARRAY,
    BOOL,
    INT,
    NEWAXIS,
    SLICE,
    Entry,
    check_slices,
    expand_ellipsis,
    wrap_negative,
)
from mpijax.numpy.util import broadcast_together


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

    def slice_dynamically(self, x: Any, wrap: bool) -> Any:
        """x sliced from starts that may be traced."""
        return self.finish(lax.dynamic_slice(x, self.starts, self.sizes, allow_negative_indices=wrap))


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
            starts.append(asarray(value))
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
    if len(starts) > 1:
        # dynamic_slice wants all its starts to have one dtype.
        dtype = index_dtype(shape)
        starts = [lax.convert_element_type(s, dtype) for s in starts]
    return plan._replace(starts=starts)


def index_dtype(shape: Sequence[int]) -> np.dtype:
    """The signed dtype that can index an array of that shape: int32, int64 if an axis is too long for it."""
    return np.dtype(np.int64 if any(size > np.iinfo(np.int32).max for size in shape) else np.int32)


class GatherPlan(NamedTuple):
    """What `lax.gather` needs, and what is to be done before and after it.

    Attributes:
      shape: of the result, and of the values of a scatter.
      slice_sizes, indices, dimension_numbers: of the gather.
      distinct: whether no position is read twice and all are read in order: there are no index arrays.
      reversed_axes: axes of the gathered array to be reversed: slices of negative step.
      new_axes: axes to insert at last (to drop first, in a scatter).
      bool_axes: axes of size 1 to insert into the operand first: scalar masks.
    """

    shape: list[int]
    slice_sizes: list[int]
    indices: Any
    dimension_numbers: Any
    distinct: bool
    reversed_axes: list[int]
    new_axes: tuple[int, ...]
    bool_axes: list[int]


def _arrays_adjacent(entries: Sequence[Entry]) -> bool:
    """Whether index arrays and integers stand side by side: then their axes stay in place, otherwise they go
    first."""
    positions = [i for i, e in enumerate(entries) if e.kind in (ARRAY, INT)]
    return all(b - a == 1 for a, b in zip(positions, positions[1:], strict=False))


def _expand_scalar_masks(entries: Sequence[Entry], shape: tuple[int, ...]) -> tuple[list[Entry], list[int]]:
    """Scalar masks become index arrays [0] or [] into an axis of size 1 of their own."""
    sizes, expanded, axis = list(shape), [], 0
    for i, entry in enumerate(entries):
        if entry.kind == BOOL:
            sizes.insert(i, 1)
            expanded.append(Entry(ARRAY, np.arange(int(entry.value)), (axis,)))
            axis += 1
        else:
            count = len(entry.axes)
            expanded.append(entry._replace(axes=tuple(range(axis, axis + count))))
            axis += count
    return expanded, sizes


class _GatherBuilder:
    """Collects a gather, one index entry after the other.

    `x_axis` counts axes of the operand, `y_axis` axes of the result, `gathered_axis` axes of the result
    without those that None inserts.
    """

    def __init__(self, shape: Sequence[int]):
        self.operand_shape = shape
        self.dtype = index_dtype(shape)
        self.x_axis = self.y_axis = self.gathered_axis = 0
        self.offset_dims: list[int] = []
        self.collapsed: list[int] = []
        self.start_map: list[int] = []
        self.shape: list[int] = []
        self.slice_sizes: list[int] = []
        self.reversed_axes: list[int] = []
        self.new_axes: list[int] = []
        # Pairs of an index array and the axis of the indices' batch shape at which its own axes begin.
        self.parts: list[tuple[Any, int]] = []
        self.batch_shape: list[int] = []

    def add_arrays(self, arrays: Sequence[Any], axes: Sequence[int]) -> None:
        """Index arrays, broadcast against each other, that index `axes` together."""
        arrays = broadcast_together(*arrays)
        shape, at = arrays[0].shape, len(self.batch_shape)
        self.parts += [(lax.convert_element_type(a, self.dtype), at) for a in arrays]
        self.batch_shape += shape
        self.start_map += axes
        self.collapsed += axes
        self.shape += shape
        self.y_axis += len(shape)
        self.gathered_axis += len(shape)

    def skip_array(self) -> None:
        """An axis that `add_arrays` has dealt with."""
        self.x_axis += 1
        self.slice_sizes.append(1)

    def add_scalar(self, value: Any) -> None:
        axis = self.x_axis
        if self.operand_shape[axis] == 0:
            raise IndexError(f"index is out of bounds for axis {axis} with size 0")
        self.parts.append((lax.convert_element_type(value, self.dtype), len(self.batch_shape)))
        self.collapsed.append(axis)
        self.start_map.append(axis)
        self.slice_sizes.append(1)
        self.x_axis += 1

    def add_new_axis(self) -> None:
        self.shape.append(1)
        self.new_axes.append(self.y_axis)
        self.y_axis += 1

    def add_slice(self, part: slice) -> None:
        axis, size = self.x_axis, self.operand_shape[self.x_axis]
        start, stop, step = part.indices(size)
        length = len(range(start, stop, step))
        self.shape.append(length)
        if step == 1:
            if length != size:
                self.parts.append((lax.convert_element_type(start, self.dtype), len(self.batch_shape)))
                self.start_map.append(axis)
            self.slice_sizes.append(length)
            self.offset_dims.append(self.gathered_axis)
        else:
            positions = asarray(start, dtype=self.dtype) + asarray(step, dtype=self.dtype) * lax.iota(
                self.dtype, length
            )
            if step < 0:
                self.reversed_axes.append(self.gathered_axis)
                positions = lax.rev(positions, dimensions=(0,))
            self.slice_sizes.append(1)
            self.parts.append((positions, len(self.batch_shape)))
            self.start_map.append(axis)
            self.batch_shape.append(length)
            self.collapsed.append(axis)
        self.gathered_axis += 1
        self.y_axis += 1
        self.x_axis += 1

    def indices(self) -> Any:
        """The index vectors, along the last axis of one array."""
        if not self.parts:
            return np.zeros((0,), dtype=self.dtype)
        if len(self.parts) == 1:
            only = self.parts[0][0]
            return lax.expand_dims(only, (only.ndim,))
        shape = [*self.batch_shape, 1]
        columns = [lax.broadcast_in_dim(p, shape, tuple(range(at, at + p.ndim))) for p, at in self.parts]
        return lax.concatenate(columns, len(self.batch_shape))


def gather_plan(entries: Sequence[Entry], shape: tuple[int, ...], wrap: bool) -> GatherPlan:
    """The plan of any index whose masks have been expanded.

    Raises:
      IndexError: the bounds of a slice are traced, or an axis of size 0 is indexed.
    """
    check_slices(entries)
    adjacent = _arrays_adjacent(entries)
    entries = expand_ellipsis(entries, len(shape))
    bool_axes = [i for i, e in enumerate(entries) if e.kind == BOOL]
    entries, sizes = _expand_scalar_masks(entries, shape)
    if wrap:
        entries = wrap_negative(entries, tuple(sizes))

    arrays, positions, axes = [], [], []
    if any(e.kind == ARRAY and np.ndim(e.value) > 0 for e in entries):
        # Beside an index array, integers are index arrays too.
        consuming = [(i, e) for i, e in enumerate(entries) if e.kind != NEWAXIS]
        for axis, (i, e) in enumerate(consuming):
            if e.kind in (ARRAY, INT):
                arrays.append(asarray(e.value))
                positions.append(i)
                axes.append(axis)

    builder = _GatherBuilder(sizes)
    for i, (kind, value, _) in enumerate(entries):
        if arrays and i == (positions[0] if adjacent else 0):
            builder.add_arrays(arrays, axes)
        if i in positions:
            builder.skip_array()
        elif kind in (INT, ARRAY):
            builder.add_scalar(value)
        elif kind == NEWAXIS:
            builder.add_new_axis()
        elif kind == SLICE:
            builder.add_slice(value)
    return GatherPlan(
        shape=builder.shape,
        slice_sizes=builder.slice_sizes,
        indices=builder.indices(),
        dimension_numbers=lax.GatherDimensionNumbers(
            offset_dims=tuple(builder.offset_dims),
            collapsed_slice_dims=tuple(sorted(builder.collapsed)),
            start_index_map=tuple(builder.start_map),
        ),
        distinct=not arrays,
        reversed_axes=builder.reversed_axes,
        new_axes=tuple(builder.new_axes),
        bool_axes=bool_axes,
    )


def is_empty(shape: Sequence[int]) -> bool:
    return any(size == 0 for size in shape)


def gather(x: Any, plan: GatherPlan, *, unique: bool, sorted_: bool, mode: Any, fill_value: Any) -> Any:
    """Carry out a gather plan."""
    if plan.bool_axes:
        x = lax.expand_dims(x, plan.bool_axes)
    if is_empty(plan.shape):
        return lax.full_like(x, 0, shape=tuple(plan.shape))
    if not is_empty(typeof(plan.indices).shape):
        x = lax.gather(
            x,
            plan.indices,
            plan.dimension_numbers,
            tuple(plan.slice_sizes),
            unique_indices=unique or plan.distinct,
            indices_are_sorted=sorted_ or plan.distinct,
            mode=mode,
            fill_value=fill_value,
        )
    if plan.reversed_axes:
        x = lax.rev(x, plan.reversed_axes)
    return lax.expand_dims(x, plan.new_axes)
