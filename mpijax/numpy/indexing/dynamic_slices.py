"""Indices that contain a `ds`, in terms of other indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core.shapes.slices import Slice
from mpijax.core.types.typeof import typeof
from mpijax.numpy.indexing.parse import parse


def has_slices(index: Any) -> bool:
    """Whether an index contains a `ds`."""
    return isinstance(index, Slice) or (isinstance(index, tuple) and any(isinstance(i, Slice) for i in index))


def _split(index: Any, shape: tuple[int, ...]) -> tuple[tuple, list[tuple[int, int, Slice]]]:
    """The index with a full slice instead of each `ds`; and for each `ds` its position in the index, its axis, and
    itself.

    Raises IndexError if a `ds` has more elements than its axis.
    """
    given = index if isinstance(index, tuple) else (index,)
    plain = tuple(slice(None) if isinstance(i, Slice) else i for i in given)
    found = [(k, e.axes[0], i) for k, (i, e) in enumerate(zip(given, parse(plain, shape), strict=True))
             if isinstance(i, Slice)]  # fmt: skip
    for _, axis, s in found:
        if s.length > shape[axis]:
            raise IndexError(
                f"{s} spans {s.length} elements, but axis {axis} of shape {shape} has {shape[axis]} elements"
            )
    return plain, found


def read_slices(x: Any, index: Any) -> tuple[Any, tuple]:
    """The parts of x along the axes with a `ds`, and the index without them.

    As in JAX, a negative start counts from the end only if the stride is 1 and the index has no array. With a stride,
    each position is clipped separately.
    """
    shape = typeof(x).shape
    plain, found = _split(index, shape)
    counts_back = all(i is None or i is Ellipsis or isinstance(i, (slice, int)) for i in plain)
    for _, axis, s in found:
        if s.stride != 1:
            places = lax.clamp(np.int32(0), _places(_start(s), s), np.int32(shape[axis] - 1))
            x = x[(slice(None),) * axis + (places,)]
        else:
            start = s.start if counts_back else lax.max(_start(s), np.int32(0))
            x = lax.dynamic_slice_in_dim(x, start, s.length, axis)
    return x, plain


def _start(s: Slice) -> Any:
    return lax.convert_element_type(s.start, np.int32)


def _places(start: Any, s: Slice) -> Any:
    return lax.add(lax.broadcast(start, (s.size,)), np.arange(0, s.length, s.stride, dtype=np.int32))


def positions_of_slices(shape: tuple[int, ...], index: Any, mode: Any) -> tuple:
    """The index with positions instead of a `ds`. A slice that is not inside the axis gets positions outside of it,
    unless the mode "clip" moves it.

    Raises:
      NotImplementedError: the index has another `ds`, or integers or arrays, with which the positions would combine.
    """
    plain, found = _split(index, shape)
    [(place, axis, s), *more] = found
    if more or not all(i is None or i is Ellipsis or isinstance(i, slice) for i in plain):
        raise NotImplementedError(
            f"x.at[...] supports one ds(), together with slices, None and ... only. Got {index}. Use "
            "lax.dynamic_update_slice."
        )
    start, first, last = _start(s), np.int32(0), np.int32(shape[axis] - s.length)
    if str(getattr(mode, "name", mode)).lower() == "clip":
        start = lax.clamp(first, start, last)
    inside = lax.bitwise_and(lax.ge(start, first), lax.le(start, last))
    outside = lax.full((s.size,), shape[axis], np.int32)
    places = lax.select(lax.broadcast(inside, (s.size,)), _places(start, s), outside)
    return (*plain[:place], places, *plain[place + 1 :])
