"""Reductions of groups of elements: `mpijax.ops.segment_sum` and related functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.core import dtypes
from mpijax.core.base.errors import ConcretizationTypeError
from mpijax.core.shapes.dimensions import dimension
from mpijax.core.tracing.out_sharding import explicit_sharding, with_out_sharding
from mpijax.core.tracing.tracer import Tracer
from mpijax.numpy.util import check_arraylike, host_value
from mpijax.ops.indexing.gather import GatherScatterMode


def _lowest(dtype: Any) -> Any:
    if dtype == np.bool_:
        return False
    return dtypes.iinfo(dtype).min if dtypes.issubdtype(dtype, np.integer) else -np.inf


def _highest(dtype: Any) -> Any:
    if dtype == np.bool_:
        return True
    return dtypes.iinfo(dtype).max if dtypes.issubdtype(dtype, np.integer) else np.inf


def _count(name: str, ids: Any, num_segments: Any) -> int:
    """The number of groups; if the ids are known, the largest id decides."""
    decides = ids if num_segments is None else num_segments
    if isinstance(decides, Tracer):
        raise ConcretizationTypeError(decides, f"{name}() `num_segments` argument.")
    if num_segments is None:
        num_segments = int(host_value(ids).max()) + 1
    count = dimension(num_segments)
    if count < 0:
        raise ValueError(f"{name}: num_segments must be non-negative, got {count}.")
    return count


def _define(
    name: str, method: str, neutral: Callable[[Any], Any], reduction: str, what: str, shown: str
) -> Callable[..., Any]:
    def segment(
        data: Any,
        segment_ids: Any,
        num_segments: int | None = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        bucket_size: int | None = None,
        mode: Any = None,
        out_sharding: Any = None,
    ) -> Any:
        check_arraylike(name, data, segment_ids)
        sharding = explicit_sharding(out_sharding, name)
        if method != "add" and sharding is not None and sharding.spec.unreduced:
            raise NotImplementedError(f"unreduced for {reduction} is not yet supported: only sums can be pending.")
        mode = GatherScatterMode.FILL_OR_DROP if mode is None else mode
        data, ids = jnp.asarray(data), jnp.asarray(segment_ids)
        count = _count(name, segment_ids, num_segments)
        flags = {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices, "mode": mode}
        flags["wrap_negative_indices"] = False
        shape = (count, *data.shape[1:])
        unit = neutral(data.dtype)
        if bucket_size is None:
            out = jnp.full(shape, unit, dtype=data.dtype)
            return getattr(out.at[ids], method)(data, **flags, out_sharding=out_sharding)
        buckets = -(-ids.size // bucket_size)
        out = jnp.full((buckets, *shape), unit, dtype=data.dtype)
        where = jnp.arange(ids.shape[0]) // bucket_size, ids
        out = getattr(out.at[where], method)(data, **flags)
        return with_out_sharding(getattr(jnp, reduction)(out, axis=0).astype(data.dtype), out_sharding, name)

    segment.__name__ = segment.__qualname__ = name
    segment.__doc__ = f"""{what} of the elements of each group.

    Args:
      data: array [n, ...]. segment_ids: integers [n], the group of each element. Elements with a negative id, or an
        id of at least `num_segments`, are dropped.
      num_segments: number of groups; default: the highest id plus 1. Required if `segment_ids` is traced.
      indices_are_sorted, unique_indices: whether `segment_ids` is sorted or has no repeated ids.
      bucket_size: combine this many elements first, then the results. Sums of floats are more accurate.
      mode: what to do with ids out of bounds, as in `x.at[...]`.

    Returns:
      Array [num_segments, ...]. A group without elements has the identity of the operation.

    >>> mpijax.ops.{name}(jnp.array([5, 2, 4]), jnp.array([0, 1, 1]))
    Array({shown}, dtype=int32)
    """
    return segment


segment_sum = _define("segment_sum", "add", lambda dtype: 0, "sum", "Sums", "[5, 6]")
segment_prod = _define("segment_prod", "multiply", lambda dtype: 1, "prod", "Products", "[5, 8]")
segment_max = _define("segment_max", "max", _lowest, "max", "Maxima", "[5, 4]")
segment_min = _define("segment_min", "min", _highest, "min", "Minima", "[5, 2]")
