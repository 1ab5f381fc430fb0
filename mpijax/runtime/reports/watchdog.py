"""The stall watchdog: a thread that reports what a rank waits for when it has waited too long.

It reads the records of the ranks of its node (`recorder`) and makes no MPI calls. After MPIJAX_STALL_SECONDS (60) in
one operation it warns, and requests record files from all ranks of the node. It warns again after twice that time, and
so on.
It ends this process only if the process cannot or must not continue: MPIJAX_STALL_ABORT=1 is set, a needed rank has
ended or waits for this one (`deadlock`), two ranks ran different collectives (`divergence`), or the user pressed
Ctrl-C. The launcher then ends the other ranks; if it does not, those of this node end themselves.

SIGUSR1 writes a rank's record to a file (`MPIJAX_TRACE_DIR`, or the current folder), also while it waits inside MPI.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, TextIO

from mpijax._ext import record
from mpijax.runtime.reports import deadlock, divergence, output, record_file
from mpijax.runtime.reports.recorder import COLLECTIVE, ENDED, Site, ranges, recorder

# Seconds: maximum between two checks; of waiting for an ended rank before this one exits; after Ctrl-C before a forced
# exit, in one operation and in a program that runs through many.
LOOK = 0.5
VAIN = 3.0
# Shorter than VAIN for a rank whose process is gone: it sends nothing, and the launcher is about to end the job.
GONE = 0.25
# Seconds for the launcher to end the job in which a process has ended without MPI_Finalize. srun may let the others
# continue, and Hydra of MPICH 4.3 to 5.0 ignores an exit status if it sees this before it sees the socket close.
DESERTED = 4.0
INTERRUPT = 1.0
INTERRUPT_PROGRAM = 5.0
# Accepted values of MPIJAX_STALL_ABORT.
_ON, _OFF = ("1", "on", "true", "yes"), ("", "0", "off", "false", "no")
# Maximum number of ranks that a report describes one by one.
DESCRIBED = 8
# The stream for reports; None: the current sys.stderr.
stream: TextIO | None = None


class Watchdog:
    """The state of this rank so far. seen: its last operation. since: when that was first seen in progress."""

    def __init__(self, seconds: float, abort: bool):
        self.seconds = seconds
        self.abort = abort
        self.seen, self.since, self.next_report = -1, 0.0, seconds
        self.signals = record.signals(signal.SIGUSR1)
        self.interrupts = record.signals(signal.SIGINT)
        self.interrupted: tuple[float, int, Any] | None = None  # time, operation, and position of the Python code
        self.deserted: float | None = None  # since when a rank's process is known to be gone
        self.suspicion = deadlock.Suspicion()
        self.exclusive = bool(recorder.mine["exclusive"])
        self.dumps = int(recorder.mine["dumps"])

    def run(self) -> None:
        while True:
            record.wait(min(LOOK, self.seconds / 4))
            try:
                self.look(time.monotonic())
            except Exception as error:  # an error in reports must not end the job
                _say(f"the stall watchdog failed: {type(error).__name__}: {error}")
                return

    def look(self, now: float) -> None:
        self._write_if_asked()
        end_if_diverged()
        number, busy = recorder.progress(recorder.mine)
        self._end_if_interrupted(now, number, busy)
        self._end_if_deserted(now)
        if not busy or number != self.seen:
            self.seen, self.since, self.next_report = number if busy else -1, now, self.seconds
            return
        waited = now - self.since
        what = _operation()
        if GONE < waited <= VAIN and what.peers is None:  # a message may have been sent before its sender ended
            self._end_if_in_vain(what, lambda r: r in recorder.ranks and recorder.is_gone(r))
        if waited > VAIN:
            # Even if MPI allows several threads, only one may exist: this thread does not communicate.
            recorder.mine["exclusive"] = self.exclusive or len(sys._current_frames()) <= 2
            self._end_if_in_vain(what, _has_ended)
            self._end_if_stuck(now)
        if waited > self.next_report:
            self.next_report = 2 * waited
            _say(report(what, waited))
            recorder.regions["dumps"] += 1
            self._write_if_asked()
            if self.abort:
                _end(1, f"ended after {waited:.0f} s in {what}, because MPIJAX_STALL_ABORT is set")

    def _end_if_interrupted(self, now: float, number: int, busy: bool) -> None:
        """Ends the process after Ctrl-C: Python handles it only when its current call returns, which may be never."""
        signals, place = record.signals(signal.SIGINT), _python_is_at()
        if signals == self.interrupts:
            return
        if self.interrupted is None:
            self.interrupted = now, number, place
        when, then, there = self.interrupted
        if place != there:
            self.interrupts, self.interrupted = signals, None
        elif number == then:
            if busy and now - when > INTERRUPT:
                _end(130, f"interrupted by Ctrl-C in {_operation()}")
        elif now - when > INTERRUPT_PROGRAM and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            _end(130, f"interrupted by Ctrl-C in a program that still communicates, in {_operation()}")

    def _end_if_deserted(self, now: float) -> None:
        """Ends the process if another rank's has ended without MPI_Finalize, and the launcher has let this one run."""
        gone = [r for r in recorder.ranks if _has_deserted(r)] if int(recorder.mine["state"]) != ENDED else []
        if not gone:
            self.deserted = None
        elif self.deserted is None:
            self.deserted = now
        elif now - self.deserted > DESERTED:
            status = int(recorder.region(gone[0])["status"]) or 1
            output.blame(recorder.rank, gone[0], status)
            _end(status, f"the process of rank {gone[0]} has ended without MPI_Finalize")

    def _write_if_asked(self) -> None:
        signals, dumps = record.signals(signal.SIGUSR1), int(recorder.mine["dumps"])
        if (signals, dumps) != (self.signals, self.dumps):
            self.signals, self.dumps = signals, dumps
            _say(f"the last operations are in {record_file.write()} (merge the ranks' files with `mpijax trace`)")

    def _end_if_in_vain(self, what: Site, has_ended: Callable[[int], bool]) -> None:
        anybody = what.group if what.peers == () else None
        needed = missing(what) if anybody is None else [r for r in anybody.ranks if r != recorder.rank]
        if what.peers:  # the destination of a message may end before we do
            needed = [r for r in needed if r == what.peers[0]]
        ended = [r for r in needed if has_ended(r)]
        if ended and (anybody is None or ended == needed):
            status = max(int(recorder.region(r)["status"]) for r in ended) or 1
            who = f"rank {ended[0]} has" if len(ended) == 1 else f"ranks {ranges(ended)} have"
            it = "it" if len(ended) == 1 else "one of them" if anybody else "them"
            output.blame(recorder.rank, ended[0], status)
            _end(status, f"{who} ended, but rank {recorder.rank} waits for {it} in {what}")

    def _end_if_stuck(self, now: float) -> None:
        found = self.suspicion.confirmed(now)
        if found:
            _end(1, found)


