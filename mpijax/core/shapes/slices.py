"""Slices given by start and size; the start may be a traced value."""

from __future__ import annotations

from typing import Any

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.shapes.dimensions import dimension


@dataclass(frozen=True)
class Slice:
    """`size` elements from `start`, every `stride`-th one; made by `ds`.

    >>> mpijax.ds(2, 3)
    Slice(start=2, size=3, stride=1)
    """

    start: Any
    size: int
    stride: int = 1

    @property
    def length(self) -> int:
        """The distance from the first to the last element, plus one."""
        return (self.size - 1) * self.stride + 1 if self.size else 0


def ds(start: Any, size: Any = None, stride: int | None = None) -> slice | Slice:
    """An index for `size` elements from `start`, which may be a traced value; `ds(size)` starts at 0.

    A read clamps the slice to the array, and a negative start counts from the end. A write (`x.at[ds(i, 3)].set(y)`)
    does nothing unless the whole slice is inside the array.

    Raises:
      ValueError: `stride` is not a positive int, or `size` is negative. TypeError: `size` is traced.

    >>> mpijax.jit(lambda x, i: x[mpijax.ds(i, 2)])(jnp.arange(5), 3)
    Array([3, 4], dtype=int32)
    """
    if start is None:
        return slice(None)
    if stride is None:
        stride = 1
    if not isinstance(stride, int):
        raise ValueError("Non-static stride in `dslice`")
    if size is None:
        start, size = 0, start
    size = dimension(size)
    if size < 0 or stride < 1:
        raise ValueError(f"ds needs a size of at least 0 and a stride of at least 1, got {size=} and {stride=}")
    return Slice(start, size, stride)
