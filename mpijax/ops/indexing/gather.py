"""Defines gather (windows of an array at computed positions) and `index_take`."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base import provided
from mpijax.core.rules import shape_rules, shape_types
from mpijax.core.rules.index_maps import INT64, Elements, Index, clamped
from mpijax.core.rules.lowering import Structural, Window
from mpijax.core.rules.primitive import Primitive
from mpijax.core.shapes.dimensions import min_dim
from mpijax.core.shapes.index import Lin
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops.indexing import by_owner, rows_on_request
from mpijax.ops.indexing.references import gather_reference, only_window
from mpijax.ops.indexing.slicing import concatenate
from mpijax.ops.shapes.moves import canonical_shape, shape_of, shifted
from mpijax.ops.shapes.reshape import expand_dims
from mpijax.transforms import key_reuse
from mpijax.transforms.batching import move_dim
from mpijax.transforms.zeros import Zero


class GatherDimensionNumbers(NamedTuple):
    """The roles of the axes of a gather. Indices are vectors along the last axis of `start_indices`.

    Attributes:
      offset_dims: axes of the result that belong to the window, ascending.
      collapsed_slice_dims: axes of the operand whose window has size 1 and no axis in the result, ascending.
      start_index_map: the operand axis of each component of an index.
      operand_batching_dims: axes of the operand that are batched with axes of `start_indices`, ascending.
      start_indices_batching_dims: those axes of `start_indices`.

    >>> rows = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> lax.gather(jnp.arange(6).reshape(3, 2), jnp.array([[2], [0]]), rows, slice_sizes=(1, 2))
    Array([[4, 5],
           [0, 1]], dtype=int32)
    """

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


class GatherScatterMode(enum.Enum):
    """How to handle windows that are not inside the array.

    CLIP clamps them. FILL_OR_DROP reads a fill value, and drops updates. PROMISE_IN_BOUNDS promises that there
    are none. ONE_HOT is a hint for accelerators, treated as CLIP.

    >>> points = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> lax.gather(jnp.arange(3), jnp.array([[1], [7]]), points, (1,), mode=lax.GatherScatterMode.CLIP)
    Array([1, 2], dtype=int32)
    """

    CLIP = enum.auto()
    FILL_OR_DROP = enum.auto()
    PROMISE_IN_BOUNDS = enum.auto()
    ONE_HOT = enum.auto()

    @staticmethod
    def from_any(s: str | GatherScatterMode | None) -> GatherScatterMode:
        """A mode from its name; None means FILL_OR_DROP."""
        if isinstance(s, GatherScatterMode):
            return s
        found = _MODES.get(s)
        if found is None:
            raise ValueError(f'Unknown gather mode "{s}"')
        return found


_MODES = {
    None: GatherScatterMode.FILL_OR_DROP,
    "fill": GatherScatterMode.FILL_OR_DROP,
    "drop": GatherScatterMode.FILL_OR_DROP,
    "clip": GatherScatterMode.CLIP,
    "promise_in_bounds": GatherScatterMode.PROMISE_IN_BOUNDS,
    "one_hot": GatherScatterMode.ONE_HOT,
}


def gather(
    operand: Any,
    start_indices: Any,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: str | GatherScatterMode | None = None,
    fill_value: Any = None,
) -> Any:
    """Windows of size `slice_sizes` at the positions `start_indices`.

    Args:
      start_indices: integers of shape `(..., number of components)`.
      mode: for windows outside the operand; by default a promise that there are none.
      fill_value: the value that they read in mode "fill"; if None, NaN, the least signed or greatest unsigned
        integer, or True.

    Returns:
      An array with the axes of `start_indices` except the last, and the window's axes at `offset_dims`.

    >>> rows = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> lax.gather(jnp.arange(6).reshape(3, 2), jnp.array([[2], [0]]), rows, slice_sizes=(1, 2))
    Array([[4, 5],
           [0, 1]], dtype=int32)
    """
    mode = GatherScatterMode.from_any(GatherScatterMode.PROMISE_IN_BOUNDS if mode is None else mode)
    if mode is not GatherScatterMode.FILL_OR_DROP:
        fill_value = None
    elif fill_value is None:
        fill_value = dtypes.out_of_bounds(typeof(operand).dtype)
    return gather_p.bind(
        operand,
        start_indices,
        dimension_numbers=dimension_numbers,
        slice_sizes=canonical_shape(slice_sizes),
        unique_indices=bool(unique_indices),
        indices_are_sorted=bool(indices_are_sorted),
        mode=mode,
        fill_value=fill_value,
    )


def index_take(src: Any, idxs: Sequence[Any], axes: Sequence[int]) -> Any:
    """`src[idxs]` for 1-D integer arrays `idxs` that index the given axes; indices wrap around.

    >>> lax.index_take(jnp.arange(6).reshape(3, 2), (jnp.array([2, 0]),), axes=(0,))
    Array([[4, 5],
           [0, 1]], dtype=int32)
    """
    shape = shape_of(src)
    indices = concatenate([expand_dims(i, (1,)) for i in idxs], 1)
    sizes = np.array([shape[a] for a in axes], typeof(indices).dtype)
    indices = indices % expand_dims(sizes, (0,))
    window = [1 if d in axes else size for d, size in enumerate(shape)]
    numbers = GatherDimensionNumbers(tuple(range(1, len(shape) - len(axes) + 1)), tuple(axes), tuple(axes))
    return gather(src, indices, numbers, window)


# ---------------------------------------------------------------- types


def check_sorted(op: str, name: str, dims: Sequence[int]) -> None:
    if any(b < a for a, b in zip(dims, dims[1:], strict=False)):
        raise TypeError(f"{name} in {op} op must be sorted; got {dims}")


def check_distinct(op: str, name: str, dims: Sequence[int]) -> None:
    if len(set(dims)) != len(dims):
        raise TypeError(f"{name} in {op} op must not repeat; got: {dims}.")


def check_in_range(op: str, name: str, dims: Sequence[int], rank: int) -> None:
    for d in dims:
        if not 0 <= d < rank:
            raise TypeError(f"Invalid {name} set in {op} op; valid range is [0, {rank}); got: {d}.")


def check_axes(op: str, name: str, dims: Sequence[int], rank: int) -> None:
    """Raise TypeError unless `dims` are ascending axes of an array of `rank` axes."""
    check_sorted(op, name, dims)
    check_distinct(op, name, dims)
    check_in_range(op, name, dims, rank)


def check_disjoint(op: str, name: str, dims, other: str, others) -> None:
    if set(dims) & set(others):
        raise TypeError(f"{name} and {other} in {op} op must be disjoint; got: {dims} and {others}.")


def check_batching(op: str, what: str, operand, indices, operand_dims, index_dims) -> None:
    """Raise TypeError unless batching axes of operand and indices match; `what` names their parameter."""
    title = op.capitalize()
    check_distinct(op, what, index_dims)
    check_in_range(op, what, index_dims, indices.ndim)
    if indices.ndim - 1 in index_dims:
        raise TypeError(
            f"{title} op cannot have the index vector dimension as a batching dimension; got {index_dims}."
        )
    if len(operand_dims) != len(index_dims):
        raise TypeError(
            f"{title} op requires equal numbers of operand_batching_dims and {what}, got {operand_dims} and "
            f"{index_dims}."
        )
    ours = tuple(operand.shape[d] for d in operand_dims)
    theirs = tuple(indices.shape[d] for d in index_dims)
    if ours != theirs:
        raise TypeError(
            f"{title} op requires operand batching dimensions and indices batching dimensions to have the "
            "same shape, got "
            f"{ours} and {theirs}."
        )


def check_index_map(op: str, name: str, dims, operand, indices) -> None:
    """Check that each component of an index is for one axis of the operand."""
    index_vector_dim = indices.ndim - 1
    title = op.capitalize()
    if index_vector_dim < 0:
        raise TypeError(
            f"{title} index leaf dimension must be within [0, rank(indices) + 1). rank(indices) is "
            f"{indices.ndim} and "
            f"{op} index leaf dimension is {index_vector_dim}."
        )
    if len(dims) != indices.shape[-1]:
        raise TypeError(
            f"{title} op has {len(dims)} elements in {name} and the bound of dimension {index_vector_dim=} "
            "of indices is "
            f"{indices.shape[-1]}. These two numbers must be equal."
        )
    for i, d in enumerate(dims):
        if not 0 <= d < operand.ndim:
            mapping = " mapping" if op == "scatter" else ""
            raise TypeError(f"Invalid {name}{mapping}; domain is [0, {operand.ndim}), got: {i}->{d}.")
    check_distinct(op, name, dims)


def _gather_type(operand, indices, *, dimension_numbers, slice_sizes, **_flags):
    dn = dimension_numbers
    if not dtypes.issubdtype(indices.dtype, np.integer):
        raise ValueError("indices must have an integer type")
    rank = len(dn.offset_dims) + indices.ndim - 1
    check_sorted("gather", "offset_dims", dn.offset_dims)
    check_distinct("gather", "offset_dims", dn.offset_dims)
    for i, d in enumerate(dn.offset_dims):
        if not 0 <= d < rank:
            raise TypeError(
                f"Offset dimension {i} in gather op is out of bounds; got {d}, but should have been in [0, "
                f"{rank})"
            )
    check_index_map("gather", "start_index_map", dn.start_index_map, operand, indices)
    check_axes("gather", "collapsed_slice_dims", dn.collapsed_slice_dims, operand.ndim)
    check_axes("gather", "operand_batching_dims", dn.operand_batching_dims, operand.ndim)
    for name in ("collapsed_slice_dims", "start_index_map"):
        check_disjoint("gather", name, getattr(dn, name), "operand_batching_dims", dn.operand_batching_dims)
    check_batching(
        "gather",
        "start_indices_batching_dims",
        operand,
        indices,
        dn.operand_batching_dims,
        dn.start_indices_batching_dims,
    )
    _check_window(operand, indices, dn, slice_sizes)
    removed = (*dn.collapsed_slice_dims, *dn.operand_batching_dims)
    window = iter([s for d, s in enumerate(slice_sizes) if d not in removed])
    batch = iter(indices.shape[:-1])
    shape = tuple(next(window) if d in dn.offset_dims else next(batch) for d in range(rank))
    return ShapedArray(shape, operand.dtype, operand.weak_type)


def _check_window(operand, indices, dn, slice_sizes) -> None:
    if operand.ndim != len(slice_sizes):
        raise TypeError(
            "Gather op must have one slice size for every input dimension; got: "
            f"len(slice_sizes)={len(slice_sizes)}, "
            f"input_shape.rank={operand.ndim}"
        )
    if len(slice_sizes) != len(dn.offset_dims) + len(dn.collapsed_slice_dims) + len(dn.operand_batching_dims):
        raise TypeError(
            "All components of the offset index in a gather op must either be a offset dimension or "
            "explicitly "
            f"collapsed/batching; got len(slice_sizes)={len(slice_sizes)}, "
            f"output_slice_sizes={dn.offset_dims}, "
            f"collapsed_slice_dims={dn.collapsed_slice_dims}, "
            f"operand_batching_dims={dn.operand_batching_dims}."
        )
    for i, (size, full) in enumerate(zip(slice_sizes, operand.shape, strict=True)):
        if indices.size and not 0 <= size <= full:
            raise TypeError(
                f"Slice size at index {i} in gather op is out of range, must be within [0, {full} + 1), got "
                f"{size}."
            )
    for i, d in enumerate(dn.collapsed_slice_dims):
        if slice_sizes[d] != 1:
            raise TypeError(
                f"Gather op can only collapse slice dims with bound 1, but bound is {slice_sizes[d]} for "
                f"index {d} at "
                f"position {i}."
            )
    for i, d in enumerate(dn.operand_batching_dims):
        if slice_sizes[d] > 1:
            raise TypeError(
                "Gather op can only have operand batching dims with bound 0/1, but bound is "
                f"{slice_sizes[d]} for index "
                f"{d} at position {i}."
            )


# ---------------------------------------------------------------- rules


def _gather_jvp(primals, tangents, *, fill_value, **params):
    (x, indices), (t, _) = primals, tangents
    out = gather_p.bind(x, indices, fill_value=fill_value, **params)
    if type(t) is Zero:
        return out, Zero.of_primal(out)
    fill = 0 if params["mode"] is GatherScatterMode.FILL_OR_DROP else None
    return out, gather_p.bind(t, indices, fill_value=fill, **params)


def _gather_transpose(
    ct, operand, indices, *, dimension_numbers, unique_indices, indices_are_sorted, mode, **_
):
    flags = {"unique_indices": unique_indices, "indices_are_sorted": indices_are_sorted, "mode": mode}
    return [provided.transposed_gather(ct, indices, operand.aval.shape, dimension_numbers, **flags), None]


def _gather_batch(
    axis, args, dims, *, dimension_numbers, slice_sizes, unique_indices, indices_are_sorted, **params
):
    """A batched operand with unbatched indices adds an axis to the window; batched indices add batch axes."""
    (x, indices), (x_dim, index_dim) = args, dims
    dn = dimension_numbers
    if x_dim is not None:
        x = move_dim(x, x_dim, 0)
    if index_dim is not None:
        indices = move_dim(indices, index_dim, 0)
    if index_dim is None:
        numbers = GatherDimensionNumbers(
            (0, *shifted(dn.offset_dims)),
            shifted(dn.collapsed_slice_dims),
            shifted(dn.start_index_map),
            shifted(dn.operand_batching_dims),
            dn.start_indices_batching_dims,
        )
        sizes = (axis.size, *slice_sizes)
    elif x_dim is None:
        numbers = dn._replace(
            offset_dims=tuple(d + 1 for d in dn.offset_dims),
            start_indices_batching_dims=shifted(dn.start_indices_batching_dims),
        )
        sizes = slice_sizes
        unique_indices = indices_are_sorted = False
    else:
        numbers = GatherDimensionNumbers(
            shifted(dn.offset_dims),
            shifted(dn.collapsed_slice_dims),
            shifted(dn.start_index_map),
            (0, *shifted(dn.operand_batching_dims)),
            (0, *shifted(dn.start_indices_batching_dims)),
        )
        sizes = (min_dim(axis.size, 1), *slice_sizes)
    out = gather_p.bind(
        x,
        indices,
        dimension_numbers=numbers,
        slice_sizes=sizes,
        unique_indices=unique_indices,
        indices_are_sorted=indices_are_sorted,
        **params,
    )
    return out, 0


def _gather_bounds(x, indices, *, dimension_numbers, slice_sizes, **_):
    shape, axes = shape_of(x), dimension_numbers.start_index_map
    return indices, np.array([shape[a] - slice_sizes[a] for a in axes]), axes


def _gather_element(r: Elements, index: Index, avals: Sequence[Any], params: dict[str, Any]) -> Any:
    shape, dn, sizes = avals[0].shape, params["dimension_numbers"], params["slice_sizes"]
    fills = params["mode"] is GatherScatterMode.FILL_OR_DROP
    batch = [i for d, i in enumerate(index) if d not in dn.offset_dims]
    removed = {*dn.collapsed_slice_dims, *dn.operand_batching_dims}
    position = [Lin(0)] * len(shape)
    for d, out_dim in zip((d for d in range(len(shape)) if d not in removed), dn.offset_dims, strict=True):
        position[d] = index[out_dim]
    for d, k in zip(dn.operand_batching_dims, dn.start_indices_batching_dims, strict=True):
        position[d] = batch[k]
    valid = None
    for k, d in enumerate(dn.start_index_map):
        last = shape[d] - sizes[d]
        raw = r.read(1, (*batch, Lin(k)))
        if fills:
            inside = _within(r, raw, last)
            valid = inside if valid is None else r.op("and", valid, inside)
        start = clamped(r, raw, 0, max(last, 0))
        position[d] = position[d] + r.as_index(start, max(last, 0) + 1)
    if 0 in shape:
        return _fill(r, avals[0].dtype, params)
    value = r.read(0, tuple(position))
    return value if valid is None else r.op("select_n", valid, _fill(r, value.dtype, params), value)


def _within(r: Elements, raw: Any, last: int) -> Any:
    """Whether 0 <= raw <= last."""
    wide = r.convert(raw, INT64)
    return r.op("and", r.op("ge", wide, r.const(0, INT64)), r.op("le", wide, r.const(last, INT64)))


def _fill(r: Elements, dtype: Any, params: dict[str, Any]) -> Any:
    """The value that out-of-bounds positions read."""
    given = params["fill_value"]
    value = dtypes.out_of_bounds(dtype) if given is None else given
    return r.const(value, dtype if isinstance(dtype, np.dtype) else dtype.physical_dtype)


def _gather_window(params: dict[str, Any], shapes: Sequence[tuple[int, ...]], known: Callable) -> Window | None:
    dn, sizes, shape = params["dimension_numbers"], params["slice_sizes"], shapes[0]
    clips = params["mode"] is not GatherScatterMode.FILL_OR_DROP
    found = only_window(known, shapes[1], dn.start_index_map, shape, sizes, clips)
    return None if found is None or found.start is None or 0 in shape else found


gather_p: Primitive = Primitive(
    "gather",
    type_rule=_gather_type,
    reference=gather_reference,
    lower=Structural(_gather_element, cost=20, window=_gather_window),
    jvp=_gather_jvp,
    transpose=_gather_transpose,
    batch=_gather_batch,
    sharding=shape_rules.gather.but(better=by_owner.gather(lambda: gather_p, rows_on_request.plan)),
    sharding_type=shape_types.gather,
    bounds=_gather_bounds,
    keys=key_reuse.SAME,
)
