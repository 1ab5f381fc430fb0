"""Index maps: expressions for one element of a result, for primitives that move elements.

A map is `read(elements, index, avals, params) -> expression`: the element at `index` (a `Lin` for each axis) of the
result. `elements` reads operands, whose types are `avals`, and does arithmetic. The lowering record of a primitive
holds its map (`core.rules.lowering.Structural`). This module has the parts that several maps share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mpijax.core.shapes.index import Lin

if TYPE_CHECKING:
    from mpijax.core.rules.primitive import Primitive

INT64 = np.dtype(np.int64)
UINT32 = np.dtype(np.uint32)

Index = tuple[Lin, ...]


class Elements(Protocol):
    """Reads elements and computes with them, for index maps. Expressions have a `dtype`."""

    def read(self, operand: int, index: Index) -> Any:
        """The element of an operand at an index."""

    def const(self, value: Any, dtype: Any) -> Any:
        """A constant."""

    def convert(self, expr: Any, dtype: np.dtype) -> Any:
        """An expression converted to another dtype."""

    def op(self, operation: str | Primitive, *args: Any, result: int = 0) -> Any:
        """The result of an elementwise primitive, which may be given by its name."""

    def index(self, position: Lin) -> Any:
        """A position as an int64 number."""

    def as_index(self, expr: Any, size: int) -> Lin:
        """A computed integer in `range(size)` as a position."""

    def choice(self, position: Lin, cuts: tuple[int, ...], parts: tuple[Callable[[], Any], ...]) -> Any:
        """`parts[k]()`, where k is the number of cuts that do not exceed the position."""


IndexMap = Callable[[Elements, Index, Sequence[Any], dict[str, Any]], Any]


def identity(r: Elements, index: Index, avals: Sequence[Any], params: dict[str, Any]) -> Any:
    """The operand's element at the same index."""
    return r.read(0, index)


def clamped(r: Elements, expr: Any, low: int, high: int) -> Any:
    """A start index clamped to `[low, high]`, as in dynamic slices and clamping gathers."""
    wide = r.convert(expr, INT64)
    if expr.dtype.kind == "u" and expr.dtype.itemsize == 8:
        wide = r.op("min", expr, r.const(2**62, expr.dtype))
        wide = r.convert(wide, INT64)
    return r.op("min", r.op("max", wide, r.const(low, INT64)), r.const(high, INT64))


def boxed(
    r: Elements, index: Index, start: Sequence[int], shape: Sequence[int], outside: Callable[[], Any],
    inside: Callable[[Index], Any],
) -> Any:  # fmt: skip
    """`inside(position in the box)` if the index is in the box of `shape` at `start`, else `outside()`."""

    def along(axis: int, source: Index) -> Any:
        if axis == len(index):
            return inside(source)
        at = index[axis] - start[axis]
        return r.choice(at, (0, shape[axis]), (outside, lambda: along(axis + 1, (*source, at)), outside))

    return along(0, ())
