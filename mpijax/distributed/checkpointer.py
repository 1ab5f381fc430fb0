"""`Checkpointer`: manages a folder of a run's checkpoints, written in the background."""

from __future__ import annotations

import datetime
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from mpijax.checkpointing import folders, restoring, saving, store
from mpijax.checkpointing.errors import CheckpointError, CheckpointWarning, agree, describe, join
from mpijax.core.base.warn import warn_user
from mpijax.distributed import preemption
from mpijax.distributed.memory import MemoryCheckpoints

Every = int | datetime.timedelta | None

# The nice value of writing threads on Linux: they run when the program leaves a core free.
_NICE = 19


class Checkpointer:
    """A folder with the checkpoints of a run. All methods are collective: every rank calls them, in the same order.

    Args:
      path: the folder, visible to every rank.
      keep: the number of checkpoints to keep; older ones are removed when a new one is complete.
      every: which calls of `save` write: those at a multiple of this many steps, or (a `datetime.timedelta`) once this
        much time has passed since the last write. None: all.
      memory: under ``mpijax run --restart``, which calls of `save` keep the state in the memory of the nodes, given
        like `every`; a restarted job continues from there. None: none.

    `save` copies this rank's parts of the arrays and returns; a thread writes them. Later calls of `save`,
    `should_stop`, `wait` and `close` check whether all ranks are done, and then publish the checkpoint. Until then the
    previous one is the latest. If a rank cannot write (a full disk), every rank warns with `CheckpointWarning`, and the
    run continues with the previous ones.

    >>> import tempfile
    >>> with mpijax.checkpoint.Checkpointer(tempfile.mkdtemp(), keep=2, every=10) as checkpoints:
    ...     state = {"w": jnp.zeros(3)}
    ...     if checkpoints.latest() is not None:
    ...         state = checkpoints.restore(like=state)
    ...     for step in range(1, 41):
    ...         state = {"w": state["w"] + 1}
    ...         saved = checkpoints.save(step, state)
    ...         if checkpoints.should_stop():
    ...             break
    >>> checkpoints.steps(), checkpoints.restore()
    ([30, 40], {'w': Array([40., 40., 40.], dtype=float32)})
    """

    def __init__(
        self, path: str | os.PathLike, *, keep: int | None = 3, every: Every = None,
        memory: int | datetime.timedelta | None = None,
    ):  # fmt: skip
        if keep is not None and keep < 1:
            raise ValueError(f"Checkpointer must keep at least one checkpoint, got keep={keep}")
        for name, value in (("every", every), ("memory", memory)):
            if isinstance(value, int) and value < 1:
                raise ValueError(f"Checkpointer: {name} is a number of steps of at least 1, got {name}={value}")
        self.path = Path(os.path.abspath(path))
        self._keep, self._every, self._memory_every = keep, every, memory
        self._closed = False

    @cached_property
    def _memory(self) -> MemoryCheckpoints | None:
        return None if self._memory_every is None else MemoryCheckpoints.of_run(self.path)

    @cached_property
    def _places(self) -> list[_CheckpointFolder]:
        """The places that receive checkpoints: the disk, and memory if it is enabled."""
        from mpijax.runtime.mpi import mpi_start

        first = mpi_start.rank() == 0
        disk = _CheckpointFolder("checkpoint", self.path, self._keep, self._every, first, self._steps_on_disk)
        memory = self._memory
        if memory is None:
            return [disk]
        words = "checkpoint in memory", memory.folder, 1, self._memory_every, memory.first, memory.steps
        return [disk, _CheckpointFolder(*words)]

    def save(self, step: int, tree: Any, *, force: bool = False) -> bool:
        """Begin to save the state after `step` steps, if it is due (`every`) or with `force`; returns whether it did.

        A state that was saved last is not saved again.

        Waits for the previous save if it is not done. Raises CheckpointError, on every rank, for a tree that cannot be
        saved.
        """
        self._poll()
        if self._closed:
            raise ValueError("This Checkpointer is closed.")
        disk, *memory = self._places
        to_disk, to_memory = disk.is_due(step, force), [place for place in memory if place.is_due(step, False)]
        if not to_disk and not to_memory:
            return False
        store.tensorstore()
        for place in ([disk] if to_disk else []) + to_memory:
            place.wait()
        job = saving.prepare(tree, copy=True)
        for place in to_memory:
            assert self._memory is not None
            place.save(step, self._memory.with_neighbours(job))
        return to_disk and disk.save(step, job)

    def _poll(self) -> None:
        for place in self._places:
            place.poll()

    def wait(self) -> None:
        """Wait until the current save is a checkpoint, or has failed."""
        for place in self._places:
            place.wait()

    def _steps_on_disk(self) -> list[int]:
        from mpijax.runtime.mpi import mpi_start

        found = agree(lambda: list(folders.steps_in(self.path)) if mpi_start.rank() == 0 else [], "Checkpointer.steps")
        return found[0]

    def steps(self) -> list[int]:
        """The steps that have checkpoints, in order."""
        return sorted({*self._steps_on_disk(), *(self._memory.steps() if self._memory else ())})

    def latest(self) -> int | None:
        """The step of the latest checkpoint; None if there is none."""
        return max(self.steps(), default=None)

    def restore(self, step: int | None = None, like: Any = None) -> Any:
        """The state saved at a step (default: the latest), as `mpijax.checkpoint.restore` reads it.

        Raises CheckpointError, on every rank, if it is missing or damaged: then pass an older step. Damaged checkpoints
        in memory are removed.
        """
        self.wait()
        steps = self.steps()
        chosen = max(steps, default=None) if step is None else step
        if chosen is None or chosen not in steps:
            what = "no checkpoint" if step is None else f"no checkpoint of step {step}"
            raise CheckpointError(f"{self.path} has {what}. It has checkpoints of steps {steps}")
        if self._memory is not None and chosen in self._memory.steps():
            return self._memory.restore(chosen, like)
        return restoring.restore(folders.of_step(self.path, chosen), like)

    def should_stop(self) -> bool:
        """Whether a signal asked any rank to stop (`mpijax.distributed.should_stop`): save with `force`, and exit."""
        self._poll()
        return preemption.should_stop()

    def close(self) -> None:
        """Wait for the current save. Nothing can be saved afterwards."""
        self.wait()
        self._closed = True

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        # After an exception the other ranks may be elsewhere in the program, so do not wait for them.
        if kind is None:
            self.close()


