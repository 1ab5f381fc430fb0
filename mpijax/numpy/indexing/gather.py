"""From a parsed index to a gather, which can do any index; a scatter is planned in the same way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mpijax import lax
from mpijax.core.base.state import state
from mpijax.core.shapes.dimensions import slice_bounds, steps_between
from mpijax.core.tracing.trace import EVAL
from mpijax.core.types.typeof import typeof
from mpijax.numpy.arguments import host_value
from mpijax.numpy.creation.constructors import asarray
from mpijax.numpy.indexing.parse import (
    ARRAY,
    BOOL,
    INT,
    NEWAXIS,
    SLICE,
    IndexEntry,
    check_slices,
    expand_ellipsis,
    wrap_negative,
)
from mpijax.numpy.indexing.plan import index_dtype
from mpijax.numpy.util import broadcast_together


class GatherPlan(NamedTuple):
    """The arguments of `lax.gather`, and the operations before and after it.

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


def _arrays_adjacent(entries: Sequence[IndexEntry]) -> bool:
    """Whether index arrays and integers are adjacent. If so, their axes stay in place; otherwise they go first."""
    positions = [i for i, e in enumerate(entries) if e.kind in (ARRAY, INT)]
    return all(b - a == 1 for a, b in zip(positions, positions[1:], strict=False))


def _expand_scalar_masks(entries: Sequence[IndexEntry], shape: tuple[int, ...]) -> tuple[list[IndexEntry], list[int]]:
    """Scalar masks become index arrays [0] or [] into an axis of size 1 of their own."""
    sizes, expanded, axis = list(shape), [], 0
    for i, entry in enumerate(entries):
        if entry.kind == BOOL:
            sizes.insert(i, 1)
            expanded.append(IndexEntry(ARRAY, np.arange(int(entry.value)), (axis,)))
            axis += 1
        else:
            count = len(entry.axes)
            expanded.append(entry._replace(axes=tuple(range(axis, axis + count))))
            axis += count
    return expanded, sizes


class _TracedPositions:
    """Operations on positions inside a trace."""

    asarray = staticmethod(asarray)
    convert = staticmethod(lax.convert_element_type)
    broadcast_together = staticmethod(broadcast_together)

    @staticmethod
    def ramp(start: int, step: int, length: int, dtype: np.dtype) -> Any:
        return asarray(start, dtype=dtype) + asarray(step, dtype=dtype) * lax.iota(dtype, length)

    @staticmethod
    def reverse(x: Any) -> Any:
        return lax.rev(x, dimensions=(0,))

    @staticmethod
    def column(x: Any) -> Any:
        return lax.expand_dims(x, (x.ndim,))

    @staticmethod
    def columns(parts: Sequence[tuple[Any, int]], shape: Sequence[int]) -> Any:
        """Parts whose axes begin at the given axes of `shape`, concatenated along its last axis."""
        spread = [lax.broadcast_in_dim(p, shape, tuple(range(at, at + p.ndim))) for p, at in parts]
        return lax.concatenate(spread, len(shape) - 1)


class _Host:
    """Operations on positions outside of traces: NumPy's functions, which cost very little."""

    asarray = staticmethod(np.asarray)
    convert = staticmethod(np.asarray)

    @staticmethod
    def broadcast_together(*arrays: np.ndarray) -> list[np.ndarray]:
        return list(np.broadcast_arrays(*arrays))

    @staticmethod
    def ramp(start: int, step: int, length: int, dtype: np.dtype) -> np.ndarray:
        return start + step * np.arange(length, dtype=dtype)

    @staticmethod
    def reverse(x: np.ndarray) -> np.ndarray:
        return x[::-1]

    @staticmethod
    def column(x: np.ndarray) -> np.ndarray:
        return x[..., None]

    @staticmethod
    def columns(parts: Sequence[tuple[np.ndarray, int]], shape: Sequence[int]) -> np.ndarray:
        rank = len(shape) - 1
        aligned = [p.reshape(p.shape + (1,) * (rank - at - p.ndim)) for p, at in parts]
        return np.stack(np.broadcast_arrays(*aligned, np.empty(shape[:-1], np.int8))[:-1], axis=-1)


