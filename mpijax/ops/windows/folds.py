"""Combines windows with slices and elementwise operations, which the compiler fuses."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mpijax.core.rules.registry import registry
from mpijax.ops.reductions import standard as reductions
from mpijax.ops.shapes.moves import shape_of
from mpijax.ops.windows.shapes import reduce_window_shape_tuple

# Windows with at most this many elements are combined in one pass, larger ones axis by axis.
ONE_PASS = 16
# Windows with at most this many elements along an axis are combined element by element.
SERIAL = 8

Combine = Callable[[list, list], list]


def pad_config(padding, base_dilation) -> tuple[tuple[int, int, int], ...]:
    return tuple((lo, hi, d - 1) for (lo, hi), d in zip(padding, base_dilation, strict=True))


def padded(x: Any, unit: Any, padding, base_dilation) -> Any:
    """The padded array that the windows move over."""
    config = pad_config(padding, base_dilation)
    if not any(any(c) for c in config):
        return x
    return registry["pad"].bind(x, unit, padding_config=config)


def fold_windows(
    combine: Combine, operands: list, units: list, *, window_dimensions, window_strides, padding, base_dilation,
    window_dilation, reduction: str | None = None,
) -> list:  # fmt: skip
    """Combines the elements of each window in row-major order.

    combine: an associative `(values, values) -> values` on lists of arrays, one for each operand.
    units: for each operand the padding scalar. reduction: the primitive that reduces with `combine`, if there is one.
    """
    shape = shape_of(operands[0])
    out_shape = reduce_window_shape_tuple(
        shape, window_dimensions, window_strides, padding, base_dilation, window_dilation
    )
    if 0 in out_shape:
        return [_filled(u, out_shape) for u in units]
    xs = [padded(x, u, padding, base_dilation) for x, u in zip(operands, units, strict=True)]
    if math.prod(window_dimensions) <= ONE_PASS:
        offsets = itertools.product(*(range(w) for w in window_dimensions))
        starts = [tuple(o * d for o, d in zip(at, window_dilation, strict=True)) for at in offsets]
        return _chain(combine, xs, starts, out_shape, window_strides)
    for axis in reversed(range(len(shape))):
        w, s, d = window_dimensions[axis], window_strides[axis], window_dilation[axis]
        if w > 1 or s > 1:
            xs = _fold_axis(combine, xs, units, axis, w, s, d, out_shape[axis], reduction)
    return xs


def _filled(unit: Any, shape: tuple[int, ...]) -> Any:
    return registry["broadcast_in_dim"].bind(unit, shape=shape, broadcast_dimensions=(), sharding=None)


def _slice(x: Any, starts, counts, strides) -> Any:
    limits = tuple(b + (n - 1) * s + 1 for b, n, s in zip(starts, counts, strides, strict=True))
    return registry["slice"].bind(
        x, start_indices=tuple(starts), limit_indices=limits, strides=tuple(map(int, strides))
    )


def _chain(combine: Combine, xs: list, starts, counts, strides) -> list:
    """Combine slices of equal size that begin at `starts`."""
    total = None
    for at in starts:
        part = [_slice(x, at, counts, strides) for x in xs]
        total = part if total is None else combine(total, part)
    assert total is not None
    return total


def _fold_axis(combine: Combine, xs: list, units: list, axis: int, w: int, s: int, d: int, n: int,
               reduction: str | None) -> list:  # fmt: skip
    """Combines windows of size w along a single axis."""
    shape = shape_of(xs[0])
    counts = (*shape[:axis], n, *shape[axis + 1 :])
    strides = [s if a == axis else 1 for a in range(len(shape))]

    def at(position: int) -> tuple[int, ...]:
        return tuple(position if a == axis else 0 for a in range(len(shape)))

    if w <= SERIAL:
        return _chain(combine, xs, [at(k * d) for k in range(w)], counts, strides)
    if s >= w and d == 1:
        return _fold_blocks(combine, xs, units, axis, w, s, n, reduction)
    # Combine windows of 1, 2, 4 ... elements; assemble the window of w elements from these.
    total, offset, size, doubled = None, w, 1, xs
    while offset:
        if w & size:
            offset -= size
            part = [_slice(x, at(offset * d), counts, strides) for x in doubled]
            total = part if total is None else combine(part, total)
        size *= 2
        if size <= w:
            step = size // 2 * d
            length = (*shape[:axis], shape_of(doubled[0])[axis] - step, *shape[axis + 1 :])
            ones = (1,) * len(shape)
            low = [_slice(x, at(0), length, ones) for x in doubled]
            doubled = combine(low, [_slice(x, at(step), length, ones) for x in doubled])
    assert total is not None
    return total


def _fold_blocks(combine: Combine, xs: list, units: list, axis: int, w: int, s: int, n: int,
                 reduction: str | None) -> list:  # fmt: skip
    """Combines windows that do not overlap: each becomes a row."""
    rows = []
    for x, unit in zip(xs, units, strict=True):
        shape = shape_of(x)
        config = tuple((0, n * s - shape[axis], 0) if a == axis else (0, 0, 0) for a in range(len(shape)))
        if any(any(c) for c in config):
            x = registry["pad"].bind(x, unit, padding_config=config)
        sizes = (*shape[:axis], n, s, *shape[axis + 1 :])
        x = registry["reshape"].bind(x, new_sizes=sizes, dimensions=None, sharding=None)
        if w < s:
            counts = (*shape[:axis], n, w, *shape[axis + 1 :])
            x = _slice(x, (0,) * len(counts), counts, (1,) * len(counts))
        rows.append(x)
    if reduction is not None:
        return [getattr(reductions, reduction)(x, (axis + 1,)) for x in rows]
    return reductions.by_neighbours(combine, rows, (axis + 1,))


def numpy_windows(
    x: np.ndarray, unit: Any, *, window_dimensions, window_strides, padding, base_dilation, window_dilation
) -> Iterator[np.ndarray]:
    """For every position in a window, in row-major order, the elements of all windows at that position."""
    config = pad_config(padding, base_dilation)
    out_shape = reduce_window_shape_tuple(
        x.shape, window_dimensions, window_strides, padding, base_dilation, window_dilation
    )
    base = registry["pad"].reference(x, np.asarray(unit, x.dtype), padding_config=config)
    for at in itertools.product(*(range(w) for w in window_dimensions)):
        starts = [o * d for o, d in zip(at, window_dilation, strict=True)]
        yield base[
            tuple(slice(b, b + n * s, s) for b, n, s in zip(starts, out_shape, window_strides, strict=True))
        ]