def end_if_diverged() -> None:
    """End the job if this rank and another one ran different collectives, and so received wrong data."""
    if text := divergence.found():
        _end(1, text)


def _operation() -> Site:
    """The current operation of this rank, with the line of this call if known."""
    return recorder.now(int(recorder.last(recorder.mine)["site"]), _main_frame())


def _main_frame() -> FrameType | None:
    return sys._current_frames().get(threading.main_thread().ident or 0)


def _python_is_at() -> tuple[int, int]:
    """The position of the main thread's current call."""
    frame = _main_frame()
    return (id(frame), frame.f_lasti) if frame is not None else (0, 0)


def missing(what: Site) -> list[int]:
    """The ranks of this node that have not reached this rank's operation, as far as records show."""
    members = what.group.ranks if what.group else recorder.ranks
    here = [r for r in members if r in recorder.ranks and r != recorder.rank]
    if what.peers is not None:
        return [r for r in what.peers if r in here]
    if what.group is None:
        return []
    mine = recorder.mine
    sequence = recorder.sequence_of(mine, int(recorder.last(mine)["site"])) or what.group.id + COLLECTIVE
    count = recorder.count(mine, sequence)
    return [r for r in here if recorder.count(recorder.region(r), sequence) < count]


def _has_ended(rank: int) -> bool:
    """Whether a rank is known to have ended."""
    region = recorder.region(rank)
    return region is not None and (recorder.is_gone(rank) or int(region["state"]) == ENDED)


