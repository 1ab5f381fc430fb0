"""Functions that call themselves as often as programs are nested: they go on with another stack when one is full.

Transformations are interpreters that call interpreters: of a `jit` in a `jit` in a `jit` each level is some frames of
Python. Python bounds the frames of a thread, and a thread bounds its stack in C. So a call that finds many frames
below it is made in a new thread, whose caller waits for it: as many threads as the program needs, one of them at work.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import wraps
from typing import Any

from mpijax.core import option
from mpijax.core.source import inherited, waiting
from mpijax.core.state import state

# Frames below a call that are no reason for another stack; at most half of those that Python allows.
_FRAMES = 500

# What is current in a thread, and in those that lend it their stacks.
_CURRENT = state, inherited, option.values


class _Lent(threading.local):
    """The threads that lend their stacks to the call in which this thread is at work; the innermost one last."""

    threads: list[threading.Thread] | None = None


_lent = _Lent()


def _is_deep() -> bool:
    try:
        sys._getframe(min(_FRAMES, sys.getrecursionlimit() // 2))
    except ValueError:
        return False
    return True


def any_depth(fun: Callable) -> Callable:
    """`fun`, which may call itself, directly or through others, to any depth."""

    @wraps(fun)
    def called(*args, **kwargs):
        if _is_deep():
            return _Stack(fun, args, kwargs).result()
        return fun(*args, **kwargs)

    return called


class _Stack:
    """A call in a thread of its own, for which the calling thread waits."""

    def __init__(self, fun: Callable, args: tuple, kwargs: dict[str, Any]):
        self._call = copy_context().run, fun, args, kwargs
        self._current = [(local, dict(local.__dict__)) for local in _CURRENT]
        self._frames = sys._getframe(1), *waiting.frames
        self._threads: list[threading.Thread] = [] if _lent.threads is None else _lent.threads
        self._result: Any = None
        self._error: BaseException | None = None
        # `Thread.join` of Python before 3.13 takes a thread for ended when a signal interrupts it.
        self._done = threading.Event()

    def _work(self) -> None:
        waiting.frames, self._frames = self._frames, ()
        _lent.threads = self._threads
        for local, values in self._current:
            local.__dict__.update(values)
        run, fun, args, kwargs = self._call
        try:
            self._result = run(fun, *args, **kwargs)
        except BaseException as error:
            self._error = self._error or error
        finally:
            waiting.frames = ()
            self._threads.pop()
            option.end_of_thread()
            self._done.set()

    def result(self) -> Any:
        thread = threading.Thread(target=self._work, name="deeper calls", daemon=True)
        self._threads.append(thread)
        thread.start()
        while not self._done.is_set():
            try:
                self._done.wait()
            except BaseException as error:  # of a signal's handler, which Python runs in the main thread
                self._error = error
                self._interrupt(type(error))
        thread.join()
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # it holds this frame
        return self._result

    def _interrupt(self, error: type) -> None:
        """Raise an error in the innermost of the threads, for which the others wait."""
        for thread in self._threads[-1:]:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(error))
