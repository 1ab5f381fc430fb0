"""Ranks that stay alive between the cells of a notebook."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.distributed import shared_values, spawning
from mpijax.distributed.lines import Screen, ranges
from mpijax.distributed.output import MergedOutput

# Seconds that the other ranks have once one has failed, and that all have after an interrupt.
GRACE, STOPPING = 1.0, 8.0
# Seconds for finalizing MPI when no cell runs.
LEAVING = 5.0

Answer = tuple[dict[str, Any], list[bytes]]


class _FromRanks(BaseException):
    """An error of a cell; a notebook shows `tracebacks` (the ranks', as text) instead of the magic's own."""

    def __init__(self, message: str, tracebacks: str = ""):
        super().__init__(message)
        self.tracebacks = tracebacks

    def _render_traceback_(self) -> list[str]:
        return [*([self.tracebacks.rstrip()] if self.tracebacks else []), f"{type(self).__name__}: {self}"]


class RankError(_FromRanks, RuntimeError):
    """Ranks raised an exception in a cell, or have ended."""


class CellInterrupted(_FromRanks, KeyboardInterrupt):
    """The cell was interrupted."""


@dataclass
class _Cell:
    """A running cell: the answers so far, and why it was stopped, if it was."""

    timeout: float
    begin: float = field(default_factory=time.monotonic)
    answers: dict[int, Answer] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)
    failed: float = float("inf")  # the time of the first failure of a rank
    interrupts: int = 0
    stopped: str = ""

    def reason(self) -> str:
        """Why the ranks that still run must stop; empty if they need not."""
        now = time.monotonic()
        if self.interrupts:
            return "interrupt"
        if now - self.begin > self.timeout:
            return "timeout"
        return "failure" if now - self.failed > GRACE else ""

    def states(self, state: str) -> list[int]:
        return sorted(r for r, (answer, _) in self.answers.items() if answer["state"] == state)


class Ranks:
    """`size` processes of this machine that run cells, each in its own persistent namespace.

    They inherit their pipes, so no other process can connect. `alive` is false once they have been ended.
    """

    def __init__(self, size: int):
        self.size = size
        self.alive = True
        self._cells = 0
        terminal = getattr(sys.stdout, "isatty", lambda: False)()
        screen = Screen(lambda: shutil.get_terminal_size().columns, erases=terminal)
        self._output = MergedOutput(size, screen)
        environment = {"MPIJAX_PROGRESS": "bar", **os.environ}
        self._ranks = spawning.start(size, "mpijax.distributed.cell_worker", environment, self._output, session=True)
        for rank in self._ranks:
            self._output.selector.register(rank.pipe, selectors.EVENT_READ, rank)

    def run(
        self, source: str, values: Mapping[str, Any], wanted: list[str], timeout: float | None = None
    ) -> list[Answer]:
        """Run a cell on all ranks; returns each rank's answer, with the arrays in `wanted` variables.

        Raises:
          TypeError: `values` contain objects that cannot be shared; nothing has run then.
          RankError: ranks raised, or ended.
          KeyboardInterrupt: this process was interrupted.
          TimeoutError: after `timeout` seconds.

        The ranks stay alive if all of them have stopped and have begun the same collectives. Otherwise they are ended.
        """
        arrays: list[bytes] = []
        packed = {name: shared_values.pack(name, value, arrays) for name, value in values.items()}
        self._cells += 1
        name = f"<mpijax cell {self._cells}>"
        task = {"source": source, "name": name, "values": packed, "wanted": wanted}
        cell = _Cell(float("inf") if timeout is None else timeout)
        self._output.redirect(sys.stdout)
        with _interrupts_counted(cell):
            for rank in self._ranks:
                try:
                    shared_values.send(rank.pipe, task, arrays)
                except OSError:
                    pass  # it has ended; reading its answer reports that
            self._collect(cell)
        self._output.rest()
        self._judge(cell)
        return [cell.answers[r] for r in range(self.size)]

    def stop(self, seconds: float = LEAVING) -> None:
        """End the ranks: wait some time until they have finalized MPI, then kill them."""
        if not self.alive:
            return
        self.alive = False
        for rank in self._ranks:
            if not rank.pipe.closed:
                self._output.selector.unregister(rank.pipe)
                rank.pipe.close()
        for rank in self._ranks:
            rank.end(seconds)
        self._output.rest()
        self._output.selector.close()

    def _collect(self, cell: _Cell) -> None:
        """Pass on output until every rank has answered, ended, or failed to stop in time."""
        deadline = float("inf")
        while len(cell.answers) + len(cell.ended) < self.size and not (cell.ended and cell.reason()):
            for rank in self._output.turn():
                self._receive(rank, cell)
            if not cell.stopped and (why := cell.reason()):
                cell.stopped, deadline = why, time.monotonic() + STOPPING
                self._interrupt(cell)
            if cell.interrupts > 1 or time.monotonic() > deadline:
                return

    def _receive(self, rank: spawning.Rank, cell: _Cell) -> None:
        try:
            cell.answers[rank.number] = answer = shared_values.receive(rank.pipe)
        except (EOFError, OSError):
            self._output.selector.unregister(rank.pipe)
            rank.pipe.close()
            cell.ended.append(rank.number)
            cell.failed = min(cell.failed, time.monotonic())
            return
        if answer[0]["state"] == "failed":
            cell.failed = min(cell.failed, time.monotonic())

    def _interrupt(self, cell: _Cell) -> None:
        for rank in self._ranks:
            if rank.number not in cell.answers and rank.process.poll() is None:
                os.kill(rank.process.pid, signal.SIGINT)

    def _judge(self, cell: _Cell) -> None:
        """Raise the error of a cell that not all ranks have completed."""
        if len(cell.states("done")) == self.size:
            return
        deaths = [rank.death() for rank in self._ranks if rank.number in cell.ended] if not cell.stopped else []
        note = self._why_end(cell)
        if note:
            self.stop(spawning.GRACE)
            note = f"{note} All ranks were killed. The next cell starts new ones."
        if cell.interrupts:
            says = f"The cell was interrupted. {note or 'The ranks are still alive.'}"
            raise CellInterrupted(says, _tracebacks(cell, cell.states("interrupted"), self.size))
        if failed := cell.states("failed"):
            raise RankError(_errors(cell, failed, note), _tracebacks(cell, failed, self.size))
        if cell.stopped == "timeout":
            raise TimeoutError(
                f"The cell did not finish within {cell.timeout:g} s and was interrupted. {note}".rstrip()
            )
        raise RankError(" ".join([*(f"{death}." for death in deaths), note]))

    def _why_end(self, cell: _Cell) -> str:
        """Why the ranks cannot run another cell; empty if they can."""
        missing = sorted(set(range(self.size)) - set(cell.answers))
        if missing and not cell.stopped:
            return "See its output for details."
        if missing:
            return f"{_ranks(missing)} could not be stopped: a call of MPI or of compiled code does not return."
        for counts in _counts(cell).values():
            if len(set(counts.values())) > 1:
                done = ", ".join(f"rank {r}: {n}" for r, n in sorted(counts.items()))
                return f"The ranks stopped at different places (number of collectives begun: {done})."
        return ""


def _counts(cell: _Cell) -> dict[str, dict[int, int]]:
    """For each communicator, the number of collectives that each of its ranks has begun."""
    members: dict[str, list[int]] = {}
    for answer, _ in cell.answers.values():
        members |= {group: ranks for group, (_, ranks) in answer["counts"].items()}
    return {
        group: {r: cell.answers[r][0]["counts"].get(group, (0, ranks))[0] for r in ranks}
        for group, ranks in members.items()
    }


def _grouped(cell: _Cell, ranks: list[int], what: str) -> dict[str, list[int]]:
    """The ranks' answers under a name: each distinct text with the ranks that have it."""
    groups: dict[str, list[int]] = {}
    for r in ranks:
        groups.setdefault(cell.answers[r][0][what], []).append(r)
    return groups


def _tracebacks(cell: _Cell, ranks: list[int], size: int) -> str:
    return "\n".join(f"{_ranks(who)} of {size}:\n{text}" for text, who in _grouped(cell, ranks, "traceback").items())


def _errors(cell: _Cell, failed: list[int], note: str) -> str:
    says = "; ".join(f"{error} ({_ranks(who)})" for error, who in _grouped(cell, failed, "error").items())
    if stopped := cell.states("interrupted"):
        says += f". {_ranks(stopped)} still ran and {'was' if len(stopped) == 1 else 'were'} interrupted"
    return f"{says}. {note}" if note else says


def _ranks(numbers: list[int]) -> str:
    return f"rank{'s' if len(numbers) > 1 else ''} {ranges(numbers)}"


@contextmanager
def _interrupts_counted(cell: _Cell) -> Iterator[None]:
    """Count SIGINT instead of raising KeyboardInterrupt in the middle of a message; `Ranks` passes it to the ranks."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def count(_number: int, _frame: Any) -> None:
        cell.interrupts += 1

    before = signal.signal(signal.SIGINT, count)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
