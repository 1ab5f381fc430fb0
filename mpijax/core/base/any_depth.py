"""Lets functions recurse to any depth: when one stack is full, they continue on the stack of another thread.

Transformations are interpreters that call interpreters: each level of a `jit` in a `jit` in a `jit` takes several
Python frames. Python limits the frames of a thread, and the C stack of a thread is limited. So a call that finds many
frames below it runs in a new thread, and its caller waits. A program uses as many threads as it needs; one runs.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import wraps
from typing import Any

from mpijax.core.base import option
from mpijax.core.base.source import inherited, waiting
from mpijax.core.base.state import state

# A call below this number of frames runs on the present stack; at most half of Python's limit.
_FRAMES = 500

# Thread-local state, which each new thread copies from the thread that waits for it.
_CURRENT = state, inherited, option.values


class _Lent(threading.local):
    """The waiting threads below the running call; the innermost one last."""

    threads: list[threading.Thread] | None = None


_lent = _Lent()


def _is_deep() -> bool:
    try:
        sys._getframe(min(_FRAMES, sys.getrecursionlimit() // 2))
    except ValueError:
        return False
    return True


def any_depth(fun: Callable) -> Callable:
    """Wraps `fun` so that it may recurse, directly or indirectly, to any depth."""

    @wraps(fun)
    def called(*args, **kwargs):
        if _is_deep():
            return _Stack(fun, args, kwargs).result()
        return fun(*args, **kwargs)

    return called


class _Stack:
    """A call that runs in its own thread while the calling thread waits."""

    def __init__(self, fun: Callable, args: tuple, kwargs: dict[str, Any]):
        self._call = copy_context().run, fun, args, kwargs
        self._current = [(local, dict(local.__dict__)) for local in _CURRENT]
        self._frames = sys._getframe(1), *waiting.frames
        self._threads: list[threading.Thread] = [] if _lent.threads is None else _lent.threads
        self._result: Any = None
        self._error: BaseException | None = None
        # Before Python 3.13, `Thread.join` considers a thread finished when a signal interrupts the join.
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
            except BaseException as error:  # from a signal handler, which Python runs in the main thread
                self._error = error
                self._interrupt(type(error))
        thread.join()
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # the error references this frame: break the cycle
        return self._result

    def _interrupt(self, error: type) -> None:
        """Raise an error in the innermost thread, which all others wait for."""
        for thread in self._threads[-1:]:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(error))
