"""Defines slices with computed starts: dynamic_slice, dynamic_update_slice and variants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.rules import shape_rules, sum_types
from mpijax.core.rules.index_maps import Elements, Index, clamped
from mpijax.core.rules.lowering import Structural, Window, Writes
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.core.shapes.dimensions import DimExpr, dimension, position_dtype
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise.convert import convert_element_type
from mpijax.ops.families import check_same_dtypes
from mpijax.ops.indexing.gather import GatherDimensionNumbers, GatherScatterMode, gather_p
from mpijax.ops.indexing.scatter import ScatterDimensionNumbers, scatter_p
from mpijax.ops.indexing.slicing import concatenate
from mpijax.ops.rules import const_like, full_like, is_linear
from mpijax.ops.shapes.moves import canonical_shape, shape_of
from mpijax.ops.shapes.reshape import broadcast, broadcast_in_dim, expand_dims, squeeze
from mpijax.ops.windows import by_owner as windows_by_owner
from mpijax.transforms import key_reuse
from mpijax.transforms.batching import batch_at
from mpijax.transforms.jit import jit
from mpijax.transforms.zeros import Zero, instantiate

# ---------------------------------------------------------------- wrappers


def dynamic_slice(
    operand: Any,
    start_indices: Any,
    slice_sizes: Sequence[int],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Any:
    """A slice of `slice_sizes` from `start_indices`, which may be computed.

    Starts are clamped so that the slice is inside the array. Negative starts count from the end;
    `allow_negative_indices=False` (for all axes or for each) promises that there are none.

    >>> mpijax.jit(lambda i: lax.dynamic_slice(jnp.arange(6), (i,), (3,)))(2)
    Array([2, 3, 4], dtype=int32)
    """
    starts = _starts(operand, start_indices, allow_negative_indices)
    return dynamic_slice_p.bind(operand, *starts, slice_sizes=canonical_shape(slice_sizes))


def dynamic_update_slice(
    operand: Any, update: Any, start_indices: Any, *, allow_negative_indices: bool | Sequence[bool] = True
) -> Any:
    """`operand` with the slice at `start_indices` replaced by `update`; starts as for `dynamic_slice`.

    >>> lax.dynamic_update_slice(jnp.zeros(5), jnp.array([1.0, 2.0]), (3,))
    Array([0., 0., 0., 1., 2.], dtype=float32)
    """
    starts = _starts(operand, start_indices, allow_negative_indices)
    return dynamic_update_slice_p.bind(operand, update, *starts)


def dynamic_slice_in_dim(
    operand: Any, start_index: Any, slice_size: int, axis: int = 0, *, allow_negative_indices: bool = True
) -> Any:
    """`dynamic_slice` along one axis.

    >>> lax.dynamic_slice_in_dim(jnp.arange(6), 5, 3)
    Array([3, 4, 5], dtype=int32)
    """
    shape, axis = shape_of(operand), int(axis)
    sizes = list(shape)
    sizes[axis] = dimension(slice_size)
    starts, negative = _along(start_index, axis, len(shape), allow_negative_indices)
    return dynamic_slice(operand, starts, sizes, allow_negative_indices=negative)


def dynamic_update_slice_in_dim(
    operand: Any, update: Any, start_index: Any, axis: int, *, allow_negative_indices: bool = True
) -> Any:
    """`dynamic_update_slice` along one axis.

    >>> lax.dynamic_update_slice_in_dim(jnp.zeros(4), jnp.array([1.0, 2.0]), 1, axis=0)
    Array([0., 1., 2., 0.], dtype=float32)
    """
    starts, negative = _along(start_index, int(axis), typeof(operand).ndim, allow_negative_indices)
    return dynamic_update_slice(operand, update, starts, allow_negative_indices=negative)


def _dynamic_index_in_dim(
    operand: Any, index: Any, axis: int = 0, keepdims: bool = True, *, allow_negative_indices: bool = True
) -> Any:
    """`operand[index]` along one axis; the axis stays with size 1 if `keepdims`.

    >>> lax.dynamic_index_in_dim(jnp.array([[1, 2], [3, 4]]), 1, axis=1, keepdims=False)
    Array([2, 4], dtype=int32)
    """
    result = dynamic_slice_in_dim(operand, index, 1, axis, allow_negative_indices=allow_negative_indices)
    return result if keepdims else squeeze(result, (int(axis),))


def _dynamic_update_index_in_dim(
    operand: Any, update: Any, index: Any, axis: int, *, allow_negative_indices: bool = True
) -> Any:
    """`operand` with the slice at `index` along one axis replaced by `update`, with or without that axis.

    >>> lax.dynamic_update_index_in_dim(jnp.zeros((2, 2)), jnp.array([7.0, 8.0]), 1, axis=0)
    Array([[0., 0.],
           [7., 8.]], dtype=float32)
    """
    axis = int(axis)
    if typeof(update).ndim != typeof(operand).ndim:
        update = expand_dims(update, (axis,))
    return dynamic_update_slice_in_dim(
        operand, update, index, axis, allow_negative_indices=allow_negative_indices
    )


def _named(fun, name: str):
    fun.__name__ = fun.__qualname__ = name
    return fun


dynamic_index_in_dim = jit(
    _named(_dynamic_index_in_dim, "dynamic_index_in_dim"),
    static_argnames=("axis", "keepdims", "allow_negative_indices"),
)
dynamic_update_index_in_dim = jit(
    _named(_dynamic_update_index_in_dim, "dynamic_update_index_in_dim"),
    static_argnames=("axis", "allow_negative_indices"),
)


def _along(start: Any, axis: int, ndim: int, allow_negative: bool) -> tuple[list[Any], list[bool]]:
    starts: list[Any] = [const_like(start, 0)] * ndim
    starts[axis] = start
    negative = [False] * ndim
    negative[axis] = allow_negative
    return starts, negative


def _starts(operand: Any, start_indices: Any, allow_negative: bool | Sequence[bool]) -> list[Any]:
    """One start for each axis; negative starts count from the end."""
    shape = shape_of(operand)
    if not isinstance(start_indices, (list, tuple)):
        aval = typeof(start_indices)
        if aval.ndim != 1:
            raise ValueError(f"Slice indices must be a 1D sequence, got {aval.shape}")
        start_indices = list(start_indices)
    if len(start_indices) != len(shape):
        raise ValueError(
            f"Length of slice indices must match number of operand dimensions ({len(start_indices)} vs "
            f"{shape})"
        )
    if isinstance(allow_negative, bool):
        allow_negative = [allow_negative] * len(shape)
    return [
        _start(i, d, negative) for i, d, negative in zip(start_indices, shape, allow_negative, strict=True)
    ]


def _start(index: Any, size: int, allow_negative: bool) -> Any:
    aval = typeof(index)
    if dtypes.issubdtype(aval.dtype, np.unsignedinteger):
        return index
    if isinstance(index, (int, np.integer)):
        if index < 0 and not allow_negative:
            raise ValueError(
                f"Index {index} is out of bounds for dimension {size} if allow_negative_indices=False"
            )
        return _scalar(index + size if index < 0 else index, aval.dtype)
    if not allow_negative or not dtypes.issubdtype(aval.dtype, np.integer):
        return index
    dtype = position_dtype(size, aval.dtype)
    negative = registry["lt"].bind(index, const_like(index, 0))
    # As in JAX, the sum is not weakly typed.
    strong = convert_element_type(index, dtype)
    wrapped = registry["add"].bind(strong, _scalar(size, dtype))
    return registry["select_n"].bind(negative, index if dtype == aval.dtype else strong, wrapped)


def _scalar(size: Any, dtype: np.dtype) -> Any:
    """A size as a value."""
    return convert_element_type(size, dtype) if isinstance(size, DimExpr) else dtype.type(size)


# ---------------------------------------------------------------- rules


def _check_starts(name: str, starts, got: str) -> None:
    if any(i.ndim != 0 for i in starts):
        raise TypeError(f"start_indices arguments to {name} must be scalars, got indices {starts}")
    if any(i.dtype != starts[0].dtype or not dtypes.issubdtype(i.dtype, np.integer) for i in starts):
        listed = ", ".join(i.dtype.name for i in starts)
        raise TypeError(f"index arguments to {name} must be integers of the same type, got{got} {listed}")


def _slice_type(operand, *starts, slice_sizes):
    if len(starts) != operand.ndim or len(slice_sizes) != operand.ndim:
        raise TypeError(
            f"dynamic_slice needs a start and a size for each dimension, got {len(starts)} starts and "
            "slice_sizes "
            f"{slice_sizes} for operand shape {operand.shape}."
        )
    if any(size > d for size, d in zip(slice_sizes, operand.shape, strict=True)):
        raise TypeError(
            "slice slice_sizes must be less than or equal to operand shape, got slice_sizes "
            f"{slice_sizes} for operand shape {operand.shape}."
        )
    if any(size < 0 for size in slice_sizes):
        raise TypeError(
            f"slice slice_sizes must be greater than or equal to zero, got slice_sizes of {slice_sizes}."
        )
    _check_starts("dynamic_slice", starts, ":")
    return operand.update(shape=slice_sizes)


def _window(shape, starts, sizes) -> tuple[slice, ...]:
    """The slice of the given sizes, clamped to the array."""
    firsts = [min(max(int(i), 0), full - size) for i, full, size in zip(starts, shape, sizes, strict=False)]
    return tuple(slice(first, first + size) for first, size in zip(firsts, sizes, strict=True))


def _slice_reference(x, *starts, slice_sizes):
    return x[_window(x.shape, starts, slice_sizes)].copy()


def _slice_jvp(primals, tangents, *, slice_sizes):
    x, *starts = primals
    tangent = tangents[0]
    if type(tangent) is not Zero:
        tangent = dynamic_slice_p.bind(tangent, *starts, slice_sizes=slice_sizes)
    out = dynamic_slice_p.bind(x, *starts, slice_sizes=slice_sizes)
    return out, Zero.of_primal(out) if type(tangent) is Zero else tangent


def _slice_transpose(ct, operand, *starts, slice_sizes):
    zeros = full_like(ct, 0, operand.aval.shape)
    return [dynamic_update_slice_p.bind(zeros, ct, *starts), *(None for _ in starts)]


def _index_vectors(axis, starts, dims):
    """Starts as the index vectors of gather and scatter; the batch axis, if any, comes first."""
    if not starts:
        return np.zeros(0, np.int32), None
    if all(d is None for d in dims):
        return concatenate([broadcast(i, (1,)) for i in starts], 0), None
    return concatenate([_index_column(i, d, axis) for i, d in zip(starts, dims, strict=True)], 1), 0


def _index_column(start, dim, axis):
    if dim is not None:
        return broadcast_in_dim(start, (axis.size, 1), (0,))
    if axis.split is None:
        return broadcast_in_dim(start, (axis.size, 1), ())
    return batch_at(broadcast(start, (1,)), None, 0, axis)


def _slice_batch(axis, args, dims, *, slice_sizes):
    operand, *starts = args
    all_axes = tuple(range(len(slice_sizes)))
    index, index_dim = _index_vectors(axis, starts, dims[1:])
    return gather_p.batch(
        axis,
        (operand, index),
        (dims[0], index_dim),
        dimension_numbers=GatherDimensionNumbers(all_axes, (), all_axes),
        slice_sizes=slice_sizes,
        unique_indices=True,
        indices_are_sorted=True,
        mode=GatherScatterMode.CLIP,
        fill_value=None,
    )


def _slice_element(r: Elements, index: Index, avals: Sequence[Any], params: dict[str, Any]) -> Any:
    source = []
    for d, (i, full, part) in enumerate(zip(index, avals[0].shape, params["slice_sizes"], strict=True)):
        if full == part:
            source.append(i)
            continue
        start = clamped(r, r.read(1 + d, ()), 0, full - part)
        source.append(i + r.as_index(start, full - part + 1))
    return r.read(0, tuple(source))


def _slice_window(params: dict[str, Any], shapes: Sequence[tuple[int, ...]], known: Callable) -> Window | None:
    start = _known_start(known, 1, shapes[0], params["slice_sizes"])
    return None if start is None else Window(start, params["slice_sizes"])


def _known_start(
    known: Callable, first: int, shape: Sequence[int], sizes: Sequence[int]
) -> tuple[int, ...] | None:
    """The start of a window, clamped to the array, from operands `first` and following; None if it is unknown."""
    start = []
    for k, (full, part) in enumerate(zip(shape, sizes, strict=True), start=first):
        at = 0 if full == part else known(k)
        if at is None:
            return None
        start.append(min(max(int(at), 0), full - part))
    return tuple(start)


dynamic_slice_p = Primitive(
    "dynamic_slice",
    type_rule=_slice_type,
    reference=_slice_reference,
    lower=Structural(_slice_element, window=_slice_window),
    jvp=_slice_jvp,
    transpose=_slice_transpose,
    batch=_slice_batch,
    sharding=shape_rules.dynamic_slice.but(better=windows_by_owner.dynamic_slice),
    sums=sum_types.as_operand(0),
    bounds=lambda x, *starts, slice_sizes: (starts, np.subtract(shape_of(x), slice_sizes), range(len(starts))),
    keys=key_reuse.SAME,
)


def _update_type(operand, update, *starts):
    if operand.ndim != update.ndim:
        raise TypeError(
            "dynamic_update_slice update must have the same rank as operand, got update shape "
            f"{update.shape} for operand shape {operand.shape}."
        )
    if operand.ndim != len(starts):
        raise TypeError(
            "dynamic_update_slice start_indices must have length equal to the rank of operand, got indices "
            f"{starts} for operand shape {operand.shape}."
        )
    if any(u > d for u, d in zip(update.shape, operand.shape, strict=True)):
        raise TypeError(
            "dynamic_update_slice update shape must be smaller than operand shape, got update shape "
            f"{update.shape} for operand shape {operand.shape}."
        )
    check_same_dtypes("dynamic_update_slice", (operand, update))
    _check_starts("dynamic_update_slice", starts, "")
    return operand


def _update_reference(x, update, *starts):
    out = x.copy()
    sizes = update.shape[: len(starts)]
    out[_window(x.shape, starts, sizes)] = update
    return out


def _update_jvp(primals, tangents):
    operand, update, *starts = primals
    out = dynamic_update_slice_p.bind(operand, update, *starts)
    return out, dynamic_update_slice_p.bind(instantiate(tangents[0]), instantiate(tangents[1]), *starts)


def _update_transpose(ct, operand, update, *starts):
    shape = (update.aval if is_linear(update) else typeof(update)).shape
    zeros = full_like(ct, 0, shape)
    ct_operand = dynamic_update_slice_p.bind(ct, zeros, *starts) if is_linear(operand) else None
    ct_update = dynamic_slice_p.bind(ct, *starts, slice_sizes=shape) if is_linear(update) else None
    return [ct_operand, ct_update, *(None for _ in starts)]


def _update_batch(axis, args, dims):
    operand, update, *starts = args
    all_axes = tuple(range(len(starts)))
    index, index_dim = _index_vectors(axis, starts, dims[2:])
    return scatter_p.batch(
        axis,
        (operand, index, update),
        (dims[0], index_dim, dims[1]),
        dimension_numbers=ScatterDimensionNumbers(all_axes, (), all_axes),
        indices_are_sorted=True,
        unique_indices=True,
        mode=GatherScatterMode.CLIP,
        update_jaxpr=None,
        update_consts=(),
    )


def _update_window(params: dict[str, Any], shapes: Sequence[tuple[int, ...]], known: Callable) -> Window | None:
    start = _known_start(known, 2, shapes[0], shapes[1])
    return None if start is None else Window(start, shapes[1])


dynamic_update_slice_p = Primitive(
    "dynamic_update_slice",
    type_rule=_update_type,
    reference=_update_reference,
    lower=Structural(writes=Writes.DYNAMIC_UPDATE_SLICE, window=_update_window),
    jvp=_update_jvp,
    transpose=_update_transpose,
    batch=_update_batch,
    sharding=shape_rules.dynamic_update_slice.but(better=windows_by_owner.dynamic_update_slice),
    sums=sum_types.updated,
    bounds=lambda x, new, *starts: (starts, np.subtract(shape_of(x), shape_of(new)), range(len(starts))),
    keys=key_reuse.Signature({1: True}, forwards={0: 0}),
)
