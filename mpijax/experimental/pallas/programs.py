"""The position of a program in its grid: `program_id` and `num_programs`."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple


class Position(NamedTuple):
    """The position of a program along each axis of the grid, and the sizes of the grid; None for a size that index maps
    do not get."""

    ids: Sequence[Any]
    sizes: Sequence[Any]


class _Positions(threading.local):
    def __init__(self) -> None:
        self.stack: list[Position] = []


_positions = _Positions()


@contextmanager
def at(ids: Sequence[Any], sizes: Sequence[Any]) -> Iterator[None]:
    """Context manager: inside, the program is at the position `ids` of a grid with the sizes `sizes`."""
    _positions.stack.append(Position(ids, sizes))
    try:
        yield
    finally:
        _positions.stack.pop()


def _here(axis: int, caller: str) -> Position:
    if not _positions.stack:
        raise ValueError(f"pl.{caller}({axis}) may only be called in the kernel or an index map of a pallas_call")
    position = _positions.stack[-1]
    if not -len(position.sizes) <= axis < len(position.sizes):
        raise ValueError(f"Axis {axis} is out of bounds for grid {tuple(position.sizes)}")
    return position


def program_id(axis: int) -> Any:
    """The position of the program along an axis of the grid: an int32 scalar, starting at 0.

    Raises ValueError outside of a kernel or an index map, or for an axis that the grid does not have.

    >>> from mpijax.experimental import pallas as pl
    >>> def kernel(o_ref):
    ...     o_ref[0] = pl.program_id(0) * 10
    >>> pl.pallas_call(kernel, out_shape=mpijax.ShapeDtypeStruct((3,), jnp.int32), grid=(3,),
    ...                out_specs=pl.BlockSpec((1,), lambda i: (i,)))()
    Array([ 0, 10, 20], dtype=int32)
    """
    return _here(axis, "program_id").ids[axis]


def num_programs(axis: int) -> Any:
    """The size of the grid along an axis: an int, or an int32 scalar if the size is computed.

    Raises ValueError outside of a kernel or an index map, or for an axis that the grid does not have.

    >>> from mpijax.experimental import pallas as pl
    >>> def kernel(o_ref):
    ...     o_ref[0] = pl.num_programs(0) - pl.program_id(0)
    >>> pl.pallas_call(kernel, out_shape=mpijax.ShapeDtypeStruct((3,), jnp.int32), grid=(3,),
    ...                out_specs=pl.BlockSpec((1,), lambda i: (i,)))()
    Array([3, 2, 1], dtype=int32)
    """
    size = _here(axis, "num_programs").sizes[axis]
    if size is None:
        raise NotImplementedError(
            f"An index map does not get the size of axis {axis} of the grid, because it is computed. Pass the size to "
            "the index map as a scalar: pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, ...)."
        )
    return size