class _GatherBuilder:
    """Collects a gather, one index entry after the other.

    `x_axis` counts axes of the operand, `y_axis` axes of the result, `gathered_axis` axes of the result
    without those that None inserts.
    """

    def __init__(self, shape: Sequence[int], ops: Any):
        self.ops = ops
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
        arrays = self.ops.broadcast_together(*arrays)
        shape, at = arrays[0].shape, len(self.batch_shape)
        self.parts += [(self.ops.convert(a, self.dtype), at) for a in arrays]
        self.batch_shape += shape
        self.start_map += axes
        self.collapsed += axes
        self.shape += shape
        self.y_axis += len(shape)
        self.gathered_axis += len(shape)

    def skip_array(self) -> None:
        """Skip an axis that `add_arrays` has already added."""
        self.x_axis += 1
        self.slice_sizes.append(1)

    def add_scalar(self, value: Any) -> None:
        axis = self.x_axis
        if self.operand_shape[axis] == 0:
            raise IndexError(f"index is out of bounds for axis {axis} with size 0")
        self.parts.append((self.ops.convert(value, self.dtype), len(self.batch_shape)))
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
        start, stop, step = slice_bounds(part, size)
        length = steps_between(stop - start, step) if step > 0 else steps_between(start - stop, -step)
        self.shape.append(length)
        if step == 1:
            if length != size:
                self.parts.append((self.ops.convert(start, self.dtype), len(self.batch_shape)))
                self.start_map.append(axis)
            self.slice_sizes.append(length)
            self.offset_dims.append(self.gathered_axis)
        else:
            positions = self.ops.ramp(start, step, length, self.dtype)
            if step < 0:
                self.reversed_axes.append(self.gathered_axis)
                positions = self.ops.reverse(positions)
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
            return self.ops.column(self.parts[0][0])
        return self.ops.columns(self.parts, [*self.batch_shape, 1])


def _with_known_values(entries: Sequence[IndexEntry]) -> tuple[list[IndexEntry], Any]:
    """The entries and what reads positions: NumPy outside of traces, unless an index array is split over ranks."""
    if state.trace is not EVAL:
        return list(entries), _TracedPositions
    known = [e._replace(value=host_value(e.value)) if e.kind == ARRAY else e for e in entries]
    if all(isinstance(e.value, np.ndarray) for e in known if e.kind == ARRAY):
        return known, _Host
    return list(entries), _TracedPositions


def gather_plan(entries: Sequence[IndexEntry], shape: tuple[int, ...], wrap: bool) -> GatherPlan:
    """The plan of any index whose masks have been expanded.

    Raises:
      IndexError: the bounds of a slice are traced, or an axis of size 0 is indexed.
    """
    check_slices(entries)
    entries, ops = _with_known_values(entries)
    adjacent = _arrays_adjacent(entries)
    entries = expand_ellipsis(entries, len(shape))
    bool_axes = [i for i, e in enumerate(entries) if e.kind == BOOL]
    entries, sizes = _expand_scalar_masks(entries, shape)
    if wrap:
        entries = wrap_negative(entries, tuple(sizes))

    arrays, positions, axes = [], [], []
    if any(e.kind == ARRAY and np.ndim(e.value) > 0 for e in entries):
        # If the index has an array, integers become index arrays, too.
        consuming = [(i, e) for i, e in enumerate(entries) if e.kind != NEWAXIS]
        for axis, (i, e) in enumerate(consuming):
            if e.kind in (ARRAY, INT):
                arrays.append(ops.asarray(e.value))
                positions.append(i)
                axes.append(axis)

    builder = _GatherBuilder(sizes, ops)
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
    """Execute a gather plan."""
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
