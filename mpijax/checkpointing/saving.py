"""`save`: every rank writes its part of the arrays; rank 0 publishes the checkpoint."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from mpijax._ext.array import ArrayBase
from mpijax.checkpointing import folders, metadata, store, structure
from mpijax.checkpointing.chunks import chunk_shape, part_of, to_write
from mpijax.checkpointing.errors import CheckpointError, agree
from mpijax.checkpointing.leaves import describe_array, describe_value
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.runtime.mpi import mpi_start


@dataclass
class SaveJob:
    """The data that this rank writes: the whole metadata, and [(array, its Zarr metadata, chunks), ...]."""

    description: bytes
    arrays: dict[str, dict[str, Any]]
    pieces: list[tuple[str, list]]

    def copied(self) -> SaveJob:
        """The same with copies of the elements, so that the program may continue and reuse their memory."""
        kept = [(array, [(at, box, np.array(data)) for at, box, data in chunks]) for array, chunks in self.pieces]
        return SaveJob(self.description, self.arrays, kept)

    def write(self, folder: Path, first: bool) -> None:
        """Write the data, and drop each array's elements once written. first: whether this rank manages the folder."""
        if first:
            for array, zarr in self.arrays.items():
                (folder / array).mkdir(exist_ok=True)
                folders.write_file(folder / array / metadata.FILE, metadata.as_json(zarr))
        while self.pieces:
            array, chunks = self.pieces.pop(0)
            store.write(folder / array, array, self.arrays[array], _drained(chunks))
        if first:
            folders.write_file(folder / metadata.FILE, self.description)


def _drained(chunks: list):
    while chunks:
        yield chunks.pop(0)


def plan(tree: Any, rank: int, ranks: int) -> SaveJob:
    """The data to write for a tree. TypeError or ValueError for unsupported leaves. Does not communicate."""
    node, found = structure.encode(tree)
    leaves: list[Any] = []
    pieces, taken, cut = [], {metadata.FILE}, {}
    for number, (path, x) in enumerate(found):
        x = np.asarray(x) if isinstance(x, np.generic) else x
        where = structure.show(path)
        if not isinstance(x, (ArrayBase, np.ndarray)):
            leaves.append(describe_value(x, where))
            continue
        leaf = describe_array(x, metadata.name_of(path, taken), where)
        part = part_of(x, number, rank, ranks)
        chunk = chunk_shape(part.shard, part.split, leaf.stored_dtype.itemsize)
        leaves.append(leaf)
        cut[leaf.array] = chunk
        pieces.append((leaf.array, to_write(part, chunk, number)))
    contents = metadata.Contents(node, tuple(leaves), cut)
    arrays = {leaf.array: contents.zarr_of(leaf) for leaf in contents.arrays}
    return SaveJob(metadata.dump(contents), arrays, pieces)


def prepare(tree: Any, copy: bool) -> SaveJob:
    """The data that this rank writes; `copy`: whether to copy the elements. Collective.

    Raises CheckpointError on every rank if any cannot save its tree, or if the ranks have different trees.
    """
    rank, ranks = mpi_start.rank(), mpi_start.size()
    made: list[SaveJob] = []

    def planned() -> str:
        job = plan(tree, rank, ranks)
        made.append(job.copied() if copy else job)
        return hashlib.sha256(job.description).hexdigest()

    digests = agree(planned, "checkpoint.save")
    other = [r for r, digest in enumerate(digests) if digest != digests[0]]
    if other:
        raise CheckpointError(
            f"The ranks save different trees: rank {other[0]} has other containers, shapes, dtypes, shardings or "
            "Python values than rank 0. Every rank must pass the same tree. If the values of an array differ between "
            "ranks, make it a sharded array."
        )
    return made[0]


def begin(target: Path, first: bool) -> Path:
    """The folder to write into; `finish` renames it to `target`. first: whether this rank makes it. Collective."""
    agree(lambda: folders.begin(target) if first else None, "checkpoint.save")
    return folders.hidden(target)


def finish(target: Path, first: bool) -> None:
    """Publish the written data as the checkpoint `target`. Collective."""
    agree(lambda: folders.commit(folders.hidden(target), target) if first else None, "checkpoint.save")


def save(path: str | os.PathLike, tree: Any) -> None:
    """Write a pytree of arrays and Python scalars into the folder `path`. Collective.

    Every rank writes its own shards of arrays over several ranks. Any other array is written by one rank, so it must be
    equal on all. An existing checkpoint is replaced atomically once the new one is complete on disk.

    Leaves may be arrays of mpijax and NumPy (also bfloat16 and PRNG keys), bool, int, float, complex and str.
    Containers may be any pytree nodes.

    Raises:
      CheckpointError: on every rank, if one of them cannot write; the previous content of `path` still exists.
      ImportError: tensorstore is missing: ``pip install 'mpijax[checkpoint]'``.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp() + "/state"
    >>> mpijax.checkpoint.save(folder, {"w": jnp.arange(3.0), "step": 7})
    >>> mpijax.checkpoint.restore(folder)
    {'step': 7, 'w': Array([0., 1., 2.], dtype=float32)}
    """
    store.tensorstore()
    job = prepare(tree, copy=False)
    target, first = Path(os.path.abspath(path)), mpi_start.rank() == 0
    folder = begin(target, first)
    agree(lambda: job.write(folder, first), "checkpoint.save")
    finish(target, first)
