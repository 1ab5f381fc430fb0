"""Products of ragged arrays: consecutive groups of rows whose sizes are values."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise.binary import sub
from mpijax.ops.elementwise.bitwise import bitwise_and
from mpijax.ops.elementwise.compare import ge, lt
from mpijax.ops.elementwise.select import select
from mpijax.ops.products.dot import DotDimensionNumbers, dot_general
from mpijax.ops.reductions.cumulative import cumsum
from mpijax.ops.shapes.creation import broadcasted_iota, full_like
from mpijax.ops.shapes.reshape import broadcast_in_dim, transpose


@dataclasses.dataclass(frozen=True)
class RaggedDotDimensionNumbers:
    """The axes that a ragged product contracts, batches and divides into groups.

    Attributes:
      dot_dimension_numbers: `((lhs_contract, rhs_contract), (lhs_batch, rhs_batch))`, as in `dot_general`.
      lhs_ragged_dimensions: the one axis of the left operand that consists of groups.
      rhs_group_dimensions: the axis of the right operand with an entry for each group, if there is one.

    >>> rows = lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), [0], [0])
    >>> lax.ragged_dot_general(jnp.ones((3, 2)), jnp.ones((2, 2, 1)), jnp.array([1, 2]), rows)
    Array([[2.],
           [2.],
           [2.]], dtype=float32)
    """

    dot_dimension_numbers: DotDimensionNumbers
    lhs_ragged_dimensions: Sequence[int]
    rhs_group_dimensions: Sequence[int]

    def __post_init__(self) -> None:
        numbers = tuple(tuple(tuple(axes) for axes in pair) for pair in self.dot_dimension_numbers)
        object.__setattr__(self, "dot_dimension_numbers", numbers)
        object.__setattr__(self, "lhs_ragged_dimensions", tuple(self.lhs_ragged_dimensions))
        object.__setattr__(self, "rhs_group_dimensions", tuple(self.rhs_group_dimensions))


_ROWS = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))


class _Kind(enum.Enum):
    """The role of the left operand's ragged axis in the product."""

    KEPT = "noncontracting"
    CONTRACTED = "contracting"
    BATCH = "batch"


def ragged_dot(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    group_offset: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Multiply groups of rows by one matrix each: rows of group i by `rhs[i]`. Rows beyond the groups give zeros.

    Args:
      lhs: (m, k).
      rhs: (g, k, n).
      group_sizes: (g,) integers; the groups are consecutive.
      precision, preferred_element_type, out_sharding: as in `dot_general`.

    Returns:
      (m, n).

    >>> lax.ragged_dot(jnp.ones((3, 2)), jnp.array([[[1.0], [1.0]], [[5.0], [5.0]]]), jnp.array([1, 2]))
    Array([[ 2.],
           [10.],
           [10.]], dtype=float32)
    """
    return ragged_dot_general(
        lhs, rhs, group_sizes, _ROWS, precision, preferred_element_type, group_offset, out_sharding
    )


def ragged_dot_general(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers,
    precision: Any = None,
    preferred_element_type: Any = None,
    group_offset: Any = None,
    out_sharding: Any = None,
) -> Any:
    """A product of arrays in which one axis consists of groups, whose sizes are values.

    Batch axes b, contracted axes k, other axes m and n as in `dot_general`; g groups. The ragged axis of `lhs` is

    - one of m: [b, m, k] x [g, b, k, n] -> [b, m, n], where `rhs_group_dimensions` is the axis g;
    - one of k: [b, m, k] x [b, k, n] -> [g, b, m, n], each group's sum of products;
    - one of b: [b, m, k] x [b, k, n] -> [b, m, n], the same as `dot_general`.

    Args:
      group_sizes: (g,) integers, optionally with the axes of `lhs` before the ragged one as leading axes.
      precision, preferred_element_type, out_sharding: as in `dot_general`.

    Raises:
      TypeError: if axes or shapes do not match. NotImplementedError: for `group_offset`, which JAX also rejects.

    >>> rows = lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), [0], [0])
    >>> lax.ragged_dot_general(jnp.ones((3, 2)), jnp.ones((2, 2, 4)), jnp.array([1, 2]), rows).shape
    (3, 4)
    """
    if group_offset is not None:
        raise NotImplementedError("ragged_dot_general does not support group_offset. Slice the groups instead.")
    shape, other = typeof(lhs).shape, typeof(rhs).shape
    numbers = ragged_dot_dimension_numbers
    (contract, rhs_contract), (batch, rhs_batch) = numbers.dot_dimension_numbers
    kind, ragged = _kind(len(shape), numbers)
    prefix = _axes_before(kind, ragged, len(shape), batch, contract)
    _check_sizes(typeof(group_sizes), shape, prefix)
    _check_groups(typeof(group_sizes).shape[-1], kind, other, numbers)

    def product(x: Any, y: Any, contracted: tuple, batched: tuple) -> Any:
        return dot_general(
            x, y, (contracted, batched), precision, preferred_element_type, out_sharding=out_sharding
        )

    if kind is _Kind.BATCH:
        return product(lhs, rhs, (contract, rhs_contract), (batch, rhs_batch))
    parts = _by_group(lhs, group_sizes, ragged, prefix)
    later = lambda axes: tuple(a + 1 for a in axes)
    if kind is _Kind.KEPT:
        contracted = (*later(contract), 0), (*rhs_contract, *numbers.rhs_group_dimensions)
        return product(parts, rhs, contracted, (later(batch), rhs_batch))
    rhs_ragged = rhs_contract[contract.index(ragged)]
    rhs_prefix = _axes_before(kind, rhs_ragged, len(other), rhs_batch, rhs_contract)
    rhs_parts = _by_group(rhs, group_sizes, rhs_ragged, rhs_prefix)
    contracted = later(contract), later(rhs_contract)
    return product(parts, rhs_parts, contracted, ((0, *later(batch)), (0, *later(rhs_batch))))


def _check_in_range(axis: int, ndim: int, what: str, operand: str) -> None:
    if not 0 <= axis < ndim:
        raise TypeError(
            f"ragged_dot_general requires {what} numbers to be nonnegative and less than the number of axes of the "
            f"{operand} value, got {axis} for {operand} of rank {ndim}."
        )


def _kind(ndim: int, numbers: RaggedDotDimensionNumbers) -> tuple[_Kind, int]:
    if len(numbers.lhs_ragged_dimensions) != 1:
        raise TypeError("ragged_dot_general expects exactly one lhs ragged dimension.")
    ragged = numbers.lhs_ragged_dimensions[0]
    _check_in_range(ragged, ndim, "lhs ragged dimension", "lhs")
    (contract, _), (batch, _) = numbers.dot_dimension_numbers
    return _Kind.CONTRACTED if ragged in contract else _Kind.BATCH if ragged in batch else _Kind.KEPT, ragged


def _axes_before(
    kind: _Kind, ragged: int, ndim: int, batch: Sequence[int], contract: Sequence[int]
) -> tuple[int, ...]:
    """The axes that group sizes may depend on: batch axes, and axes of the ragged axis's kind before it."""
    if kind is _Kind.BATCH:
        return tuple(batch[: batch.index(ragged)])
    kept = [i for i in range(ndim) if i not in batch and i not in contract]
    same = list(contract) if kind is _Kind.CONTRACTED else kept
    return (*batch, *same[: same.index(ragged)])


