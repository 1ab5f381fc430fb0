"""Reads and writes parts of references at computed positions, as in `ref[i, ds(j, 4)]`.

The index of each axis is an integer, a slice or a `ds`. A part that starts outside the array is clamped to it, in reads
and in writes. Negative positions count from the end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpijax.core import dtypes
from mpijax.core.shapes.slices import Slice
from mpijax.core.types.array_api import Array
from mpijax.ops.elementwise.convert import convert_element_type
from mpijax.ops.indexing.dynamic import dynamic_slice, dynamic_update_slice
from mpijax.ops.indexing.slicing import slice as static_slice
from mpijax.ops.shapes.reshape import reshape


class RefPart(NamedTuple):
    """For each axis: the start of the part, its length up to the last element, and its stride.

    shape: of the part, without axes that are indexed by integers.
    """

    starts: list[Any]
    lengths: list[int]
    strides: list[int]
    shape: tuple[int, ...]


def is_position(x: Any) -> bool:
    """Whether an index is one integer: a number or an array without axes."""
    if isinstance(x, (int, np.integer)):
        return not isinstance(x, (bool, np.bool_))
    return isinstance(x, (Array, np.ndarray)) and not x.ndim and dtypes.issubdtype(x.dtype, np.integer)


def part_of(index: tuple, shape: tuple[int, ...]) -> RefPart | None:
    """The part that an index selects in an array of the given shape; None if NumPy's indexing can be used.

    Raises:
      ValueError: for a `ds` with more elements than the axis has.
    """
    if not any(isinstance(x, (Slice, Array)) for x in index):
        return None
    if not all(isinstance(x, (slice, Slice)) or is_position(x) for x in index):
        return None
    starts: list[Any] = []
    lengths, strides, sizes = [], [], []
    for x, n in zip((*index, *(slice(None),) * (len(shape) - len(index))), shape, strict=True):
        if isinstance(x, slice):
            start, stop, stride = x.indices(n)
            size = len(range(start, stop, stride))
        else:
            start, size, stride = (x.start, x.size, x.stride) if isinstance(x, Slice) else (x, 1, 1)
        length = (size - 1) * stride + 1 if size else 0
        if length > n:
            raise ValueError(f"{x} spans {length} elements, but the axis of the reference of shape {shape} has {n}")
        starts.append(_start(start, n))
        lengths.append(length)
        strides.append(stride)
        if not is_position(x):
            sizes.append(size)
    return RefPart(starts, lengths, strides, tuple(sizes))


def _start(start: Any, size: int) -> Any:
    if isinstance(start, (int, np.integer)):
        return np.int32(start + size if start < 0 else start)
    return convert_element_type(start, np.int32)


def read_part(x: Any, part: RefPart) -> Any:
    """The elements of x in a part."""
    found = dynamic_slice(x, part.starts, part.lengths)
    if any(s != 1 for s in part.strides):
        found = static_slice(found, [0] * len(part.lengths), part.lengths, part.strides)
    return reshape(found, part.shape)


def write_part(x: Any, part: RefPart, value: Any) -> Any:
    """x with the elements in a part replaced by `value`, which has the shape of the part."""
    if all(s == 1 for s in part.strides):
        return dynamic_update_slice(x, reshape(value, part.lengths), part.starts)
    window = dynamic_slice(x, part.starts, part.lengths)
    sizes = [-(-length // stride) for length, stride in zip(part.lengths, part.strides, strict=True)]
    places = tuple(slice(None, None, stride) for stride in part.strides)
    return dynamic_update_slice(x, window.at[places].set(reshape(value, sizes)), part.starts)
