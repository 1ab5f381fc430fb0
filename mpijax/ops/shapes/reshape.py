"""Operations that change the shape: broadcast, reshape, transpose, squeeze, expand_dims, rev."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax.core.rules import shape_rules, shape_types, sum_types
from mpijax.core.rules.index_maps import Elements, Index
from mpijax.core.rules.lowering import Decompose, Structural, ViewKind
from mpijax.core.rules.registry import registry
from mpijax.core.rules.sharding_types import axes_of
from mpijax.core.shapes.index import Lin, reindexed
from mpijax.core.sharding.split import dimensions
from mpijax.core.tracing.out_sharding import explicit_sharding, with_out_sharding
from mpijax.core.types.array_api import Array
from mpijax.core.types.axes import canonical_axis
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise.convert import stage
from mpijax.ops.shapes.moves import (
    canonical_shape,
    check_shapelike,
    index_tuple,
    movement,
    shape_of,
    shifted,
)
from mpijax.transforms.batching import move_dim

# ---------------------------------------------------------------- broadcast


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The common shape to which NumPy's rules broadcast arrays of the given shapes.

    Raises:
      ValueError: if an axis has two different sizes other than 1.

    >>> lax.broadcast_shapes((3, 1), (2,))
    (3, 2)
    """
    shapes = tuple(canonical_shape(s) for s in shapes)
    if not shapes:
        raise ValueError("At least one shape is required.")
    for shape in shapes:
        if any(d < 0 for d in shape):
            raise TypeError(
                f"Only non-negative indices are allowed when broadcasting static shapes, but got shape {shape!r}."
            )
    ndim = max(map(len, shapes))
    result = []
    for dims in zip(*((1,) * (ndim - len(s)) + s for s in shapes), strict=True):  # type: ignore[operator]
        sizes = set(dims) - {1}
        if len(sizes) > 1:
            raise ValueError(f"Incompatible shapes for broadcasting: shapes={list(shapes)}")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def broadcast(operand: Any, sizes: Sequence[int], *, out_sharding=None) -> Any:
    """Broadcast an array along new leading axes of the given sizes.

    >>> lax.broadcast(jnp.array([1, 2]), (3,))
    Array([[1, 2],
           [1, 2],
           [1, 2]], dtype=int32)
    """
    if len(sizes) == 0:
        return with_out_sharding(stage(operand), out_sharding, "broadcast")
    shape = shape_of(operand)
    dims = tuple(range(len(sizes), len(sizes) + len(shape)))
    return broadcast_in_dim(operand, tuple(sizes) + shape, dims, out_sharding=out_sharding)


def broadcast_to(arr: Any, shape: Sequence[int], sharding=None) -> Any:
    """Broadcast an array to `shape` by NumPy's rules. Raises ValueError if they do not allow it.

    >>> lax.broadcast_to(jnp.array([1, 2]), (3, 2))
    Array([[1, 2],
           [1, 2],
           [1, 2]], dtype=int32)
    """
    shape = canonical_shape(shape)
    aval = typeof(arr)
    if aval.shape == shape:
        return with_out_sharding(stage(arr), sharding, "broadcast_to")
    lead = len(shape) - aval.ndim
    if lead < 0:
        raise ValueError(
            f"Cannot broadcast to shape with fewer dimensions: arr_shape={aval.shape} shape={shape}"
        )
    explicit = explicit_sharding(sharding, "broadcast_to")
    asked = ((),) * len(shape) if explicit is None else explicit.spec.split(len(shape))
    moved = explicit is not None and any(a and a != b for a, b in zip(axes_of(aval), asked[lead:], strict=True))
    if moved or any(d not in (1, full) for d, full in zip(aval.shape, shape[lead:], strict=True)):
        wanted = f"{aval.str_short(True).partition('[')[0]}[{dimensions(shape, asked)}]"
        raise ValueError(
            f"Incompatible types for broadcasting: input type={aval.str_short(True)} and requested type={wanted}"
        )
    return broadcast_in_dim(arr, shape, tuple(range(lead, len(shape))), out_sharding=sharding)


