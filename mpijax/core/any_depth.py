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
from types import FrameType
from typing import Any

# Frames below a call that are no reason for another stack; at most half of those that Python allows.
_FRAMES = 500

# What is current in a thread, which holds in the thread that takes over from it too.
carried: list[threading.local] = []
# What is done at the end of a thread that took over.
at_end: list[Callable[[], None]] = []


class _Below(threading.local):
    """The frames in other threads that wait for this thread, the innermost one first."""

    frames: tuple[FrameType, ...] = ()


below = _Below()


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
        self._current = [(local, dict(local.__dict__)) for local in carried]
        self._below = sys._getframe(1), *below.frames
        self._result: Any = None
        self._error: BaseException | None = None

    def _work(self) -> None:
        below.frames, self._below = self._below, ()
        for local, values in self._current:
            local.__dict__.update(values)
        run, fun, args, kwargs = self._call
        try:
            self._result = run(fun, *args, **kwargs)
        except BaseException as error:
            self._error = self._error or error
        finally:
            below.frames = ()
            for end in at_end:
                end()

    def result(self) -> Any:
        thread = threading.Thread(target=self._work, name="deeper calls", daemon=True)
        thread.start()
        while thread.is_alive():
            try:
                thread.join()
            except BaseException as error:  # of a signal's handler, which Python runs in the main thread
                self._error = error
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread.ident or 0), ctypes.py_object(type(error))
                )
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # it holds this frame
        return self._result
