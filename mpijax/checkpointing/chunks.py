"""Into which chunks, one file each, an array is cut, and which rank writes which of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from mpijax._ext.array import ArrayBase
from mpijax.core.lazy_dataclass import dataclass

# Bytes of a chunk, about. Reading less than a chunk reads all of it; each file costs an fsync.
TARGET = 16 << 20


def chunk_shape(
    shard: tuple[int, ...], split: tuple[bool, ...], itemsize: int, target: int = TARGET
) -> tuple[int, ...]:
    """The shape of chunks of about `target` bytes, cut from the first axes, so that each lies in memory in one piece.

    shard: the shape of a rank's part. split: which axes the ranks have parts of; there a chunk divides the part evenly,
    so that no two ranks write to one chunk.

    >>> chunk_shape((1024, 1024), (True, False), 4, 1 << 20)
    (256, 1024)
    """
    shape = [max(n, 1) for n in shard]
    for axis, n in enumerate(shape):
        pieces = min(-(-math.prod(shape) * itemsize // target), n)
        if pieces <= 1:
            break
        if split[axis]:  # not many more pieces than asked for: else the next axis is cut
            pieces = next((k for k in range(pieces, min(4 * pieces, n) + 1) if n % k == 0), 1)
        shape[axis] = -(-n // pieces)
    return tuple(shape)


@dataclass(frozen=True)
class Part:
    """What this rank has of an array: `data`, which begins at `start` in the whole. None of it where data is None.

    shard: shape of every rank's part; split: the axes of which ranks have parts.
    `copies` ranks have the same part; this is number `copy` of them.
    """

    shard: tuple[int, ...]
    split: tuple[bool, ...]
    start: tuple[int, ...] = ()
    data: np.ndarray | None = None
    copy: int = 0
    copies: int = 1


def part_of(x: Any, number: int, rank: int, ranks: int) -> Part:
    """What this rank has of leaf `number`. Does not communicate.

    Of what every rank has to itself, the rank `number % ranks` writes its own.
    """
    sharding = x._sharding if isinstance(x, ArrayBase) else None
    if sharding is not None and sharding.is_elsewhere and len(sharding.processes) == 1:
        raise ValueError(
            f"an array that process {min(sharding.processes)} alone has cannot be saved: lay it out over all "
            "processes, as NamedSharding(mesh, P())"
        )
    if sharding is None or sharding.is_fully_addressable:
        data = np.asarray(x._physical if isinstance(x, ArrayBase) else x)
        mine = number % ranks == rank
        return Part(data.shape, (False,) * data.ndim, (0,) * data.ndim, data if mine else None)
    if sharding.spec.unreduced:
        raise ValueError(f"an array of sums that are not done yet cannot be saved (its layout is {sharding.spec})")
    words = x.dtype.physical_shape if not isinstance(x.dtype, np.dtype) else ()
    shard = sharding.process_block(x.shape)
    parts = [-(-whole // n) if n else 1 for whole, n in zip(x.shape, shard, strict=True)]
    split = (*(p > 1 for p in parts), *(False for _ in words))
    if not sharding.addressable_devices:
        return Part((*shard, *words), split)
    start = tuple(s.start or 0 for s in sharding.local_slices(x.shape)) + (0,) * len(words)
    copies = max(sharding.mesh.num_processes // max(math.prod(parts), 1), 1)
    return Part((*shard, *words), split, start, x._physical, sharding.replica(), copies)


# The number of a chunk along each axis, and the part of an array that lies between two corners.
Place = tuple[int, ...]
Box = tuple[slice, ...]


def boxes(start: tuple[int, ...], stop: tuple[int, ...], chunk: tuple[int, ...]) -> Iterator[tuple[Place, Box]]:
    """(number of the chunk along each axis, what of it lies between start and stop) in order."""
    if any(a >= b for a, b in zip(start, stop, strict=True)):
        return
    ranges = [range(a // c, -(-b // c)) for a, b, c in zip(start, stop, chunk, strict=True)]
    for at in _places(ranges):
        limits = zip(at, start, stop, chunk, strict=True)
        yield at, tuple(slice(max(i * c, a), min((i + 1) * c, b)) for i, a, b, c in limits)


def _places(ranges: list[range]) -> Iterator[tuple[int, ...]]:
    """`itertools.product`, which would first make lists of ranges that a file may claim to be long."""
    if not ranges:
        yield ()
        return
    for i in ranges[0]:
        for rest in _places(ranges[1:]):
            yield (i, *rest)


def to_write(part: Part, chunk: tuple[int, ...], number: int) -> list[tuple[Place, Box, np.ndarray]]:
    """[(chunk, its place in the whole, its elements), ...] that this rank writes: copies share the work."""
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
    """Into how many chunks an array is cut.

    >>> count((5, 4), (2, 4))
    3
    """
    return math.prod(-(-n // c) for n, c in zip(shape, chunk, strict=True))


def file_name(at: tuple[int, ...]) -> str:
    """The file of a chunk in the folder of its array."""
    return ".".join(("c", *map(str, at)))