def broadcast_in_dim(
    operand: Any, shape: Sequence[int], broadcast_dimensions: Sequence[int], *, out_sharding=None
) -> Any:
    """Broadcast an array to `shape`; axis i of the operand becomes axis `broadcast_dimensions[i]` of the result.

    Each axis of the operand has size 1, or the size of its axis in the result.

    >>> lax.broadcast_in_dim(jnp.array([1, 2]), (2, 3), broadcast_dimensions=(0,))
    Array([[1, 1, 1],
           [2, 2, 2]], dtype=int32)
    """
    shape, dims = canonical_shape(shape), tuple(broadcast_dimensions)
    if isinstance(operand, Array) and operand.shape == shape and dims == tuple(range(len(shape))):  # type: ignore[attr-defined]
        return with_out_sharding(operand, out_sharding, "broadcast_in_dim")
    sharding = explicit_sharding(out_sharding, "broadcast_in_dim")
    out = broadcast_in_dim_p.bind(operand, shape=shape, broadcast_dimensions=dims, sharding=sharding)
    return with_out_sharding(out, out_sharding, "broadcast_in_dim")


def broadcast_to_rank(x: Any, rank: int) -> Any:
    """Prepend axes of size 1 until x has `rank` axes.

    >>> lax.broadcast_to_rank(jnp.array([1, 2]), 3).shape
    (1, 1, 2)
    """
    ndim = typeof(x).ndim
    return stage(x) if ndim == rank else broadcast(x, (1,) * (rank - ndim))


def _broadcast_shape(operand, *, shape, broadcast_dimensions, sharding):
    dims = broadcast_dimensions
    check_shapelike("broadcast_in_dim", "shape", shape)
    check_shapelike("broadcast_in_dim", "broadcast_dimensions", dims)
    if operand.ndim != len(dims):
        raise TypeError(
            "broadcast_in_dim broadcast_dimensions must have length equal to operand ndim; got "
            "broadcast_dimensions "
            f"{dims} for operand ndim {operand.ndim}."
        )
    if len(shape) < operand.ndim:
        raise TypeError(
            "broadcast_in_dim target broadcast shape must have equal or higher rank to the operand shape; "
            "got operand "
            f"ndim {operand.ndim} and target broadcast ndim {len(shape)}."
        )
    if not set(dims) <= set(range(len(shape))):
        raise TypeError(
            "broadcast_in_dim broadcast_dimensions must be a subset of output dimensions, got "
            f"{dims} for operand ndim {operand.ndim} and shape {shape}."
        )
    if any(d not in (1, shape[i]) for d, i in zip(operand.shape, dims, strict=True)):
        raise TypeError(
            "broadcast_in_dim operand dimension sizes must either be 1, or be equal to their corresponding "
            "dimensions "
            f"in the target broadcast shape; got operand of shape {operand.shape}, target broadcast shape "
            f"{shape}, "
            f"broadcast_dimensions {dims} "
        )
    if len(set(dims)) != len(dims):
        raise TypeError(
            "broadcast_in_dim broadcast_dimensions must not contain duplicates, got broadcast_dimensions "
            f"{dims}"
        )
    return shape


def _broadcast_reference(x, *, shape, broadcast_dimensions, sharding):
    dims = broadcast_dimensions
    words = x.shape[len(dims) :]
    order = sorted(range(len(dims)), key=lambda i: dims[i])
    placed = [1] * len(shape)
    for i, d in enumerate(dims):
        placed[d] = x.shape[i]
    x = x.transpose(*order, *range(len(dims), x.ndim)).reshape(*placed, *words)
    return np.ascontiguousarray(np.broadcast_to(x, tuple(shape) + words))


def _broadcast_transpose(ct, operand, *, shape, broadcast_dimensions, sharding):
    """Sum over the axes along which the operand was broadcast."""
    unit = [i for i, d in enumerate(operand.aval.shape) if d == 1]
    kept = {d for i, d in enumerate(broadcast_dimensions) if i not in unit}
    axes = tuple(d for d in range(len(shape)) if d not in kept)
    total = registry["reduce_sum"].bind(ct, axes=axes, out_sharding=None)
    order = np.argsort(np.argsort([d for i, d in enumerate(broadcast_dimensions) if i not in unit]))
    return [expand_dims(transpose(total, order), unit)]


