"""Defines approx_max_k and approx_min_k. On CPUs, as in JAX, they return the exact largest and smallest elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.rules.lowering import Decompose
from mpijax.core.rules.primitive import Primitive
from mpijax.core.shapes.dimensions import DimExpr, dimension
from mpijax.ops.callbacks.ordering import largest
from mpijax.ops.elementwise.binary import neg
from mpijax.ops.sorting.top_k import NOT_LINEAR, gather_positions, top_k
from mpijax.transforms.zeros import Zero


def approx_max_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> list[Any]:
    """The k largest floats along an axis, in descending order, and their positions (int32).

    `recall_target` and `reduction_input_size_override` trade accuracy for speed on TPUs; here the result is exact. With
    `aggregate_to_topk=False` the result has the number of elements that a TPU would return: k or more, the k largest
    first.

    Raises:
      ValueError: k is not between 1 and the axis' size, the operand is not floating-point, the recall target is outside
        (0, 1], or `reduction_input_size_override` is below the axis' size.

    >>> lax.approx_max_k(jnp.array([3.0, 9.0, 5.0]), 2)
    [Array([9., 5.], dtype=float32), Array([1, 2], dtype=int32)]
    """
    return _bind(
        operand, k, reduction_dimension, recall_target, True, reduction_input_size_override, aggregate_to_topk
    )


def approx_min_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> list[Any]:
    """The k smallest floats along an axis, in ascending order, and their positions; see `approx_max_k`.

    >>> lax.approx_min_k(jnp.array([3.0, 9.0, 5.0]), 2)
    [Array([3., 5.], dtype=float32), Array([0, 2], dtype=int32)]
    """
    return _bind(
        operand, k, reduction_dimension, recall_target, False, reduction_input_size_override, aggregate_to_topk
    )


def _bind(operand, k, reduction_dimension, recall_target, is_max_k, size_override, aggregate) -> list[Any]:
    return approx_top_k_p.bind(
        operand,
        k=dimension(k),
        reduction_dimension=reduction_dimension,
        recall_target=recall_target,
        is_max_k=is_max_k,
        reduction_input_size_override=size_override,
        aggregate_to_topk=aggregate,
    )


def _count(
    shape, *, k, reduction_dimension, aggregate_to_topk, recall_target, reduction_input_size_override, **_params
) -> int:
    """The number of results: k, or the number that a TPU's windows give (Chern et al., arXiv:2206.14286)."""
    n, tile = shape[reduction_dimension], 1024 if len(shape) == 1 else 128
    if aggregate_to_topk:
        return k
    if isinstance(n, DimExpr) or isinstance(k, DimExpr):
        raise NotImplementedError(
            f"approx_top_k with aggregate_to_topk=False needs sizes that are numbers, got k={k} of {n} elements. Use "
            "aggregate_to_topk=True."
        )
    if not 0 < recall_target <= 1:
        raise ValueError(f"recall_target must be in (0, 1], got {recall_target}")
    whole = n if reduction_input_size_override < 0 else reduction_input_size_override
    if whole < n:
        raise ValueError(f"reduction_input_size_override must be at least the axis' size {n}, got {whole}")
    if n <= tile or recall_target == 1:
        return n
    if k == 1:
        return tile
    windows = max(int((1 - k) / math.log(recall_target)), tile)
    halvings = (whole // windows).bit_length() - 1
    if halvings <= 0:
        return n
    halvings = min(halvings, (n // tile - 1).bit_length())
    tiles = -(-n // tile)
    return -(-tiles // 2**halvings) * tile


def _type(operand, *, k, reduction_dimension, **params):
    if k <= 0:
        raise ValueError(f"k must be positive, got {k}")
    if not operand.shape:
        raise TypeError(f"approx_top_k operand must have >= 1 dimension, got {operand.shape}")
    shape = list(operand.shape)
    if shape[reduction_dimension] < k:
        raise ValueError(
            f"k must be smaller than the size of reduction_dim {shape[reduction_dimension]}, got {k}"
        )
    if not dtypes.issubdtype(operand.dtype, np.floating):
        raise ValueError(f"operand must be a floating type, got {operand.dtype}")
    shape[reduction_dimension] = _count(operand.shape, k=k, reduction_dimension=reduction_dimension, **params)
    values = operand.update(shape=tuple(shape))
    return [values, values.update(dtype=np.dtype(np.int32), weak_type=False)]


def _reference(x, *, reduction_dimension, is_max_k, **params):
    axis, k = reduction_dimension % x.ndim, _count(x.shape, reduction_dimension=reduction_dimension, **params)
    order = largest(x if is_max_k else -x, k, axis)
    return [np.take_along_axis(x, order, axis), order.astype(np.int32)]


def _by_top_k(x, *, reduction_dimension, is_max_k, **params):
    axis, k = reduction_dimension % x.ndim, _count(x.shape, reduction_dimension=reduction_dimension, **params)
    if is_max_k:
        return top_k(x, k, axis=axis)
    values, positions = top_k(neg(x), k, axis=axis)
    return [neg(values), positions]


def _jvp(primals, tangents, *, reduction_dimension, **params):
    values, positions = approx_top_k_p.bind(*primals, reduction_dimension=reduction_dimension, **params)
    t = tangents[0]
    if type(t) is Zero:
        return [values, positions], [Zero.of_primal(values), Zero.of_primal(positions)]
    axis = reduction_dimension % len(positions.shape)
    return [values, positions], [gather_positions(t, positions, axis), Zero.of_primal(positions)]


def _batch(_axis, args, dims, *, reduction_dimension, **params):
    (x,), (dim,) = args, dims
    kept = [d for d in range(x.ndim) if d != dim]
    return approx_top_k_p.bind(x, reduction_dimension=kept[reduction_dimension], **params), [dim, dim]


approx_top_k_p = Primitive(
    "approx_top_k",
    type_rule=_type,
    reference=_reference,
    lower=Decompose(_by_top_k),
    jvp=_jvp,
    transpose=NOT_LINEAR,
    batch=_batch,
    multiple_results=True,
)
