"""Zarr 3 arrays in files, through tensorstore.

tensorstore was chosen over the `zarr` package: it reads and writes in its own threads without the GIL, and into
existing memory; and it distinguishes a missing chunk from one full of zeros.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mpijax.checkpointing.chunks import Box, Place, boxes, file_name
from mpijax.checkpointing.errors import CheckpointError

# Maximum chunks in flight; their encoded form needs memory in addition to the arrays.
_IN_FLIGHT = 3
_CRC = 4  # bytes of the checksum after each chunk


@cache
def tensorstore() -> Any:
    """The module; its ImportError says how to install it."""
    try:
        import tensorstore  # heavy, and optional
    except ImportError as error:
        raise ImportError(
            "Checkpoints need tensorstore, which is not installed. Run: pip install 'mpijax[checkpoint]'"
        ) from error
    return tensorstore


@cache
def _context() -> Any:
    limits = {"data_copy_concurrency": {"limit": 2}, "file_io_concurrency": {"limit": 4}}
    return tensorstore().Context({**limits, "cache_pool": {"total_bytes_limit": 0}})


def open_array(folder: Path, zarr: dict[str, Any]) -> Any:
    """The array in a folder, given its metadata `zarr`; reads nothing."""
    spec = {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": f"{folder}/", "file_io_sync": True},
        "metadata": {name: value for name, value in zarr.items() if name not in ("zarr_format", "node_type")},
        # Chunks of zeros are written too, so a missing chunk means damage.
        "store_data_equal_to_fill_value": True,
        "fill_missing_data_reads": False,
    }
    return tensorstore().open(spec, open=True, assume_metadata=True, context=_context()).result()


def _in_flight(started: Iterable[tuple[str, Any]], array: str, doing: str) -> None:
    """Wait for [(file, future), ...], a few at a time. CheckpointError for the first that fails."""
    waiting: list[tuple[str, Any]] = []
    try:
        for pair in started:
            waiting.append(pair)
            if len(waiting) == _IN_FLIGHT:
                _wait(*waiting.pop(0), array, doing)
        while waiting:
            _wait(*waiting.pop(0), array, doing)
    finally:
        for _, future in waiting:  # their memory is about to be freed
            future.exception()


def _wait(file: str, future: Any, array: str, doing: str) -> None:
    error = future.exception()
    if error is not None:
        raise CheckpointError(f"cannot {doing} array {array}, file {file}: {error}") from None


def write(folder: Path, array: str, zarr: dict[str, Any], pieces: Iterable[tuple[Place, Box, np.ndarray]]) -> None:
    """Write chunks of an array, [(chunk, slices, elements), ...], each to its file.

    The elements must not change until this returns. CheckpointError names the array and the file.
    """
    opened: list[Any] = []
    dtype = np.dtype(zarr["data_type"])

    def started() -> Iterator[tuple[str, Any]]:
        for at, box, data in pieces:
            if not opened:
                opened.append(open_array(folder, zarr))
            source = data if data.dtype == dtype else data.view(dtype)
            yield str(folder / file_name(at)), opened[0][box].write(source, can_reference_source_data_indefinitely=True)

    _in_flight(started(), array, "write")


def read(folder: Path, array: str, zarr: dict[str, Any], start: tuple[int, ...], out: np.ndarray) -> None:
    """Fill `out` with the part of an array that begins at `start`.

    CheckpointError names the array and the file that is missing, too short, too long or has a wrong checksum.
    """
    chunk = tuple(zarr["chunk_grid"]["configuration"]["chunk_shape"])
    stop = tuple(a + n for a, n in zip(start, out.shape, strict=True))
    if out.size == 0:
        return
    source, dtype = open_array(folder, zarr), np.dtype(zarr["data_type"])
    target = tensorstore().array(out.view(dtype), copy=False, write=True, context=_context())

    def started() -> Iterator[tuple[str, Any]]:
        for at, box in boxes(start, stop, chunk):
            inside = tuple(slice(s.start - a, s.stop - a) for s, a in zip(box, start, strict=True))
            piece = target[inside]
            yield str(folder / file_name(at)), piece.write(source[box].translate_to[piece.domain.origin])

    _in_flight(started(), array, "read")


def check_files(folder: Path, array: str, zarr: dict[str, Any], start: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Check the files of a part of an array before its memory is allocated.

    CheckpointError for a file that is missing, has the wrong size, or is a link.
    """
    chunk = tuple(zarr["chunk_grid"]["configuration"]["chunk_shape"])
    size = math.prod(chunk) * np.dtype(zarr["data_type"]).itemsize + _CRC
    stop = tuple(a + n for a, n in zip(start, shape, strict=True))
    if folder.is_symlink():
        raise CheckpointError(f"array {array} is damaged: {folder} is a link")
    for at, _ in boxes(start, stop, chunk):
        file = folder / file_name(at)
        try:
            found = os.lstat(file)
        except OSError as error:
            raise CheckpointError(f"array {array} is damaged: {file}: {error.strerror}") from None
        if not stat.S_ISREG(found.st_mode):
            raise CheckpointError(f"array {array} is damaged: {file} is not a regular file")
        if found.st_size != size:
            raise CheckpointError(f"array {array} is damaged: {file} has {found.st_size} bytes, expected {size}")