def _check_sizes(sizes: Any, shape: tuple[int, ...], prefix: tuple[int, ...]) -> None:
    if not dtypes.issubdtype(sizes.dtype, np.integer):
        raise TypeError(
            f"ragged_dot_general requires that group_sizes.dtype is subtype of np.integer, got {sizes.dtype}."
        )
    if not sizes.shape:
        raise TypeError("expected rank of group_sizes to be >=1.")
    expected = (*(shape[i] for i in prefix), sizes.shape[-1])
    if sizes.ndim > 1 and sizes.shape != expected:
        raise TypeError(f"expected group_sizes to have shape {expected}, got {sizes.shape}.")


def _check_groups(groups: int, kind: _Kind, other: tuple[int, ...], numbers: RaggedDotDimensionNumbers) -> None:
    if kind is not _Kind.KEPT:
        if numbers.rhs_group_dimensions:
            raise TypeError(
                "ragged_dot_general requires zero group dimensions in the rhs when lhs ragged dimension is contracting "
                "or batch."
            )
        return
    if len(numbers.rhs_group_dimensions) != 1:
        raise TypeError(
            "ragged_dot_general requires exactly one rhs group dimension when lhs ragged dimension is noncontracting."
        )
    [axis] = numbers.rhs_group_dimensions
    _check_in_range(axis, len(other), "rhs group dimension", "rhs")
    (_, contract), (_, batch) = numbers.dot_dimension_numbers
    if axis in batch or axis in contract:
        raise TypeError(
            "ragged_dot_general requires rhs group dimension numbers to be distinct from contracting and batch "
            "dimensions."
        )
    if other[axis] != groups:
        raise TypeError(f"expected rhs group dimension size to be {groups}, got {other[axis]}.")


def _by_group(x: Any, sizes: Any, ragged: int, prefix: tuple[int, ...]) -> Any:
    """(g, *x.shape): x for every group, with zeros outside the group."""
    ndim = typeof(sizes).ndim
    ends = cumsum(sizes, axis=ndim - 1)
    starts = sub(ends, sizes)
    groups, shape = typeof(sizes).shape[-1], typeof(x).shape
    full = (groups, *shape)
    order = sorted(range(len(prefix)), key=prefix.__getitem__) if ndim > 1 else []
    dims = (0, *(prefix[i] + 1 for i in order))
    spread = lambda v: broadcast_in_dim(transpose(v, (ndim - 1, *order)), full, dims)
    position = broadcasted_iota(typeof(sizes).dtype, full, ragged + 1)
    inside = bitwise_and(ge(position, spread(starts)), lt(position, spread(ends)))
    repeated = broadcast_in_dim(x, full, tuple(range(1, len(full))))
    return select(inside, repeated, full_like(repeated, 0))
