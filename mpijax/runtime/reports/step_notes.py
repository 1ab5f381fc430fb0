"""Records the begin and end of program steps while the option `mpijax_profile_kernels` is on.

A program loaded then gets a kernel before and after each of its kernels, library calls and Python calls. It writes the
time to memory of this process (``cython_ext/step_notes.h``, 25 ns). The last 65,536 runs of steps are kept, and each
step's total time. `mpijax profile` also records exchanges.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpijax._ext import record
from mpijax.compiler.steps.instructions import Finish, GemmCall, KernelCall, Loop, NativeCall, PythonCall
from mpijax.core.base import locks
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.runtime.machine.executable import Call
from mpijax.runtime.reports.recorder import recorder

_NOTE = np.dtype([("ticks", "u8"), ("thread", "u8"), ("what", "i8")])
# A loop in time tiles is one step.
_KINDS = {KernelCall: "kernel", Loop: "kernel", GemmCall: "library", NativeCall: "library", PythonCall: "python"}
_EXCHANGES = {Call: "exchange", Finish: "exchange"}
_lock = locks.lock()
# Whether to record exchanges too. The communication record has each of them in any case.
with_exchanges = False


@dataclass(frozen=True, slots=True)
class NotedStep:
    """The step behind a note: the kind of instruction, its label, the user's line, and the operations and operand bytes
    of a matrix product."""

    kind: str
    label: str
    line: str
    flops: float = 0.0
    nbytes: int = 0


_steps: list[NotedStep] = []


@dataclass(frozen=True)
class Span:
    """A step that ran: its label, the user's line, its thread, and its begin and end in ns since 1970."""

    label: str
    line: str
    thread: int
    begin: int
    end: int


def noted(step: Any) -> tuple[Any, ...]:
    """An instruction of a program; with notes around it if it computes."""
    kind = _KINDS.get(type(step)) or (_EXCHANGES.get(type(step)) if with_exchanges else None)
    if kind is None:
        return (step,)
    with _lock:
        number = len(_steps)
        _steps.append(_described(kind, step))
    begins, ends = (KernelCall(record.step_notes_address(), (), (2 * number + x,), 1, 1) for x in (0, 1))
    return begins, step, ends


def _described(kind: str, step: Any) -> NotedStep:
    if isinstance(step, Call):
        return NotedStep(kind, step.report.label, step.report.line)
    if isinstance(step, Finish):
        return NotedStep(kind, "wait for an exchange", "")
    line = str(step.source) if step.source.file else ""
    if isinstance(step, Loop):
        label = "_".join(["loop", *(x.label for x in step.body if isinstance(x, KernelCall))])
        return NotedStep(kind, label[:80], line)
    if not isinstance(step, GemmCall):
        return NotedStep(kind, step.label, line)
    m, n, k, batch = step.m, step.n, step.k, math.prod(step.batch)
    nbytes = batch * (m * k + k * n + m * n) * step.dtype.itemsize
    return NotedStep(kind, f"gemm {m}x{n}x{k}", line, 2.0 * batch * m * n * k, nbytes)


def count() -> int:
    """The number of steps in all loaded programs."""
    return len(_steps)


def sums() -> list[tuple[NotedStep, int, float]]:
    """(step, number of runs, total seconds) of each step, without the steps of other programs that it called."""
    scale, _ = recorder.nanoseconds()
    found = record.step_sums(len(_steps))
    return [(step, calls, ticks * scale * 1e-9) for step, (ticks, calls) in zip(_steps, found, strict=False)]


def spans() -> list[Span]:
    """The steps that have ended, oldest first."""
    count, data = record.step_notes()
    notes = np.frombuffer(data, _NOTE)
    if count > len(notes):
        notes = np.roll(notes, -(count % len(notes)))
    scale, zero = recorder.nanoseconds()
    begun: dict[int, list[tuple[int, int]]] = {}
    found = []
    for ticks, thread, what in notes[:count].tolist():
        number, ends = divmod(what, 2)
        inside = begun.setdefault(thread, [])
        if not ends:
            inside.append((number, ticks))
            continue
        # A step that raised has no end note; the oldest ones have lost their begin note.
        while inside and inside[-1][0] != number:
            inside.pop()
        if inside:
            step = _steps[number]
            begin = zero + int(inside.pop()[1] * scale)
            found.append(Span(step.label, step.line, thread, begin, zero + int(ticks * scale)))
    return found
