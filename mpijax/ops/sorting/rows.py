"""Sorts rows of arrays along the last axis with machine code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base.errors import JaxRuntimeError
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules.lowering import Native
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.types.avals import ShapedArray
from mpijax.ops.callbacks.ordering import ordered, permutation

_INNER = Unsupported("only the compiler makes this primitive, after all transformations")

# Number formats, with the names in `sort.h`.
_UNSIGNED, _SIGNED, _FLOAT, _TABLE = range(4)
_FLOAT64 = np.dtype(np.float64).num


@dataclass(frozen=True)
class SortCode:
    """A call of the kernel in `mpijax._ext`, which is imported at the first call."""

    words: tuple[int, ...]
    label: str = "sort"

    def address(self) -> int:
        from mpijax._ext import sort  # deferred: an upper layer, which few programs need

        return sort.address()

    def failed(self, *_arrays: np.ndarray) -> NoReturn:
        raise JaxRuntimeError("RESOURCE_EXHAUSTED: sort: not enough memory for the keys of a row")


@dataclass(frozen=True)
class _SortKey:
    """A number in an element to sort by. detail: the bits of infinity for a float; the order of a byte's values."""

    operand: int
    offset: int
    nbytes: int
    form: int
    detail: Any = 0


def _parts(operand: int, dtype: Any) -> list[_SortKey]:
    """The numbers of an element, most significant first."""
    if dtype.kind == "c":
        half = dtype.itemsize // 2
        [part] = _parts(operand, np.dtype(f"f{half}"))
        return [part, _SortKey(operand, half, half, part.form, part.detail)]
    if dtype.itemsize == 1:
        return [_SortKey(operand, 0, 1, _TABLE, _ranks(dtype))]
    if dtypes.issubdtype(dtype, np.floating):
        bits = np.array(np.inf, dtype).view(f"u{dtype.itemsize}")
        return [_SortKey(operand, 0, dtype.itemsize, _FLOAT, int(bits))]
    return [_SortKey(operand, 0, dtype.itemsize, _UNSIGNED if dtype.kind == "u" else _SIGNED)]


def _ranks(dtype: Any) -> tuple[int, ...]:
    """The order of the 256 values of a byte, packed into words."""
    [keys] = ordered(np.arange(256, dtype=np.uint8).view(dtype))
    _, ranks = np.unique(keys, return_inverse=True)
    return tuple(ranks.astype(np.uint8).view(np.int64).tolist())


def _grouped(parts: Sequence[_SortKey]) -> list[list[_SortKey]]:
    """Groups consecutive parts of at most 64 bits together."""
    groups: list[list[_SortKey]] = []
    for part in parts:
        if groups and sum(p.nbytes for p in groups[-1]) + part.nbytes <= 8:
            groups[-1].append(part)
        else:
            groups.append([part])
    return groups


def _values_alone(in_types: Sequence[ShapedArray], positions: Any) -> int:
    """NumPy's number of the type if equal elements are identical, and nothing is sorted with them; else -1."""
    dtype = in_types[0].dtype
    alone = positions is None and len(in_types) == 1 and dtype.kind in "biuf" and dtype.num <= _FLOAT64
    return dtype.num if alone else -1


def _in_place(in_types: Sequence[ShapedArray], params: dict[str, Any]) -> Sequence[tuple[int, int]]:
    return ((0, 0),) if _values_alone(in_types, params.get("positions")) >= 0 else ()


def _counts(in_types: Sequence[ShapedArray], params: dict[str, Any]) -> dict[str, Any] | None:
    positions = in_types[-1].dtype
    suits = positions.kind in "iu" and params["num_keys"] < len(in_types) and "positions" not in params
    return {**params, "positions": positions} if suits else None


def _code(
    in_types: Sequence[ShapedArray], _out_types: Sequence[ShapedArray], *, num_keys: int, positions: Any = None
) -> SortCode:
    *stack, n = in_types[0].shape
    sizes = [math.prod(a.shape[len(stack) + 1 :]) * a.dtype.itemsize for a in in_types]
    groups = _grouped([part for i, a in enumerate(in_types[:num_keys]) for part in _parts(i, a.dtype)])
    tables: list[int] = []
    words: list[int] = []
    for part in (p for group in groups for p in group):
        detail = part.detail
        if part.form == _TABLE:
            detail = len(tables) // 32
            tables += part.detail
        words += (part.operand, part.offset, part.nbytes, part.form, detail)
    shape = [w for group in groups for w in (sum(8 * p.nbytes for p in group), len(group))]
    number, position = _values_alone(in_types, positions), 0 if positions is None else positions.itemsize
    head = (math.prod(stack), n, len(in_types), len(groups), number, position)
    begin = len(head) + 1 + len(sizes) + len(shape) + len(words)
    return SortCode((*head, begin, *sizes, *shape, *words, *tables))


def _types(*avals: ShapedArray, num_keys: int, positions: Any = None) -> list[ShapedArray]:
    return [*avals, avals[0].update(dtype=positions, weak_type=False)] if positions else list(avals)


def _reference(*xs, num_keys, positions=None):
    order = permutation(xs[:num_keys], xs[0].ndim - 1)
    behind = [order.reshape(order.shape + (1,) * (x.ndim - order.ndim)) for x in xs]
    outs = [np.take_along_axis(x, at, order.ndim - 1) for x, at in zip(xs, behind, strict=True)]
    return [*outs, order.astype(positions)] if positions else outs


sort_rows_p = Primitive(
    "sort",
    key="sort_rows",
    type_rule=_types,
    reference=_reference,
    # Keeps denormals: with flushing, NumPy's vectorized sorts would write zeros.
    lower=Native(_code, counts=_counts, in_place=_in_place),
    jvp=_INNER,
    transpose=_INNER,
    batch=_INNER,
    inner=True,
    multiple_results=True,
)
