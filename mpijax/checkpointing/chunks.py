"""Decides how an array is cut into chunks, one file each, and which rank writes each one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from mpijax._ext.array import ArrayBase
from mpijax.core.base.lazy_dataclass import dataclass

# Approximate bytes of a chunk. Reading part of a chunk reads all of it; each file costs an fsync.
TARGET = 16 << 20


def chunk_shape(
    shard: tuple[int, ...], split: tuple[bool, ...], itemsize: int, target: int = TARGET
) -> tuple[int, ...]:
    """The shape of chunks of about `target` bytes, cut along the first axes, so that each is contiguous in memory.

    shard: the shape of a rank's part. split: the axes that are split over ranks; there, chunks divide the part evenly,
    so that no two ranks write to one chunk.

    >>> chunk_shape((1024, 1024), (True, False), 4, 1 << 20)
    (256, 1024)
    """
    shape = [max(n, 1) for n in shard]
    for axis, n in enumerate(shape):
        pieces = min(-(-math.prod(shape) * itemsize // target), n)
        if pieces <= 1:
            break
        if split[axis]:  # not many more pieces than needed; otherwise cut the next axis
            pieces = next((k for k in range(pieces, min(4 * pieces, n) + 1) if n % k == 0), 1)
        shape[axis] = -(-n // pieces)
    return tuple(shape)


@dataclass(frozen=True)
class LocalPart:
    """This rank's part of an array. data: its elements, or None if it has none. start: its position in the whole.

    shard: the shape of every rank's part. split: the axes that are split over ranks. copies: the number of ranks with
    the same part. copy: this rank's number among them.
    """

    shard: tuple[int, ...]
    split: tuple[bool, ...]
    start: tuple[int, ...] = ()
    data: np.ndarray | None = None
    copy: int = 0
    copies: int = 1


def part_of(x: Any, number: int, rank: int, ranks: int) -> LocalPart:
    """This rank's part of leaf `number`. Does not communicate.

    Of an array that every rank has separately, rank `number % ranks` writes its own.
    """
    sharding = x._sharding if isinstance(x, ArrayBase) else None
    if sharding is not None and sharding.is_elsewhere and len(sharding.processes) == 1:
        raise ValueError(
            f"An array on process {min(sharding.processes)} only cannot be saved. Put it on all processes with "
            "jax.device_put(x, NamedSharding(mesh, P()))."
        )
    if sharding is not None and x.aval.pending:
        raise ValueError(
            f"An array with unreduced axes cannot be saved (its spec is {sharding.spec}). Reduce it first, with "
            "jax.sharding.reshard."
        )
    if sharding is None or sharding.is_fully_addressable:
        data = np.asarray(x._physical if isinstance(x, ArrayBase) else x)
        mine = number % ranks == rank
        return LocalPart(data.shape, (False,) * data.ndim, (0,) * data.ndim, data if mine else None)
    words = x.dtype.physical_shape if not isinstance(x.dtype, np.dtype) else ()
    shard = sharding.process_block(x.shape)
    parts = [-(-whole // n) if n else 1 for whole, n in zip(x.shape, shard, strict=True)]
    split = (*(p > 1 for p in parts), *(False for _ in words))
    if not sharding.addressable_devices:
        return LocalPart((*shard, *words), split)
    start = tuple(s.start or 0 for s in sharding.local_slices(x.shape)) + (0,) * len(words)
    copies = max(sharding.mesh.num_processes // max(math.prod(parts), 1), 1)
    return LocalPart((*shard, *words), split, start, x._physical, sharding.replica(), copies)


# The number of a chunk along each axis, and the slices of a part of an array.
Place = tuple[int, ...]
Box = tuple[slice, ...]


def boxes(start: tuple[int, ...], stop: tuple[int, ...], chunk: tuple[int, ...]) -> Iterator[tuple[Place, Box]]:
    """(number of the chunk along each axis, its part between start and stop), in order."""
    if any(a >= b for a, b in zip(start, stop, strict=True)):
        return
    ranges = [range(a // c, -(-b // c)) for a, b, c in zip(start, stop, chunk, strict=True)]
    for at in _places(ranges):
        limits = zip(at, start, stop, chunk, strict=True)
        yield at, tuple(slice(max(i * c, a), min((i + 1) * c, b)) for i, a, b, c in limits)


def _places(ranges: list[range]) -> Iterator[tuple[int, ...]]:
    """Like `itertools.product`, which would first expand ranges; a damaged file may claim very long ones."""
    if not ranges:
        yield ()
        return
    for i in ranges[0]:
        for rest in _places(ranges[1:]):
            yield (i, *rest)


def to_write(part: LocalPart, chunk: tuple[int, ...], number: int) -> list[tuple[Place, Box, np.ndarray]]:
    """[(chunk, its slices in the whole, its elements), ...] that this rank writes; ranks with copies share the work."""
    if part.data is None:
        return []
    stop = tuple(a + n for a, n in zip(part.start, part.data.shape, strict=True))
    out = []
    for i, (at, box) in enumerate(boxes(part.start, stop, chunk)):
        if (i + number) % part.copies == part.copy:
            inside = tuple(slice(s.start - a, s.stop - a) for s, a in zip(box, part.start, strict=True))
            out.append((at, box, part.data[inside]))
    return out


def count(shape: tuple[int, ...], chunk: tuple[int, ...]) -> int:
    """The number of chunks of an array.

    >>> count((5, 4), (2, 4))
    3
    """
    return math.prod(-(-n // c) for n, c in zip(shape, chunk, strict=True))


def file_name(at: tuple[int, ...]) -> str:
    """The file of a chunk in the folder of its array."""
    return ".".join(("c", *map(str, at)))
