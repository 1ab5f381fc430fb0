"""`Checkpointer`: a folder of checkpoints of a run, written beside the computation."""

from __future__ import annotations

import datetime
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

from mpijax.checkpointing import folders, restoring, saving, store
from mpijax.checkpointing.errors import CheckpointError, CheckpointWarning, agree, describe, join
from mpijax.core.warn import warn_user
from mpijax.distributed import preemption

# The threads that write run when the program leaves a core free, as far as Linux is concerned.
_NICE = 19
_STEP = re.compile(r"step-(\d{8,18})")


def steps_in(folder: Path) -> dict[int, Path]:
    """The whole checkpoints in a folder by their step, in order."""
    names = os.listdir(folder) if folder.is_dir() else []
    shown = {name.removesuffix(".replaced").removeprefix(".") for name in names}
    places = {int(m[1]): folders.found(folder / name) for name in shown if (m := _STEP.fullmatch(name))}
    return {step: places[step] for step in sorted(places) if folders.is_checkpoint(places[step])}


class Checkpointer:
    """A folder with the checkpoints of a run. All methods are collective: every rank calls them, in the same order.

    Args:
      path: the folder, which every rank sees.
      keep: how many checkpoints to keep; older ones are removed when a new one is whole.
      every: which calls of `save` save: those at a multiple of this many steps, or (a `datetime.timedelta`) when
        that much time has passed since the last one. None: all.

    `save` copies this rank's parts of the arrays and returns; a thread writes them. The next calls of `save`,
    `should_stop`, `wait` and `close` look whether all ranks are done, and then make it a checkpoint. Until then the
    older one is the latest. If a rank cannot write (a full disk), every rank warns with `CheckpointWarning` and the run
    goes on with the older ones.

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
        self, path: str | os.PathLike, *, keep: int | None = 3, every: int | datetime.timedelta | None = None
    ):
        if keep is not None and keep < 1:
            raise ValueError(f"Checkpointer keeps at least one checkpoint, got keep={keep}")
        if isinstance(every, int) and every < 1:
            raise ValueError(f"Checkpointer saves every so many steps, at least 1; got every={every}")
        self.path = Path(os.path.abspath(path))
        self._keep, self._every = keep, every
        self._begun = time.monotonic()
        self._writing: _Writing | None = None
        self._latest_saved: int | None = None
        self._closed = False

    def save(self, step: int, tree: Any, *, force: bool = False) -> bool:
        """Begin to save the state after `step` steps, if it is due (`every`) or with `force`; whether it did.

        What was saved last is not saved again.

        Waits for the save before, if that is not done. Raises CheckpointError, on every rank, for a tree that cannot
        be saved.
        """
        self._poll()
        if self._closed:
            raise ValueError("this Checkpointer is closed")
        if not (force or self._is_due(step)):
            return False
        if step == self._latest_saved:
            return False
        self.wait()
        store.tensorstore()
        target = self.path / f"step-{step:08d}"
        job = saving.prepare(tree, copy=True)
        try:
            agree(self._recover, "Checkpointer.save")
            folder = saving.begin(target)
        except CheckpointError as error:
            self._warn(step, str(error))
            return False
        self._begun, self._latest_saved = time.monotonic(), step
        self._writing = _Writing(step, target, folder, job)
        return True

    def _recover(self) -> None:
        """Before the first save: remove what a killed run left."""
        from mpijax.runtime.mpi import mpi_start

        if self._latest_saved is None and mpi_start.rank() == 0 and self.path.is_dir():
            folders.recover(self.path, _STEP)

    def _is_due(self, step: int) -> bool:
        if isinstance(self._every, datetime.timedelta):
            from mpijax.runtime.mpi import mpi_start, objects

            passed = time.monotonic() - self._begun >= self._every.total_seconds()
            return objects.any_rank(mpi_start.rank() == 0 and passed, "Checkpointer.save")
        return self._every is None or step % self._every == 0

    def _poll(self) -> None:
        """Make what is being written a checkpoint if all ranks are done."""
        from mpijax.runtime.mpi import objects

        if self._writing is not None and not objects.any_rank(self._writing.thread.is_alive(), "Checkpointer"):
            self._finish()

    def wait(self) -> None:
        """Wait until the save that is going on is a checkpoint, or has failed."""
        if self._writing is not None:
            self._finish()

    def _finish(self) -> None:
        from mpijax.runtime.mpi import objects

        writing, self._writing = self._writing, None
        assert writing is not None
        writing.thread.join()
        failed = join(objects.allgather(writing.error, "Checkpointer"))
        try:
            if failed is None:
                saving.finish(writing.folder, writing.target)
        except CheckpointError as error:
            failed = str(error)
        self._tidy(None if failed is None else writing.folder)
        if failed is not None:
            self._latest_saved = None
            self._warn(writing.step, failed)

    def _warn(self, step: int, why: str) -> None:
        latest = self.latest()
        kept = "there is no older one" if latest is None else f"the latest is that of step {latest}"
        warn_user(f"the checkpoint of step {step} was not written; {kept}: {why}", CheckpointWarning)

    def _tidy(self, failed: Path | None) -> None:
        """Remove what is left of a save that failed, and the checkpoints that are too many. Rank 0 does, if it can."""
        from mpijax.runtime.mpi import mpi_start

        if mpi_start.rank() > 0:
            return
        old = list(steps_in(self.path).values())
        for folder in ([failed] if failed else []) + (old[: -self._keep] if self._keep else []):
            try:
                folders.remove(folder)
            except OSError as error:
                warn_user(f"{folder} cannot be removed: {error}", CheckpointWarning)

    def steps(self) -> list[int]:
        """The steps that have checkpoints, in order."""
        from mpijax.runtime.mpi import mpi_start

        found = agree(lambda: list(steps_in(self.path)) if mpi_start.rank() == 0 else [], "Checkpointer.steps")
        return found[0]

    def latest(self) -> int | None:
        """The step of the latest checkpoint; None if there is none."""
        return max(self.steps(), default=None)

    def restore(self, step: int | None = None, like: Any = None) -> Any:
        """The state that was saved at a step (the latest), as `mpijax.checkpoint.restore` reads it.

        Raises CheckpointError, on every rank, where there is none, or it is damaged: then give an older step.
        """
        self.wait()
        steps = self.steps()
        chosen = max(steps, default=None) if step is None else step
        if chosen is None or chosen not in steps:
            what = "no checkpoint" if step is None else f"no checkpoint of step {step}"
            raise CheckpointError(f"{self.path} has {what}; it has those of steps {steps}")
        return restoring.restore(self.path / f"step-{chosen:08d}", like)

    def should_stop(self) -> bool:
        """Whether a signal asked any rank to stop (`mpijax.distributed.should_stop`): save with `force`, and leave."""
        self._poll()
        return preemption.should_stop()

    def close(self) -> None:
        """Wait for what is being written. After that nothing can be saved."""
        self.wait()
        self._closed = True

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        # After an exception the other ranks may be elsewhere: nothing that waits for them.
        if kind is None:
            self.close()


class _Writing:
    """A save that is going on: the thread that writes, and the error that it ended with."""

    def __init__(self, step: int, target: Path, folder: Path, job: saving.Job):
        from mpijax.runtime.mpi import mpi_start

        self.step, self.target, self.folder = step, target, folder
        self.error: str | None = None
        first = mpi_start.rank() == 0
        # A daemon: a rank that ends with an error is not kept alive by it.
        self.thread = threading.Thread(target=self._run, args=(job, first), name="mpijax checkpoint", daemon=True)
        self.thread.start()

    def _run(self, job: saving.Job, first: bool) -> None:
        try:
            if sys.platform == "linux":  # this thread alone, and those that tensorstore starts for it
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
            job.write(self.folder, first)
        except Exception as error:
            self.error = describe(error)
