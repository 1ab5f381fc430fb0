"""Masked reads and writes of parts of references, and read-modify-write operations.

Positions outside of the array are not clipped: a read there is undefined, and a write there is dropped. So a kernel may
load, under a mask, a part that extends beyond the end of an array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.core.shapes.slices import Slice
from mpijax.core.tracing.ref_index import checked_index, indexed_shape
from mpijax.core.tracing.refs import RefView, get
from mpijax.core.tracing.refs import swap as _swap_whole
from mpijax.experimental.pallas.memory import undefined
from mpijax.ops.indexing.ref_parts import is_position


def _located(ref: Any, idx: Any) -> tuple[Any, tuple]:
    """A reference or view, and the index into it."""
    if idx is None or idx is Ellipsis:
        return (ref._ref, ref._index) if isinstance(ref, RefView) and ref.is_part else (ref, ())
    return ref, checked_index(idx, ref.shape)


def _is_inside(x: Any, size: int) -> bool:
    """Whether an index is known to lie in an axis; computed integers are taken to."""
    if isinstance(x, Slice):
        return isinstance(x.start, (int, np.integer)) and bool(0 <= x.start <= size - x.length)
    return isinstance(x, slice) or is_position(x)


def _positions(index: tuple, shape: tuple[int, ...]) -> tuple[Any, ...] | None:
    """For each axis the positions, as arrays that broadcast to the shape of the part; None if it lies in the array.

    Raises NotImplementedError for arrays of positions beside slices.
    """
    full = (*index, *(slice(None),) * (len(shape) - len(index)))
    if all(_is_inside(x, n) for x, n in zip(full, shape, strict=True)):
        return None
    sliced = [isinstance(x, (slice, Slice)) for x in full]
    if any(sliced) and not all(s or is_position(x) for s, x in zip(sliced, full, strict=True)):
        raise NotImplementedError(
            f"pallas does not support index arrays together with slices here, got {index}. Use index arrays for all "
            "axes: they broadcast."
        )
    found: list[Any] = []
    axis, rank = 0, sum(sliced)
    for x, n, is_slice in zip(full, shape, sliced, strict=True):
        if not is_slice:
            found.append(x)
            continue
        part = Slice(*_bounds(x, n)) if isinstance(x, slice) else x
        places = part.start + part.stride * jnp.arange(part.size, dtype=np.int32)
        found.append(places.reshape((1,) * axis + (-1,) + (1,) * (rank - axis - 1)))
        axis += 1
    return tuple(jnp.where(x < 0, n, x) if any(sliced) else x for x, n in zip(found, shape, strict=True))


def _bounds(x: slice, size: int) -> tuple[int, int, int]:
    start, stop, stride = x.indices(size)
    return start, len(range(start, stop, stride)), stride


def load(x_ref_or_view: Any, idx: Any = None, *, mask: Any = None, other: Any = None, **_hints: Any) -> Any:
    """The part of a reference at `idx`, or a view's part (`ref.at[...]`).

    Args:
      mask: where it is False, the result is `other`, or undefined without one.
      Other options are hints for GPUs; they are accepted and have no effect.

    >>> from mpijax.experimental import pallas as pl
    >>> def kernel(x_ref, o_ref):
    ...     o_ref[...] = pl.load(x_ref, (pl.ds(2, 4),), mask=jnp.arange(4) < 2, other=0.0)
    >>> pl.pallas_call(kernel, out_shape=mpijax.ShapeDtypeStruct((4,), jnp.float32))(jnp.arange(4.0))
    Array([2., 3., 0., 0.], dtype=float32)
    """
    ref, index = _located(x_ref_or_view, idx)
    places = _positions(index, ref.shape)
    if places is None:
        value = get(ref, index)
    else:
        value = get(ref).at[places].get(mode="fill", fill_value=undefined(ref.dtype))
    return value if mask is None or other is None else jnp.where(mask, value, jnp.asarray(other, value.dtype))


def swap(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None, **_hints: Any) -> Any:
    """Exchange `val` and what is at `idx` where `mask` is True. Returns the previous values there, and `val` elsewhere.

    >>> from mpijax.experimental import pallas as pl
    >>> ref = mpijax.new_ref(jnp.arange(4.0))
    >>> pl.swap(ref, pl.ds(0, 2), jnp.array([7.0, 8.0]), mask=jnp.array([True, False])), ref[...]
    (Array([0., 8.], dtype=float32), Array([7., 1., 2., 3.], dtype=float32))
    """
    before = _exchange(x_ref_or_view, idx, lambda _: val, mask)
    return before if mask is None else jnp.where(mask, before, jnp.asarray(val, before.dtype))


def store(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None, **_hints: Any) -> None:
    """Write `val` at `idx` where `mask` is True.

    >>> from mpijax.experimental import pallas as pl
    >>> ref = mpijax.new_ref(jnp.arange(4.0))
    >>> pl.store(ref, pl.ds(3, 2), jnp.array([7.0, 8.0]), mask=jnp.array([True, False]))
    >>> ref[...]
    Array([0., 1., 2., 7.], dtype=float32)
    """
    _exchange(x_ref_or_view, idx, lambda _: val, mask)


def _exchange(ref: Any, idx: Any, change: Callable[[Any], Any], mask: Any) -> Any:
    """Replace the part at an index by `change(part)` where `mask` is True; returns the part as it was."""
    ref, index = _located(ref, idx)
    before = load(ref, index if index else ...)
    value = change(before)
    if jnp.shape(value) != before.shape and jnp.ndim(value):
        raise ValueError(
            f"Invalid shape for `swap`. Ref shape: {ref.shape}. Expected shape: {indexed_shape(ref.shape, index)}. "
            f"Value shape: {jnp.shape(value)}."
        )
    if jnp.result_type(value) != ref.dtype and not getattr(value, "weak_type", isinstance(value, (bool, int, float))):
        raise ValueError(
            f"Invalid dtype for `swap`. Ref dtype: {ref.dtype.name}. Value dtype: {jnp.result_type(value)}. Convert "
            "the value with astype."
        )
    value = jnp.broadcast_to(jnp.asarray(value, ref.dtype), before.shape)
    if mask is not None:
        value = jnp.where(mask, value, before)
    places = _positions(index, ref.shape)
    if places is None:
        _swap_whole(ref, index, value, False)
        return before
    if mask is not None:  # positions under the mask may belong to other programs
        places = (jnp.where(mask, places[0], ref.shape[0]), *places[1:])
    _swap_whole(ref, None, get(ref).at[places].set(value, mode="drop"), False)
    return before


def _atomic(ref: Any, idx: Any, val: Any, mask: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """Replace the elements at `idx` by `combine(elements, val)`, where `mask` is True; returns what was there."""
    return _exchange(ref, idx, lambda x: combine(x, jnp.asarray(val, x.dtype)), mask)


def atomic_xchg(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None) -> Any:
    """Replace the elements at `idx` by `val`, where `mask` is True.

    Returns the previous values. Programs run one after the other here, so this is an ordinary read and write.

    >>> from mpijax.experimental import pallas as pl
    >>> ref = mpijax.new_ref(jnp.array([1, 6]))
    >>> pl.atomic_xchg(ref, 1, 5), ref[...]
    (Array(6, dtype=int32), Array([1, 5], dtype=int32))
    """
    return _atomic(x_ref_or_view, idx, val, mask, lambda x, y: jnp.broadcast_to(y, x.shape))


def atomic_max(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None) -> Any:
    """Replace the elements at `idx` by the larger of the element and `val`, where `mask` is True.

    Returns the previous values. Programs run one after the other here, so this is an ordinary read and write.

    >>> from mpijax.experimental import pallas as pl
    >>> ref = mpijax.new_ref(jnp.array([1, 6]))
    >>> pl.atomic_max(ref, 1, 5), ref[...]
    (Array(6, dtype=int32), Array([1, 6], dtype=int32))
    """
    return _atomic(x_ref_or_view, idx, val, mask, jnp.maximum)


def atomic_min(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None) -> Any:
    """Replace the elements at `idx` by the smaller of the element and `val`, where `mask` is True.

    Returns the previous values. Programs run one after the other here, so this is an ordinary read and write.

    >>> from mpijax.experimental import pallas as pl
    >>> ref = mpijax.new_ref(jnp.array([1, 6]))
    >>> pl.atomic_min(ref, 1, 5), ref[...]
    (Array(6, dtype=int32), Array([1, 5], dtype=int32))
    """
    return _atomic(x_ref_or_view, idx, val, mask, jnp.minimum)


def atomic_and(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None) -> Any:
    """Replace the elements at `idx` by their bitwise and with `val`, where `mask` is True.

    Returns the previous values. Programs run one after the other here, so this is an ordinary read and write.

    >>> from mpijax.experimental import pallas as pl
    >>> ref = mpijax.new_ref(jnp.array([1, 6]))
    >>> pl.atomic_and(ref, 1, 5), ref[...]
    (Array(6, dtype=int32), Array([1, 4], dtype=int32))
    """
    return _atomic(x_ref_or_view, idx, val, mask, jnp.bitwise_and)


def atomic_or(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None) -> Any:
    """Replace the elements at `idx` by their bitwise or with `val`, where `mask` is True.

    Returns the previous values. Programs run one after the other here, so this is an ordinary read and write.

    >>> from mpijax.experimental import pallas as pl
    >>> ref = mpijax.new_ref(jnp.array([1, 6]))
    >>> pl.atomic_or(ref, 1, 5), ref[...]
    (Array(6, dtype=int32), Array([1, 7], dtype=int32))
    """
    return _atomic(x_ref_or_view, idx, val, mask, jnp.bitwise_or)


def atomic_xor(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None) -> Any:
    """Replace the elements at `idx` by their bitwise exclusive or with `val`, where `mask` is True.

    Returns the previous values. Programs run one after the other here, so this is an ordinary read and write.

    >>> from mpijax.experimental import pallas as pl
    >>> ref = mpijax.new_ref(jnp.array([1, 6]))
    >>> pl.atomic_xor(ref, 1, 5), ref[...]
    (Array(6, dtype=int32), Array([1, 3], dtype=int32))
    """
    return _atomic(x_ref_or_view, idx, val, mask, jnp.bitwise_xor)


def atomic_add(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None) -> Any:
    """Add `val` to the elements at `idx`, also where positions repeat. Returns the previous values. Programs run one