def _broadcast_batch(axis, x, dim, *, shape, broadcast_dimensions, sharding):
    x, of_batch = move_dim(x, dim, 0), axis.of_batch(sharding, 0)
    return broadcast_in_dim(x, (axis.size, *shape), (0, *shifted(broadcast_dimensions)), out_sharding=of_batch), 0


def _broadcast_pretty(eqn, _names):
    dims = eqn.params["broadcast_dimensions"]
    return [("broadcast_dimensions", dims)] if dims else []


def _broadcast_element(r: Elements, index: Index, avals: Sequence[Any], params: dict[str, Any]) -> Any:
    shape = avals[0].shape
    return r.read(0, tuple(index[d] if shape[i] != 1 else Lin(0) for i, d in enumerate(params["broadcast_dimensions"])))


broadcast_in_dim_p = movement(
    "broadcast_in_dim",
    shape=_broadcast_shape,
    reference=_broadcast_reference,
    transpose=_broadcast_transpose,
    batch=_broadcast_batch,
    lower=Structural(_broadcast_element, ViewKind.REPEATED, axes=lambda params: params["broadcast_dimensions"]),
    pretty=_broadcast_pretty,
    sharding=shape_rules.broadcast_in_dim,
)

# ---------------------------------------------------------------- reshape


def reshape(
    operand: Any, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None, *, out_sharding=None
) -> Any:
    """Rearrange the elements in row-major order to another shape of the same size.

    Args:
      dimensions: an order to which the operand's axes are transposed first.

    >>> lax.reshape(jnp.arange(6), (2, 3))
    Array([[0, 1, 2],
           [3, 4, 5]], dtype=int32)
    """
    new_sizes = canonical_shape(new_sizes)
    shape = shape_of(operand)
    dims = None if dimensions is None else index_tuple(dimensions)
    if dims == tuple(range(len(shape))):
        dims = None
    if shape and shape == new_sizes and dims is None and isinstance(operand, Array):
        return with_out_sharding(operand, out_sharding, "reshape")
    primitive = reshape_p if dims is None else reshape_permuted_p
    sharding = explicit_sharding(out_sharding, "reshape")
    out = primitive.bind(operand, new_sizes=new_sizes, dimensions=dims, sharding=sharding)
    return with_out_sharding(out, out_sharding, "reshape")


def collapse(operand: Any, start_dimension: int, stop_dimension: int | None = None) -> Any:
    """Merge the axes [start_dimension, stop_dimension) into one; to the last axis if `stop_dimension` is None.

    >>> lax.collapse(jnp.zeros((2, 3, 4)), 1, 3).shape
    (2, 12)
    """
    shape = shape_of(operand)
    low, high, _ = slice(start_dimension, stop_dimension).indices(len(shape))
    if high < low:
        raise ValueError(
            f"Invalid dimension range passed to collapse: {shape}[{start_dimension}:{stop_dimension}]"
        )
    return reshape(operand, shape[:low] + (math.prod(shape[low:high]),) + shape[high:])


def _reshape_shape(operand, *, new_sizes, dimensions, sharding):
    if any(d < 0 for d in new_sizes):
        raise TypeError(f"reshape new_sizes must all be positive, got {new_sizes}.")
    if math.prod(new_sizes) != operand.size:
        raise TypeError(
            f"reshape total size must be unchanged, got new_sizes {new_sizes} for shape {operand.shape}."
        )
    if dimensions is not None and set(dimensions) != set(range(operand.ndim)):
        raise TypeError(
            "reshape dimensions must be a permutation of operand dimensions, got dimensions "
            f"{dimensions} for shape {operand.shape}."
        )
    return new_sizes


def _reshape_reference(x, *, new_sizes, dimensions, sharding):
    words = () if math.prod(new_sizes) == x.size else x.shape[-1:]
    if dimensions is not None:
        x = x.transpose(*dimensions, *range(len(dimensions), x.ndim))
    return x.reshape(tuple(new_sizes) + words)


def _reshape_transpose(ct, operand, *, new_sizes, dimensions, sharding):
    shape = operand.aval.shape
    if dimensions is None:
        return [reshape(ct, shape)]
    ct = reshape(ct, tuple(shape[d] for d in dimensions))
    return [transpose(ct, np.argsort(dimensions))]


