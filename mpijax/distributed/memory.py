"""Checkpoints in the memory of the nodes, for restarted jobs: ``Checkpointer(..., memory=...)``.

`mpijax run --restart` makes a folder in /dev/shm and passes it in MPIJAX_MEMORY; on other nodes the ranks make it. The
files are those of a checkpoint on disk. Each node holds the parts of its own ranks and those of the previous node. So a
checkpoint survives the death of all processes, and the loss of a node whose neighbour survives.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Any

from mpijax.checkpointing import chunks, folders, metadata, restoring
from mpijax.checkpointing.errors import CheckpointError, agree
from mpijax.checkpointing.saving import SaveJob
from mpijax.runtime.mpi import mpi_start, objects

_BOOT = Path("/proc/sys/kernel/random/boot_id")
# For each step, its files on a node, and the number of files in the checkpoint.
_Held = dict[int, tuple[set[str], int]]


class MemoryCheckpoints:
    """The checkpoints in memory of one run. All methods are collective.

    folder: this node's. first: whether this rank is the first of its node, and manages the folder.
    """

    def __init__(self, folder: Path, nodes: list[int]):
        rank = mpi_start.rank()
        self.folder, self._nodes = folder, nodes
        self.first = nodes.index(nodes[rank]) == rank

    @classmethod
    def of_run(cls, path: Path) -> MemoryCheckpoints | None:
        """The memory for a run's checkpoints in the folder `path`; None if no launcher keeps memory for the job."""
        named = objects.allgather(os.environ.get("MPIJAX_MEMORY"), "Checkpointer")
        if not named[0]:
            return None
        # Not every launcher passes variables on to other machines.
        folder = Path(named[mpi_start.rank()] or named[0])
        places = agree(lambda: _own_folder(folder), "Checkpointer")
        known = list(dict.fromkeys(places))
        return cls(folder / hashlib.sha256(bytes(path)).hexdigest()[:16], [known.index(place) for place in places])

    def with_neighbours(self, job: SaveJob) -> SaveJob:
        """The data that this rank writes: its own part; on several nodes, also that of a rank of the previous node."""
        pieces = [(array, list(part)) for array, part in job.pieces]
        nodes, rank = self._nodes, mpi_start.rank()
        count = max(nodes) + 1
        if count > 1:
            own, after = ([r for r, n in enumerate(nodes) if n == m % count] for m in (nodes[rank], nodes[rank] + 1))
            sent: list[Any] = [None] * len(nodes)
            sent[after[own.index(rank) % len(after)]] = pieces
            pieces = pieces + [piece for got in objects.alltoall(sent, "Checkpointer.save") for piece in got or ()]
        return SaveJob(job.description, job.arrays, pieces)

    def _held(self) -> list[_Held]:
        """The files that each node's first rank finds; empty for other ranks."""
        return agree(lambda: _held_in(self.folder) if self.first else {}, "Checkpointer.steps")

    def steps(self) -> list[int]:
        """The steps whose files are complete on the nodes together."""
        return _whole(self._held())

    def restore(self, step: int, like: Any) -> Any:
        """The state saved at a step. Other nodes send the files that a node's ranks lack."""
        target, rank = folders.of_step(self.folder, step), mpi_start.rank()
        held = [found[step][0] if step in found else set() for found in self._held()]
        if max(self._nodes) > 0:
            holder = {file: r for r, files in reversed([*enumerate(held)]) for file in files}
            first = holder[metadata.FILE]
            data = objects.bcast(metadata.read(target) if first == rank else b"", first, "restore")

            def lacking() -> list[str]:
                files = restoring.files_for(metadata.load(data, target), like)
                return sorted(file for file in {*files, metadata.FILE} if not (target / file).exists())

            asked = agree(lacking, "restore")
            sent = [{f: (target / f).read_bytes() for f in files if holder[f] == rank} for files in asked]
            received = objects.alltoall(sent, "restore")
            agree(lambda: _put(target, received), "restore")
        try:
            return restoring.restore(target, like)
        except CheckpointError:  # otherwise each restart would fail here
            if self.first:
                folders.remove(target)
            raise


def _put(target: Path, received: list[dict[str, bytes]]) -> None:
    """Write files of a checkpoint, which other ranks of this node may write too."""
    for file, data in (pair for files in received for pair in files.items()):
        new = target / f"{file}.{mpi_start.rank()}"
        new.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(data)
        new.rename(target / file)


def _own_folder(folder: Path) -> tuple[str, int, int]:
    """The identity of this node's folder; makes it if it is missing. Only this user may access it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise CheckpointError(f"MPIJAX_MEMORY names {folder}, which must be a folder of this user with mode 0700")
    return _BOOT.read_text() if _BOOT.exists() else "", found.st_dev, found.st_ino


def _held_in(folder: Path) -> _Held:
    found: _Held = {}
    for step, place in folders.steps_in(folder).items():
        contents = metadata.load(metadata.read(place), place)
        files = {str(file.relative_to(place)) for file in place.glob("*/c*")} | {metadata.FILE}
        counts = [chunks.count(leaf.stored_shape, contents.chunks[leaf.array]) for leaf in contents.arrays]
        found[step] = files, 1 + sum(counts)
    return found


def _whole(held: list[_Held]) -> list[int]:
    whole = []
    for step in sorted({step for found in held for step in found}):
        parts = [found[step] for found in held if step in found]
        if len(set().union(*(files for files, _ in parts))) == parts[0][1]:
            whole.append(step)
    return whole
