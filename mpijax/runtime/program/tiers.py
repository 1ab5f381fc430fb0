"""Tiers of machine code: baseline code for the first runs of a program, optimized code for the others.

Most programs of a session run once or a few times, and compiling takes longer than running. Their kernels get
baseline code. A program that runs often, or whose loops take long, gets optimized code from a thread. Both compute
the same bits. One run waits for the code if that probably takes no longer than a few runs: a program that ran twice
will probably run often, and on one core the thread needs the time. A program whose single run surely takes longer
than compiling gets optimized code at once.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from contextlib import suppress
from typing import Any
from weakref import ref

from mpijax._ext.loading import rebind
from mpijax.compiler.backend import llvm
from mpijax.compiler.steps.instructions import KernelCall, Loop, While, bytes_touched
from mpijax.compiler.steps.plan import ProgramPlan
from mpijax.core.base import config, locks
from mpijax.runtime.machine.executable import Program
from mpijax.runtime.program import code

# Bytes that kernels touch in one run above which a run takes longer than compiling optimized code.
LONG_RUN = 1 << 26
# Optimized code is made after kernels have touched this many bytes in all runs, and after this many runs in any case.
WARM, MOST_RUNS = 1 << 18, 64
# Optimized code is made when the loops of a program have taken this many nanoseconds, about what a small one costs.
PATIENCE = 10_000_000
# A run waits for optimized code if it takes no longer than this many runs.
WAIT = 32
# Nanoseconds that LLVM needs for a byte of packed IR: 6,000 to 40,000 on two processors.
PER_BYTE = 10_000
# More runs than any program has.
NEVER = 1 << 62

# The programs that asked for optimized code, first the one that is next, and whether a run has waited for the code.
# The thread removes a program after it has the code.
_waiting: OrderedDict[ref[Program], bool] = OrderedDict()
_lock = locks.lock()
_fewer_wait = threading.Condition(_lock)
_working = False


def baseline_runs(plan: ProgramPlan) -> int | None:
    """The number of runs on baseline code before a program gets optimized code; None: it starts with optimized code.

    0: a thread makes optimized code during its first run, because its loops have many iterations.
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


def tier_up(program: Program, run_time: int) -> None:
    """Have a thread give a program optimized code.

    One run waits for it, if LLVM will probably make it in the time of `WAIT` runs. run_time: of a run, in nanoseconds.
    """
    global _working
    own = ref(program)
    with _fewer_wait:
        waited = _waiting.setdefault(own, False)
        if not _working:
            try:
                threading.Thread(target=_work, name="mpijax optimises").start()
            except RuntimeError:  # no more threads, or the process is exiting
                del _waiting[own]
                rebind(program, None)
                return
            _working = True
        if not waited and _expected(program) <= WAIT * run_time:
            _waiting[own] = True
            _waiting.move_to_end(own, last=False)
            _fewer_wait.wait_for(lambda: own not in _waiting, 2 * WAIT * run_time / 1e9)


def _expected(program: Program) -> int:
    """About how long LLVM takes to make optimized code, in nanoseconds."""
    codes = {id(c): c for c in program.spec.addresses.codes.values()}
    return PER_BYTE * sum(len(c.ir) for c in codes.values() if c.ir is not None and c.better is None)


def _forget() -> None:
    """Reset the state in a forked process, which does not have the thread."""
    global _working, _fewer_wait
    _working = False
    _waiting.clear()
    _fewer_wait = threading.Condition(_lock)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _work() -> None:
    """Work until no program is waiting. Process exit waits for threads, so then it stops after the current program.

    A program that is forgotten then asks again in its next run.
    """
    global _working
    try:
        while threading.main_thread().is_alive() and _waiting:
            _optimize_next()
    finally:
        with _fewer_wait:
            _working = False
            _waiting.clear()
            _fewer_wait.notify_all()


def _optimize_next() -> None:
    with _lock:
        own = next(iter(_waiting))
    program, made = own(), None
    if program is not None:
        with suppress(llvm.LLVMError, OSError, MemoryError):  # keep the baseline code, which gives the same results
            made = code.optimized(program.spec.addresses)
        rebind(program, made)
    with _fewer_wait:
        del _waiting[own]
        _fewer_wait.notify_all()