def _reshape_batch(axis, x, dim, *, new_sizes, dimensions, sharding):
    x = move_dim(x, dim, 0)
    dims = None if dimensions is None else (0, *shifted(dimensions))
    return reshape(x, (axis.size, *new_sizes), dims, out_sharding=axis.of_batch(sharding, 0)), 0


def _reshape_element(r: Elements, index: Index, avals: Sequence[Any], params: dict[str, Any]) -> Any:
    return r.read(0, reindexed(index, params["new_sizes"], avals[0].shape))


reshape_p = movement(
    "reshape",
    shape=_reshape_shape,
    reference=_reshape_reference,
    lower=Structural(_reshape_element, ViewKind.REGROUPED),
    transpose=_reshape_transpose,
    batch=_reshape_batch,
    sharding=shape_rules.reshape,
    sharding_type=shape_types.reshape,
    sums=sum_types.reshaped,
)


def _permute_then_reshape(x, *, new_sizes, dimensions, sharding):
    return reshape_p.bind(transpose(x, dimensions), new_sizes=new_sizes, dimensions=None, sharding=None)


# Prints as `reshape`, which JAX uses here; a separate primitive because it is two operations.
reshape_permuted_p = movement(
    "reshape",
    shape=_reshape_shape,
    reference=_reshape_reference,
    transpose=_reshape_transpose,
    batch=_reshape_batch,
    lower=Decompose(_permute_then_reshape),
    key="reshape_permuted",
)

# ---------------------------------------------------------------- transpose


