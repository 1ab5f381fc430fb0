"""Errors of checkpoints, and how all ranks learn of an error on one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpijax.runtime.mpi import objects


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written or read. Every rank raises it, with the message of each rank that failed.

    >>> import tempfile
    >>> try:
    ...     mpijax.checkpoint.restore(tempfile.gettempdir())
    ... except mpijax.checkpoint.CheckpointError as error:
    ...     "is not a checkpoint" in str(error)
    True
    """


class CheckpointWarning(UserWarning):
    """A `Checkpointer` could not write a checkpoint; the previous ones still exist.

    >>> issubclass(mpijax.checkpoint.CheckpointWarning, UserWarning)
    True
    """


def describe(error: BaseException) -> str:
    """An error as one line, to send to other ranks."""
    return str(error) if isinstance(error, CheckpointError) else f"{type(error).__name__}: {error}"


def join(texts: list[str | None]) -> str | None:
    """The errors of all ranks (None: none) as one text; None if no rank has one."""
    failed = {rank: text for rank, text in enumerate(texts) if text is not None}
    if not failed:
        return None
    if len(texts) == 1 or len(set(failed.values())) == 1 and len(failed) == len(texts):
        return next(iter(failed.values()))
    shown = [f"rank {rank}: {text}" for rank, text in list(failed.items())[:8]]
    more = f"; and {len(failed) - 8} more ranks" if len(failed) > 8 else ""
    return "; ".join(shown) + more


def agree(call: Callable[[], Any], what: str) -> list[Any]:
    """The result of `call()` on each rank. Collective.

    If it raises an Exception on any rank, all ranks raise CheckpointError, so none waits for another.
    """
    value = error = None
    try:
        value = call()
    except Exception as raised:
        error = raised
    answers = objects.allgather((value, None if error is None else describe(error)), what)
    text = join([said for _, said in answers])
    if text is not None:
        raise CheckpointError(text) from error
    return [returned for returned, _ in answers]
