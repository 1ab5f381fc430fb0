"""``mpijax.spawn``: runs a function on n fresh ranks of this machine, from a script, a test or a notebook.

The parent serves the ranks PMI-1 over socket pairs that they inherit, so no port is opened. Functions and results are
sent over pipes to our own children.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.distributed import functions, launchers
from mpijax.distributed.output import MergedOutput
from mpijax.distributed.pmi import PmiServer

GRACE = 0.5  # seconds for the other ranks' own messages after one has failed


class RankTraceback(Exception):
    """A rank's traceback as text: the cause of the exception that `spawn` raises."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def spawn(
    fn: Callable[..., Any],
    nprocs: int,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
) -> list[Any]:
    """``[fn(*args, **kwargs) on rank 0, ... on rank nprocs - 1]``, on fresh processes of this machine.

    Inside `fn` there are `nprocs` ranks with one device each. mpijax arrays in the results come back as NumPy arrays.
    `fn`, its arguments and its results may contain plain data, arrays, modules, functions and classes, those of
    ``__main__`` and of notebooks included. If this process's output is not a file of the system (in a notebook), lines
    that the ranks print appear here with their ranks.

    Args:
      nprocs: the number of ranks, at least 1.
      timeout: seconds after which the ranks are ended; None to wait.
      env: variables to set in the ranks in addition to this process's own.

    Raises:
      The exception of the first rank that failed, with its traceback as the cause; the other ranks are ended.
      RuntimeError: a rank died without an exception, or MPI is not MPICH.
      TimeoutError: after `timeout`.
      TypeError: `fn` or its arguments cannot be sent.

    >>> mpijax.spawn(mpijax.process_index, 2)
    [0, 1]
    """
    if not isinstance(nprocs, int) or nprocs < 1:
        raise ValueError(f"spawn needs at least 1 rank, got nprocs={nprocs!r}")
    task = functions.dumps((fn, tuple(args), dict(kwargs or {})))
    output = MergedOutput(nprocs) if not _is_file(sys.stdout) else None
    ranks = start(nprocs, "mpijax.distributed.worker", {**os.environ, **(env or {})}, output)
    if output:
        output.start()
    try:
        for rank in ranks:
            _send(rank.pipe, task)
        return _collect(ranks, timeout)
    finally:
        for rank in ranks:
            rank.pipe.close()  # ends a rank that still runs
        for rank in ranks:
            rank.end()
        if output:
            output.close()


@dataclass
class Rank:
    """A process that is a rank, and the private pipe to it."""

    number: int
    process: subprocess.Popen
    pipe: Connection

    def end(self, seconds: float = GRACE) -> None:
        """Wait some time for it to end, then kill it."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def death(self) -> str:
        """A description of how it ended; waits for its end."""
        code = self.process.wait()
        if code < 0:
            return f"rank {self.number} was killed by {signal.Signals(-code).name}"
        return f"rank {self.number} exited with status {code} before it returned a result"


def start(
    size: int, module: str, environment: Mapping[str, str], output: MergedOutput | None, *, session: bool = False
) -> list[Rank]:
    """The ranks of a new job, each running `module` with the descriptor of its pipe as argument.

    session: whether in a separate session, so that a keyboard interrupt reaches a rank only through this process.
    """
    pairs = [socket.socketpair() for _ in range(size)]
    threading.Thread(target=asyncio.run, args=(_serve([ours for ours, _ in pairs]),), daemon=True).start()
    ranks = []
    for number, (_, theirs) in enumerate(pairs):
        pipe, child_pipe = Pipe()
        variables = {"PMI_FD": str(theirs.fileno()), "PMI_RANK": str(number), "PMI_SIZE": str(size)}
        stream = output.stream(number) if output else None
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(child_pipe.fileno())],
            env={**launchers.outside(environment), **variables, "MPIJAX_BOOTSTRAP": "spawn", "PYTHONUNBUFFERED": "1"},
            pass_fds=[theirs.fileno(), child_pipe.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT if stream else None,
            start_new_session=session,
        )
        theirs.close()
        child_pipe.close()
        if stream:
            os.close(stream)
        ranks.append(Rank(number, process, pipe))
    return ranks


async def _serve(sockets: list[socket.socket]) -> None:
    """Runs the ranks' process manager. The end of a rank is detected on its pipe."""
    job = PmiServer(len(sockets), ended=lambda rank, code: None)
    streams = [await asyncio.open_connection(sock=each) for each in sockets]
    await asyncio.gather(*(job.serve(rank, *pair) for rank, pair in enumerate(streams)))


def _send(pipe: Connection, task: bytes) -> None:
    try:
        pipe.recv()  # "started": a task larger than the pipe needs its reader
        pipe.send_bytes(task)
    except (EOFError, OSError):
        pass  # it died; _collect reports how


def _collect(ranks: list[Rank], timeout: float | None) -> list[Any]:
    results: dict[int, Any] = {}
    deadline = None if timeout is None else time.monotonic() + timeout
    while len(results) < len(ranks):
        waiting = {rank.pipe: rank for rank in ranks if rank.number not in results}
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready = wait(list(waiting), left)
        if not ready:
            late = ", ".join(str(rank.number) for rank in waiting.values())
            raise TimeoutError(f"rank {late} returned no result within {timeout:g} s. The ranks were killed.")
        for pipe in ready:
            rank = waiting[pipe]  # type: ignore[index]
            try:
                kind, *content = functions.loads(rank.pipe.recv_bytes())
            except (EOFError, OSError):
                raise RuntimeError(f"{rank.death()}. See its output for details.") from None
            if kind == "error":
                error, text = content
                error.add_note(f"raised by rank {rank.number} of {len(ranks)}")
                raise error from RankTraceback(text)
            results[rank.number] = content[0]
    return [results[rank.number] for rank in ranks]


def _is_file(stream: Any) -> bool:
    """Whether `stream` writes to the same output that children inherit."""
    try:
        return stream.fileno() == 1
    except (AttributeError, OSError, ValueError):
        return False
