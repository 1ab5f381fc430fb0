"""NumPy references of gather and scatter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax.core.programs.jaxpr import Jaxpr, eval_jaxpr
from mpijax.core.rules.lowering import Window


def positions(shape, indices, window_dims, index_map, removed, batching, sizes) -> tuple[list[Any], np.ndarray]:
    """The positions of the elements of windows, for gather and scatter.

    Args:
      shape: of the operand. indices: NumPy array of index vectors.
      window_dims: axes of the result (or the updates) that belong to the window.
      removed: axes of the operand without a window axis; batching: pairs (axis of operand, axis of
        indices).
      sizes: of the window along each axis of the operand.

    Returns:
      An index array for each axis of the operand, which all broadcast to the shape of the result; and whether
      each window is inside the operand.
    """
    rank = len(window_dims) + indices.ndim - 1
    batch_dims = [d for d in range(rank) if d not in window_dims]

    def placed(values, dims):
        full = [1] * rank
        for d, n in zip(dims, values.shape, strict=True):
            full[d] = n
        return values.reshape(full)

    batch_shape = indices.shape[:-1]
    full_shape = [1] * rank
    for d, n in zip(batch_dims, batch_shape, strict=True):
        full_shape[d] = n
    where: list[Any] = [np.zeros(full_shape, np.int64) for _ in shape]
    kept = [d for d in range(len(shape)) if d not in removed]
    for d, out in zip(kept, window_dims, strict=True):
        where[d] = where[d] + placed(np.arange(sizes[d]), [out])
    for d, along in batching:
        where[d] = where[d] + placed(np.arange(batch_shape[along]), [batch_dims[along]])
    inside = np.ones(full_shape, bool)
    for k, d in enumerate(index_map):
        last = max(shape[d] - sizes[d], 0)
        raw = indices[..., k]
        raw = (
            np.minimum(raw, np.uint64(2**62)).astype(np.int64)
            if raw.dtype == np.uint64
            else raw.astype(np.int64)
        )
        inside &= placed((raw >= 0) & (raw <= last), batch_dims)
        where[d] = where[d] + placed(np.clip(raw, 0, last), batch_dims)
    return where, inside


def gather_reference(x, indices, *, dimension_numbers, slice_sizes, mode, fill_value, **_flags):
    dn = dimension_numbers
    words = x.shape[len(slice_sizes) :]
    removed = (*dn.collapsed_slice_dims, *dn.operand_batching_dims)
    batching = list(zip(dn.operand_batching_dims, dn.start_indices_batching_dims, strict=True))
    where, inside = positions(
        x.shape[: len(slice_sizes)],
        indices,
        dn.offset_dims,
        dn.start_index_map,
        removed,
        batching,
        slice_sizes,
    )
    shape = np.broadcast_shapes(inside.shape, *(w.shape for w in where))
    fill = np.asarray(0 if fill_value is None else fill_value).astype(x.dtype)
    if x.size == 0:
        return np.broadcast_to(fill, shape + words).copy()
    out = (
        x[tuple(np.broadcast_to(w, shape) for w in where)]
        if where
        else np.broadcast_to(x, shape + words).copy()
    )
    if mode.name == "FILL_OR_DROP":
        mask = np.broadcast_to(inside, shape).reshape(shape + (1,) * len(words))
        out = np.where(mask, out, fill)
    return out


def window_sizes(ndim: int, update_shape, dn) -> tuple[int, ...]:
    """The size of the window along each axis of the operand."""
    sizes = iter([update_shape[d] for d in dn.update_window_dims])
    removed = (*dn.inserted_window_dims, *dn.operand_batching_dims)
    return tuple(1 if d in removed else next(sizes) for d in range(ndim))


def _targets(x, indices, updates, dn, mode):
    """Index arrays of the written elements, in order, and their updates."""
    ndim = len(dn.update_window_dims) + len(dn.inserted_window_dims) + len(dn.operand_batching_dims)
    rank = indices.ndim - 1 + len(dn.update_window_dims)
    sizes = window_sizes(ndim, updates.shape, dn)
    removed = (*dn.inserted_window_dims, *dn.operand_batching_dims)
    batching = list(zip(dn.operand_batching_dims, dn.scatter_indices_batching_dims, strict=True))
    where, inside = positions(
        x.shape[:ndim],
        indices,
        dn.update_window_dims,
        dn.scatter_dims_to_operand_dims,
        removed,
        batching,
        sizes,
    )
    shape = updates.shape[:rank]
    keep = np.broadcast_to(inside | (mode.name != "FILL_OR_DROP"), shape)
    return tuple(np.broadcast_to(w, shape)[keep] for w in where), updates[keep]


_UFUNCS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def scatter_reference(op: str | None) -> Callable:
    """The reference of the scatter that combines with `op`; None means replacement."""

    def reference(x, indices, updates, *, dimension_numbers, mode, **_flags):
        out = x.copy()
        if not x.size or not updates.size:
            return out
        where, values = _targets(x, indices, updates, dimension_numbers, mode)
        if op is None:
            out[where] = values
        else:
            ufunc = _UFUNCS[op]
            if out.dtype == np.bool_ and op in ("add", "mul"):
                ufunc = np.logical_or if op == "add" else np.logical_and
            with np.errstate(all="ignore"):
                ufunc.at(out, where, values)
        return out

    return reference


def by_references(jaxpr: Jaxpr, consts, *args) -> list[np.ndarray]:
    """Run a Jaxpr with the NumPy references of its primitives."""

    def apply(eqn, values):
        arrays = [np.asarray(x, v.aval.dtype) for x, v in zip(values, eqn.invars, strict=True)]
        outs = eqn.primitive.reference(*arrays, **eqn.params)
        return outs if eqn.primitive.multiple_results else (outs,)

    outs = eval_jaxpr(jaxpr, consts, *args, apply=apply)
    return [np.asarray(x, v.aval.dtype) for x, v in zip(outs, jaxpr.outvars, strict=True)]


def apply_reference(x, indices, updates, *, dimension_numbers, mode, update_jaxpr, update_consts, **_flags):
    """Updates elements that are indexed several times in several rounds."""
    out = x.copy()
    if not x.size or not updates.size:
        return out
    where, _ = _targets(x, indices, updates, dimension_numbers, mode)
    flat = np.ravel_multi_index(where, x.shape) if x.ndim else np.zeros(len(updates.ravel()), np.int64)
    values = out.reshape(-1)
    elements, counts = np.unique(flat, return_counts=True)
    while elements.size:
        old = values[elements]
        new = by_references(update_jaxpr, update_consts, old, np.zeros_like(old))[0]
        values[elements] = np.broadcast_to(new, old.shape)
        counts = counts - 1
        elements, counts = elements[counts > 0], counts[counts > 0]
    return values.reshape(x.shape)


def only_window(
    known: Callable[[int], Any], indices: Sequence[int], dims: Sequence[int], shape: Sequence[int],
    sizes: Sequence[int], clips: bool, new: int = 1,
) -> Window | None:  # fmt: skip
    """The only window of a gather or scatter, if operand 1, of shape `indices`, is known and holds one index.

    dims: the axes that the index addresses. clips: whether a window outside the array is clamped to it.
    """
    at = known(1) if np.prod(indices[:-1], dtype=int) == 1 else None
    if at is None:
        return None
    start = [0] * len(shape)
    for x, d in zip(at.reshape(-1).tolist(), dims, strict=True):
        start[d] = int(x)
    room = [full - part for full, part in zip(shape, sizes, strict=True)]
    if clips:
        start = [min(max(s, 0), r) for s, r in zip(start, room, strict=True)]
    inside = all(0 <= s <= r for s, r in zip(start, room, strict=True))
    return Window(tuple(start) if inside else None, tuple(sizes), new)
