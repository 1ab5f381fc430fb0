"""An index, as users write it between brackets, as a list of typed entries.

`parse` reads an index in the context of an array's shape. Nothing here touches array
values, except that lists become arrays and concrete boolean masks become the positions
of their True entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.base import errors
from mpijax.core.base.state import state
from mpijax.core.shapes.dimensions import position_dtype
from mpijax.core.tracing.trace import EVAL
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.types.array_api import Array
from mpijax.core.types.typeof import typeof
from mpijax.numpy.creation.constructors import asarray
from mpijax.numpy.util import scalar_like

NEWAXIS, ELLIPSIS, SLICE, INT, BOOL, ARRAY = "newaxis", "ellipsis", "slice", "int", "bool", "array"


class IndexEntry(NamedTuple):
    """One element of an index tuple.

    Attributes:
      kind: one of the six constants above.
      value: what the user wrote; lists are arrays by now.
      axes: the axes of the indexed array that the entry consumes.
    """

    kind: str
    value: Any
    axes: tuple[int, ...]


def _not_integer(dtype: Any) -> TypeError:
    return TypeError(f"Indexer must have integer or boolean type, got indexer with type {dtype}")


def _read(index: Any) -> tuple[str, Any]:
    """The kind of one entry, and its value; lists become arrays."""
    if index is None:
        return NEWAXIS, None
    if index is Ellipsis:
        return ELLIPSIS, index
    if isinstance(index, slice):
        return SLICE, index
    if isinstance(index, (bool, np.bool_)):
        return BOOL, index
    if isinstance(index, (int, np.integer)):
        return INT, index
    if isinstance(index, (Array, np.ndarray)):
        return _array_kind(index), index
    if isinstance(index, str):
        raise TypeError(f"JAX does not support string indexing; got idx={index!r}")
    if isinstance(index, Sequence):
        return _read_list(index)
    if isinstance(index, (float, complex, np.generic)):
        raise _not_integer(np.dtype(type(index)))
    if hasattr(index, "__jax_array__"):
        return _read(index.__jax_array__())
    raise IndexError(
        "only integers, slices (`:`), ellipsis (`...`), newaxis (`None`) and integer or boolean arrays are "
        "valid "
        f"indices. Got {index}"
    )


def _read_list(index: Sequence) -> tuple[str, Any]:
    if not _has_tracer(index):
        mask = np.asarray(index)
        if mask.dtype == np.bool_:
            return BOOL, mask
    array = asarray(index)
    # An empty list has the default dtype, float, but selects nothing.
    return (_array_kind(array), array) if len(index) else (ARRAY, array)


def _has_tracer(x: Any) -> bool:
    return any(map(_has_tracer, x)) if isinstance(x, (list, tuple)) else isinstance(x, Tracer)


def _array_kind(array: Any) -> str:
    if dtypes.issubdtype(array.dtype, np.bool_):
        return BOOL
    if dtypes.issubdtype(array.dtype, np.integer):
        return ARRAY
    raise _not_integer(array.dtype)


def _as_tuple(index: Any) -> tuple:
    """The index as a tuple. Raises TypeError for a list, which old versions of NumPy could read as a tuple."""
    if isinstance(index, tuple):
        return index
    if not isinstance(index, Sequence) or isinstance(index, (Array, np.ndarray, str)):
        return (index,)
    nested = any(
        i is None or i is Ellipsis or isinstance(i, (Sequence, slice)) or (hasattr(i, "ndim") and i.ndim > 0)
        for i in index
    )
    instead = "arr[tuple(seq)]" if nested else "arr[array(seq)]"
    raise TypeError(
        "Using a non-tuple sequence for multidimensional indexing is not allowed; use "
        f"`{instead}` instead of `arr[seq]`. See https://github.com/jax-ml/jax/issues/4564 for more "
        "information."
    )


def parse(index: Any, shape: tuple[int, ...]) -> list[IndexEntry]:
    """Read an index of an array of shape `shape`.

    Raises:
      IndexError: too many indices, two ellipses, or an entry that is not an index.
      TypeError: an index that is neither an integer nor a bool, or a list instead of a tuple.
    """
    read = [_read(i) for i in _as_tuple(index)]
    kinds = [kind for kind, _ in read]
    if kinds.count(ELLIPSIS) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    consumed = [_consumes(kind, value) for kind, value in read]
    total = sum(consumed)
    if total > len(shape):
        raise IndexError(f"Too many indices: array is {len(shape)}-dimensional, but {total} were indexed")
    if ELLIPSIS in kinds:
        consumed[kinds.index(ELLIPSIS)] = len(shape) - total
    entries, axis = [], 0
    for (kind, value), count in zip(read, consumed, strict=True):
        entries.append(IndexEntry(kind, value, tuple(range(axis, axis + count))))
        axis += count
    return entries


def _consumes(kind: str, value: Any) -> int:
    if kind in (NEWAXIS, ELLIPSIS):
        return 0
    return np.ndim(value) if kind == BOOL else 1


def expand_ellipsis(entries: Sequence[IndexEntry], ndim: int) -> list[IndexEntry]:
    """The entries with full slices instead of the ellipsis, and for axes that the index does not mention."""
    expanded, used = [], 0
    for entry in entries:
        used += len(entry.axes)
        if entry.kind == ELLIPSIS:
            expanded += [IndexEntry(SLICE, slice(None), (axis,)) for axis in entry.axes]
        else:
            expanded.append(entry)
    return expanded + [IndexEntry(SLICE, slice(None), (axis,)) for axis in range(used, ndim)]


def known_value(x: Any) -> Any | None:
    """The value of x if it is known while tracing: x itself, or the value of its tracer. None if only the type is
    known."""
    return x.concrete() if isinstance(x, Tracer) else x


def expand_masks(entries: Sequence[IndexEntry], shape: tuple[int, ...]) -> list[IndexEntry]:
    """The entries with integer arrays instead of masks, one for each axis of a mask. Scalar masks become Python bools.

    Raises:
      NonConcreteBooleanIndexError: a mask is traced, so the shape of the result would depend on its values.
      IndexError: the shape of a mask differs from the axes that it selects from.
    """
    expanded: list[IndexEntry] = []
    for position, entry in enumerate(entries):
        if entry.kind != BOOL:
            expanded.append(entry)
            continue
        mask = known_value(entry.value)
        if mask is None:
            raise errors.NonConcreteBooleanIndexError(typeof(entry.value))
        mask = np.asarray(mask)
        if mask.ndim == 0:
            expanded.append(IndexEntry(BOOL, bool(mask), ()))
            continue
        expected = [shape[axis] for axis in entry.axes]
        if any(size not in (0, want) for size, want in zip(mask.shape, expected, strict=True)):
            raise IndexError(
                "boolean index did not match shape of indexed array in index"
                f" {position}: got {mask.shape}, expected {expected}"
            )
        expanded += [
            IndexEntry(ARRAY, positions, (axis,)) for positions, axis in zip(np.nonzero(mask), entry.axes, strict=True)
        ]
    return expanded


def check_static_indices(entries: Sequence[IndexEntry], shape: tuple[int, ...], wrap_negative_indices: bool) -> None:
    """Raise IndexError for a known index of one element that is out of bounds."""
    for entry in entries:
        if entry.kind == INT:
            i, [axis] = int(entry.value), entry.axes
            size = shape[axis]
            if not 0 <= (i + size if wrap_negative_indices and i < 0 else i) < size:
                raise IndexError(
                    f"index {i} out of bounds for axis {axis} with size {size} "
                    f"(normalize_indices={wrap_negative_indices})"
                )


def check_slices(entries: Sequence[IndexEntry]) -> None:
    """Raise IndexError if the bounds of a slice are traced: its length would depend on data."""
    for position, entry in enumerate(entries):
        if entry.kind == SLICE:
            part = entry.value
            if any(isinstance(x, Tracer) and x.concrete() is None for x in (part.start, part.stop, part.step)):
                raise IndexError(
                    f"Slice entries must be static integers. Got {part} at position {position}. A slice of "
                    "static "
                    "length that starts at a traced position is lax.dynamic_slice(x, starts, sizes)."
                )


def wrap_negative(entries: Sequence[IndexEntry], shape: tuple[int, ...]) -> list[IndexEntry]:
    """Count negative indices from the end of their axis."""
    wrapped = []
    for entry in entries:
        kind, value, axes = entry
        if kind == INT and not isinstance(value, np.unsignedinteger):
            value = value + shape[axes[0]] if value < 0 else value
        elif kind == ARRAY and not dtypes.issubdtype(value.dtype, np.unsignedinteger):
            value = wrap_negative_array(value, shape[axes[0]])
        wrapped.append(IndexEntry(kind, value, axes))
    return wrapped


def wrap_negative_array(index: Any, size: int) -> Any:
    """`index` of a signed integer dtype, brought from [-size, size) to [0, size); of a wider dtype if it needs one."""
    is_int = dtypes.issubdtype(index.dtype, np.integer)
    if is_int and (wide := position_dtype(size, index.dtype)) != index.dtype:
        index = index.astype(wide)
    if type(index) is np.ndarray and state.trace is EVAL:
        return np.where(index < 0, index + np.asarray(size, index.dtype), index)
    return lax.select(index < 0, lax.add(index, scalar_like(index, size)), index)
