"""When the steps of programs began and ended, while the option `mpijax_profile_kernels` is on.

A program that is loaded then has a kernel before and after each of its kernels, library calls and Python calls, which
notes the time in memory of this process (``cython_ext/step_notes.h``, 25 ns). The last 65,536 steps are kept.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from mpijax._ext import record
from mpijax.compiler.steps.instructions import GemmCall, KernelCall, NativeCall, PythonCall
from mpijax.core.lazy_dataclass import dataclass
from mpijax.core.source import Source
from mpijax.runtime.reports.recorder import recorder

_NOTE = np.dtype([("ticks", "u8"), ("thread", "u8"), ("what", "i8")])
_TIMED = (KernelCall, GemmCall, PythonCall, NativeCall)
_lock = threading.Lock()
# What notes mean: the label and the line of each step.
_steps: list[tuple[str, Source]] = []


@dataclass(frozen=True)
class Span:
    """A step that ran: its label, the user's line, the thread, and when it began and ended, in ns since 1970."""

    label: str
    line: str
    thread: int
    begin: int
    end: int


def noted(step: Any) -> tuple[Any, ...]:
    """An instruction of a program, with notes around it if it is one that computes."""
    if not isinstance(step, _TIMED):
        return (step,)
    label = f"gemm {step.m}x{step.n}x{step.k}" if isinstance(step, GemmCall) else step.label
    with _lock:
        number = len(_steps)
        _steps.append((label, step.source))
    begins, ends = (KernelCall(record.step_notes_address(), (), (2 * number + x,), 1, 1) for x in (0, 1))
    return begins, step, ends


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
        # A step that raised has no end, and the oldest ones have lost their beginning.
        while inside and inside[-1][0] != number:
            inside.pop()
        if inside:
            label, line = _steps[number]
            begin = zero + int(inside.pop()[1] * scale)
            found.append(Span(label, str(line) if line.file else "", thread, begin, zero + int(ticks * scale)))
    return found
