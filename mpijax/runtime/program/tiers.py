"""Tiers of machine code: baseline code for the first runs of a program, optimized code for the others.

Most programs of a session run once or a few times, and compiling takes longer than running. Their kernels get baseline
code. A program that runs often, or whose loops take long, gets optimized code from a thread while it runs; both compute
the same bits. A program whose single run surely takes longer than compiling gets optimized code at once.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import suppress
from typing import Any
from weakref import ref

from mpijax._ext.loading import rebind
from mpijax.compiler.backend import llvm
from mpijax.compiler.steps.instructions import KernelCall, Loop, While, bytes_touched
from mpijax.compiler.steps.plan import Plan
from mpijax.core import config, locks
from mpijax.runtime.machine.executable import Program
from mpijax.runtime.program import code

# Bytes that kernels touch in one run above which a run takes longer than compiling optimized code.
LONG_RUN = 1 << 26
# Optimized code is made after kernels have touched this many bytes in all runs, and after this many runs in any case.
WARM, MOST_RUNS = 1 << 18, 64
# Optimized code is made when the loops of a program have taken this many nanoseconds, about what a small one costs.
PATIENCE = 10_000_000
# More runs than any program has.
NEVER = 1 << 62

_waiting: deque[ref[Program]] = deque()
_lock = locks.lock()
_working = False


def baseline_runs(plan: Plan) -> int | None:
    """The number of runs on baseline code before a program gets optimized code; None: it starts with optimized code.

    0: it gets optimized code during its first run, because its loops have many iterations.
    """
    values = config.values
    if values.jax_disable_most_optimizations or values.jax_optimization_level == "O0":
        return NEVER
    if values.jax_optimization_level in ("O2", "O3"):
        return None
    touched = bytes_touched(plan.instructions, plan.buffers)
    if touched is None:  # `patience` decides
        return MOST_RUNS
    if touched >= LONG_RUN:
        return 0 if any(map(_loops, plan.instructions)) else None
    return max(1, min(MOST_RUNS, WARM // max(touched, 1)))


def patience(runs: int | None) -> int:
    """How long the loops of a program may take on baseline code, in nanoseconds; 0: as long as they do."""
    return 0 if runs in (None, 0, NEVER) else PATIENCE


def _loops(x: Any) -> bool:
    """Whether an instruction can switch to better code while it runs."""
    return isinstance(x, (Loop, While)) or isinstance(x, KernelCall) and x.frame > 0


def tier_up(program: Program) -> None:
    """Have a thread give a program optimized code. The thread ends when no program is waiting."""
    global _working
    with _lock:
        _waiting.append(ref(program))
        if _working:
            return
        _working = True
    try:
        threading.Thread(target=_work, name="mpijax optimises").start()
    except RuntimeError:  # no more threads, or the process is exiting
        _forget()


def _forget() -> None:
    """Reset the state in a forked process, which does not have the thread."""
    global _working
    _working = False
    _waiting.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _work() -> None:
    """Work until no program is waiting. Process exit waits for threads, so then it stops after the current program."""
    global _working
    while True:
        with _lock:
            if not _waiting or not threading.main_thread().is_alive():
                _waiting.clear()
                _working = False
                return
            program = _waiting.popleft()()
        if program is not None:
            with suppress(llvm.LLVMError, OSError, MemoryError):  # keep the baseline code, which gives the same results
                rebind(program, code.optimized(program.spec.addresses))
        del program