def transpose(operand: Any, permutation: Sequence[int]) -> Any:
    """Reorder axes: axis i of the result is axis `permutation[i]` of the operand.

    >>> lax.transpose(jnp.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    permutation = tuple(operator.index(d) for d in permutation)
    if permutation == tuple(range(typeof(operand).ndim)) and isinstance(operand, Array):
        return operand
    return transpose_p.bind(operand, permutation=permutation)


def _transpose_shape(operand, *, permutation):
    if not isinstance(permutation, (tuple, list, np.ndarray)):
        raise TypeError(f"transpose permutation must be a tuple/list/ndarray, got {type(permutation)}.")
    if tuple(sorted(permutation)) != tuple(range(operand.ndim)):
        raise TypeError(
            "transpose permutation isn't a permutation of operand dimensions, got permutation "
            f"{permutation} for operand shape {operand.shape}."
        )
    return tuple(operand.shape[d] for d in permutation)


def _transpose_batch(axis, x, dim, *, permutation):
    return transpose(x, (dim, *(d if d < dim else d + 1 for d in permutation))), 0


def _transpose_element(r: Elements, index: Index, avals: Sequence[Any], params: dict[str, Any]) -> Any:
    source = [Lin(0)] * len(index)
    for out_dim, in_dim in enumerate(params["permutation"]):
        source[in_dim] = index[out_dim]
    return r.read(0, tuple(source))


def _transposed_axes(params: dict[str, Any]) -> list[int]:
    order = params["permutation"]
    return sorted(range(len(order)), key=order.__getitem__)


transpose_p = movement(
    "transpose",
    shape=_transpose_shape,
    reference=lambda x, *, permutation: np.ascontiguousarray(
        x.transpose(*permutation, *range(len(permutation), x.ndim))
    ),
    transpose=lambda ct, _operand, *, permutation: [transpose(ct, np.argsort(permutation).tolist())],
    batch=_transpose_batch,
    lower=Structural(_transpose_element, ViewKind.STRIDED, axes=_transposed_axes),
    sharding=shape_rules.transpose,
)

# ---------------------------------------------------------------- squeeze, expand_dims


def squeeze(array: Any, dimensions: Sequence[int]) -> Any:
    """Remove axes of size 1.

    >>> lax.squeeze(jnp.zeros((1, 3, 1)), (0, 2)).shape
    (3,)
    """
    ndim = typeof(array).ndim
    dims = tuple(sorted(canonical_axis(d, ndim) for d in dimensions))
    if not dims and isinstance(array, Array):
        return array
    return squeeze_p.bind(array, dimensions=dims)


def expand_dims(array: Any, dimensions: Sequence[int]) -> Any:
    """Insert axes of size 1, which become axes `dimensions` of the result.

    >>> lax.expand_dims(jnp.zeros((2, 3)), (0, 3)).shape
    (1, 2, 3, 1)
    """
    if not len(dimensions) and isinstance(array, Array):
        return array
    if len(set(dimensions)) != len(dimensions):
        raise ValueError(f"repeated axis in lax.expand_dims: {dimensions}")
    shape = shape_of(array)
    ndim = len(shape) + len(dimensions)
    dims = [canonical_axis(d, ndim) for d in dimensions]
    if len(set(dims)) != len(dims):
        raise ValueError(f"repeated axis in lax.expand_dims: {dims}")
    sizes = iter(shape)
    result = [1 if d in dims else next(sizes) for d in range(ndim)]
    kept = tuple(d for d in range(ndim) if d not in dims)
    return broadcast_in_dim(array, result, kept)


def _squeeze_shape(operand, *, dimensions):
    shape = operand.shape
    if len(set(dimensions)) != len(dimensions):
        raise ValueError(f"dimensions are not unique: {dimensions}")
    if not all(0 <= d < len(shape) for d in dimensions):
        raise ValueError(f"dimensions outside range [0, ndim): {dimensions}")
    if any(shape[d] != 1 for d in dimensions):
        raise ValueError(
            f"cannot select an axis to squeeze out which has size not equal to one, got {shape=} and "
            f"{dimensions=}"
        )
    return tuple(s for i, s in enumerate(shape) if i not in dimensions)


def _squeeze_element(r: Elements, index: Index, avals: Sequence[Any], params: dict[str, Any]) -> Any:
    ndim = len(avals[0].shape)
    dropped = {d % ndim for d in params["dimensions"]}
    left = iter(index)
    return r.read(0, tuple(Lin(0) if d in dropped else next(left) for d in range(ndim)))


squeeze_p = movement(
    "squeeze",
    shape=_squeeze_shape,
    reference=lambda x, *, dimensions: np.squeeze(x, tuple(dimensions)),
    transpose=lambda ct, _operand, *, dimensions: [expand_dims(ct, dimensions)],
    batch=lambda axis, x, dim, *, dimensions: (squeeze(move_dim(x, dim, 0), shifted(dimensions)), 0),
    lower=Structural(_squeeze_element, ViewKind.SAME),
    sharding=shape_rules.squeeze,
)

# ---------------------------------------------------------------- rev


def rev(operand: Any, dimensions: Sequence[int]) -> Any:
    """Reverse the order of elements along axes.

    >>> lax.rev(jnp.array([1, 2, 3]), (0,))
    Array([3, 2, 1], dtype=int32)
    """
    return rev_p.bind(operand, dimensions=tuple(dimensions))


def _rev_shape(operand, *, dimensions):
    check_shapelike("rev", "dimensions", dimensions)
    if len(set(dimensions)) != len(dimensions):
        raise TypeError(f"rev dimensions must be unique, got {dimensions}.")
    if dimensions and max(dimensions) >= operand.ndim:
        raise TypeError(
            "rev dimensions must all be less than operand ndim, got dimensions "
            f"{dimensions} for operand ndim {operand.ndim}."
        )
    return operand.shape


def _rev_element(r: Elements, index: Index, avals: Sequence[Any], params: dict[str, Any]) -> Any:
    shape, dims = avals[0].shape, set(params["dimensions"])
    return r.read(0, tuple(-i + (shape[d] - 1) if d in dims else i for d, i in enumerate(index)))


rev_p = movement(
    "rev",
    shape=_rev_shape,
    reference=lambda x, *, dimensions: np.ascontiguousarray(np.flip(x, tuple(dimensions))),
    transpose=lambda ct, _operand, *, dimensions: [rev(ct, dimensions)],
    batch=lambda axis, x, dim, *, dimensions: (rev(x, [d + 1 if d >= dim else d for d in dimensions]), dim),
    lower=Structural(_rev_element, ViewKind.REVERSED),
    sharding=shape_rules.rev,
)