after the other here, so this is an ordinary read and write. Where `mask` is False, nothing is added.

    >>> from mpijax.experimental import pallas as pl
    >>> ref = mpijax.new_ref(jnp.zeros(3))
    >>> pl.atomic_add(ref, (jnp.array([0, 2, 0]),), jnp.ones(3))
    Array([0., 0., 0.], dtype=float32)
    >>> ref[...]
    Array([2., 0., 1.], dtype=float32)
    """
    ref, index = _located(x_ref_or_view, idx)
    places = _positions(index, ref.shape)
    if places is None:
        return _exchange(ref, index if index else ..., lambda x: x + jnp.asarray(val, x.dtype), mask)
    before = load(ref, index)
    added = jnp.broadcast_to(jnp.asarray(val, ref.dtype), before.shape)
    if mask is not None:
        places = (jnp.where(mask, places[0], ref.shape[0]), *places[1:])
    _swap_whole(ref, None, get(ref).at[places].add(added, mode="drop"), False)
    return before


def atomic_cas(ref: Any, cmp: Any, val: Any) -> Any:
    """Replace a scalar by `val` if it equals `cmp`. Returns the previous value.

    >>> from mpijax.experimental import pallas as pl
    >>> ref = mpijax.new_ref(jnp.int32(3))
    >>> pl.atomic_cas(ref, 3, 5), ref[...]
    (Array(3, dtype=int32), Array(5, dtype=int32))
    """
    before = get(ref)
    if before.ndim:
        raise ValueError(f"ref must be scalar: atomic_cas got a reference of shape {before.shape}")
    _swap_whole(ref, None, jnp.where(before == cmp, jnp.asarray(val, before.dtype), before), False)
    return before