class _CheckpointFolder:
    """A folder of checkpoints, and the save into it that is in progress. All methods are collective.

    what: "checkpoint" in warnings. first: whether this rank manages the folder. steps: returns the saved steps.
    """

    def __init__(
        self, what: str, folder: Path, keep: int | None, every: Every, first: bool, steps: Callable[[], list[int]]
    ):
        self._what, self._folder, self._keep, self._every = what, folder, keep, every
        self._first, self._steps = first, steps
        self._begun = time.monotonic()
        self._writing: _Writing | None = None
        self._latest_saved: int | None = None

    def is_due(self, step: int, force: bool) -> bool:
        due = force or self._every is None
        if not due and isinstance(self._every, datetime.timedelta):
            from mpijax.runtime.mpi import mpi_start, objects

            passed = time.monotonic() - self._begun >= self._every.total_seconds()
            due = objects.any_rank(mpi_start.rank() == 0 and passed, "Checkpointer.save")
        elif isinstance(self._every, int):
            due = due or step % self._every == 0
        return due and step != self._latest_saved

    def save(self, step: int, job: saving.SaveJob) -> bool:
        """Begin to write; returns whether it did. No other write into this folder may be in progress."""
        target = folders.of_step(self._folder, step)
        whole = set(self._steps()) if self._latest_saved is None else set[int]()
        try:
            agree(lambda: self._recover(whole), "Checkpointer.save")
            folder = saving.begin(target, self._first)
        except CheckpointError as error:
            self._warn(step, str(error))
            return False
        self._begun, self._latest_saved = time.monotonic(), step
        self._writing = _Writing(step, target, folder, job, self._first)
        return True

    def _recover(self, whole: set[int]) -> None:
        """Before the first save: remove a killed run's leftovers, and checkpoints that have lost other nodes' parts."""
        if self._latest_saved is None and self._first and self._folder.is_dir():
            folders.recover(self._folder)
            for step, place in folders.steps_in(self._folder).items():
                if step not in whole:
                    folders.remove(place)

    def poll(self) -> None:
        """Publish the current save as a checkpoint if all ranks are done."""
        from mpijax.runtime.mpi import objects

        if self._writing is not None and not objects.any_rank(self._writing.thread.is_alive(), "Checkpointer"):
            self.wait()

    def wait(self) -> None:
        """Wait until the current save is a checkpoint, or has failed."""
        from mpijax.runtime.mpi import objects

        writing, self._writing = self._writing, None
        if writing is None:
            return
        writing.thread.join()
        failed = join(objects.allgather(writing.error, "Checkpointer"))
        try:
            if failed is None:
                saving.finish(writing.target, self._first)
        except CheckpointError as error:
            failed = str(error)
        if self._first:
            self._tidy(None if failed is None else writing.folder)
        if failed is not None:
            self._latest_saved = None
            self._warn(writing.step, failed)

    def _warn(self, step: int, why: str) -> None:
        latest = max(self._steps(), default=None)
        kept = "no older one exists" if latest is None else f"the latest is of step {latest}"
        warn_user(f"the {self._what} of step {step} was not written; {kept}: {why}", CheckpointWarning)

    def _tidy(self, failed: Path | None) -> None:
        """Remove the files of a failed save and the oldest checkpoints beyond `keep`; warn if that fails."""
        old = list(folders.steps_in(self._folder).values())
        for folder in ([failed] if failed else []) + (old[: -self._keep] if self._keep else []):
            try:
                folders.remove(folder)
            except OSError as error:
                warn_user(f"{folder} cannot be removed: {error}", CheckpointWarning)


class _Writing:
    """A save in progress: the thread that writes, and its error."""

    def __init__(self, step: int, target: Path, folder: Path, job: saving.SaveJob, first: bool):
        self.step, self.target, self.folder = step, target, folder
        self.error: str | None = None
        # A daemon, so that it does not keep a failing rank alive.
        self.thread = threading.Thread(target=self._run, args=(job, first), name="mpijax checkpoint", daemon=True)
        self.thread.start()

    def _run(self, job: saving.SaveJob, first: bool) -> None:
        try:
            if sys.platform == "linux":  # affects only this thread and those that tensorstore starts from it
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
            job.write(self.folder, first)
        except Exception as error:
            self.error = describe(error)
