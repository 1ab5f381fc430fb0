"""Defines searchsorted: the number of elements of sorted rows before each of some values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from mpijax.core.base.errors import JaxRuntimeError
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules import sharding_rules as rules
from mpijax.core.rules.factors import Factor, FactorRule, free, planned, reduced
from mpijax.core.rules.lowering import Native
from mpijax.core.rules.primitive import Primitive
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops.families import CONSTANT, NOT_LINEAR
from mpijax.transforms.batching import batch_at, move_dim

# The element types that the kernel supports, in the order of its table.
_KINDS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
          "float64")  # fmt: skip


def is_searched(dtype: Any) -> bool:
    """Whether rows of a dtype can be searched."""
    return isinstance(dtype, np.dtype) and (dtype == np.bool_ or dtype.name in _KINDS)


def search(rows: Any, values: Any, side: str, dtype: np.dtype) -> Any:
    """The number of elements of a sorted row before each value, in `dtype` (int32 or int64).

    Args:
      rows: (..., n), sorted along the last axis, NaN last; zeros are equal whatever their sign.
      values: (..., m...) of the same dtype.
      side: "left": elements below the value; "right": those equal to it too.

    Returns:
      (..., m...). For rows that are not sorted, numbers in [0, n].
    """
    return searchsorted_p.bind(rows, values, side=side, dtype=np.dtype(dtype))


def _type(rows, values, *, side, dtype):
    stack = rows.shape[:-1]
    fits = rows.ndim > 0 and values.shape[: len(stack)] == stack
    if not fits or rows.dtype != values.dtype or not is_searched(rows.dtype):
        raise TypeError(
            "searchsorted takes sorted rows (..., n) and values (..., m) of the same real dtype of 8 to 64 bits, got "
            f"{rows.str_short(True)} and {values.str_short(True)}"
        )
    return ShapedArray(values.shape, dtype)


def _reference(rows, values, *, side, dtype):
    if rows.dtype.kind not in "biuf":  # dtypes of ml_dtypes
        rows, values = rows.astype(np.float32), values.astype(np.float32)
    stack = rows.shape[:-1]
    out = np.empty(values.shape, dtype)
    for at in np.ndindex(stack):
        out[at] = np.searchsorted(rows[at], values[at], side)
    return out


def _batch(axis, args, dims, *, side, dtype):
    (rows, values), (of_rows, of_values) = args, dims
    stack = typeof(rows).ndim - 1
    if of_rows is None:  # the same rows for all examples: search more values in each
        if stack == 0:
            return search(rows, values, side, dtype), of_values
        return search(rows, move_dim(values, of_values, stack), side, dtype), stack
    rows, values = batch_at(rows, of_rows, 0, axis, by_numpy=True), batch_at(values, of_values, 0, axis, by_numpy=True)
    return search(rows, values, side, dtype), 0


@dataclass(frozen=True)
class _SearchCode:
    """A call of the kernel in `mpijax._ext`, which is imported at the first call."""

    words: tuple[int, ...]
    label: str = "searchsorted"

    def address(self) -> int:
        from mpijax._ext import searchsorted  # deferred: an upper layer, which few programs need

        return searchsorted.address()

    def failed(self, *_arrays: np.ndarray) -> NoReturn:
        raise JaxRuntimeError("INTERNAL: searchsorted failed")


def _code(in_types: Sequence[ShapedArray], _out_types: Sequence[ShapedArray], *, side: str, dtype: Any) -> _SearchCode:
    rows, values = in_types
    kind = _KINDS.index("uint8" if rows.dtype == np.bool_ else rows.dtype.name)
    stack = rows.shape[:-1]
    per_row = math.prod(values.shape[len(stack) :])
    wide = np.dtype(dtype).itemsize == 8
    return _SearchCode((kind, int(side == "right"), int(wide), math.prod(stack), rows.shape[-1], per_row))


def _factors(s: rules.Operation) -> list[Factor]:
    """Queries stay split. Parts of a split row are searched, and counts added."""
    stack = len(s.shapes[0]) - 1
    lead = [free((d, d), (d,)) for d in range(stack)]
    queries = [free((None, d), (d,)) for d in range(stack, len(s.shapes[1]))]
    return [*lead, *queries, reduced((stack, None))]


def _chosen(s: rules.Operation, factors: Sequence[Factor]) -> rules.Plan:
    """A split row is gathered if the counts are longer."""
    plan = planned(s, factors)
    if plan.over and 2 * rules.share(s, s.shapes[1], plan.operands[1]) > math.prod(s.shapes[0]):
        return planned(s, factors[:-1])
    return plan


searchsorted_p = Primitive(
    "searchsorted",
    type_rule=_type,
    reference=_reference,
    lower=Native(_code, foreign=False),
    jvp=NOT_LINEAR,
    transpose=NOT_LINEAR,
    batch=_batch,
    sharding=FactorRule(_factors, choose=_chosen),
)
searchsorted_p.jvp = CONSTANT.attach(searchsorted_p)