def _has_deserted(rank: int) -> bool:
    """Whether the process of a rank has ended, but not as one does that leaves MPI with status 0."""
    region = recorder.region(rank)
    return recorder.is_gone(rank) and (int(region["state"]) != ENDED or int(region["status"]) != 0)


def report(what: Site, waited: float) -> str:
    """The report: the operation this rank waits in, the ranks it waits for, and where those are."""
    absent = missing(what)
    entry = recorder.last(recorder.mine)
    lines = [
        f"rank {recorder.rank} has waited {waited:.0f} s in {what}",
        f"    its operation number {recorder.progress(recorder.mine)[0]}, {int(entry['nbytes'])} bytes",
    ]
    verb = "is needed" if what.peers else "has not arrived"
    lines += [f"    rank {r} {verb}: {_whereabouts(r)}" for r in absent[:DESCRIBED]]
    if len(absent) > DESCRIBED:
        lines.append(f"    the same holds for ranks {ranges(absent[DESCRIBED:])}")
    members = what.peers if what.peers is not None else what.group.ranks if what.group else ()
    elsewhere = [r for r in members if r not in recorder.ranks]
    if elsewhere:
        lines.append(f"    ranks {ranges(elsewhere)} are on other nodes, which report their positions")
    if what.peers == ():
        lines.append("    it receives from any rank")
    elif ring := deadlock.ring():
        lines.append(f"    they wait for each other: {ring}")
    elif not absent and not elsewhere:
        lines.append("    all of its ranks are in it: their sizes or communicators may differ")
    return "\n".join(lines)


def _whereabouts(rank: int) -> str:
    region: Any = recorder.region(rank)
    number, busy = recorder.progress(region)
    if recorder.is_gone(rank):
        state = "its process has ended"
    elif int(region["state"]) == ENDED:
        state = "its program has ended"
    else:
        state = "it computes, or waits outside of mpijax"
    if number == 0:
        return f"{state}; it has not communicated"
    entry = recorder.last(region)
    scale, _ = recorder.nanoseconds()
    last = recorder.text_of(region, int(entry["site"]))
    if busy:
        return f"for {_ago(entry['begin'], scale)} in {last}, its operation number {number}"
    return f"{state}; {_ago(entry['end'], scale)} ago it finished {last}, its operation number {number}"


def _ago(tick: Any, scale: float) -> str:
    return f"{max(record.ticks() - int(tick), 0) * scale / 1e9:.1f} s"


def _say(text: str) -> None:
    output.say(recorder.rank, "".join(f"mpijax: {line}\n" for line in text.splitlines()), stream)


def _end(status: int, reason: str) -> None:
    """End this process while its main thread is inside MPI, so that no other thread may call MPI."""
    recorder.mine["status"] = status
    try:
        _say(reason + ": ending the job")
        output.flush()
        output.wait_until_read()
    finally:
        os._exit(status)


def settings() -> tuple[float, bool]:
    """(seconds until a waiting rank warns, whether it then ends the job). Raises ValueError for invalid settings."""
    setting = os.environ.get("MPIJAX_STALL_SECONDS", "60")
    try:
        seconds = float(setting)
    except ValueError:
        raise ValueError(f"MPIJAX_STALL_SECONDS must be a number of seconds (0: never warn), got {setting!r}") from None
    abort = os.environ.get("MPIJAX_STALL_ABORT", "").lower()
    if abort not in (*_ON, *_OFF):
        raise ValueError(
            f"MPIJAX_STALL_ABORT must be 1 (a stall ends the job) or 0, got {abort!r}. MPIJAX_STALL_SECONDS sets the "
            "time"
        )
    return seconds if seconds > 0 else float("inf"), abort in _ON


def start() -> None:
    """Start watching this rank. Raises ValueError for invalid settings."""
    seconds, abort = settings()
    if signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:  # otherwise the program uses it
        record.watch_signal(signal.SIGUSR1)
    record.watch_signal(signal.SIGINT)
    watchdog = Watchdog(seconds, abort)
    threading.Thread(target=watchdog.run, name="mpijax-watchdog", daemon=True).start()
