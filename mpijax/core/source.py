"""Where in the user's program an equation was made."""

from __future__ import annotations

import inspect
import os
import sys
import threading
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MACHINERY = os.sep + "functools.py", os.sep + "threading.py"
_internal: dict = {}
# Files and folders of other libraries whose lines are not the user's.
excluded: list[str] = []


class Source(NamedTuple):
    """File, line and function of the innermost frame outside mpijax.

    >>> mpijax.extend.source_info_util.SourceInfo("model.py", 7, "step").line
    7
    """

    file: str
    line: int
    function: str

    @property
    def traceback(self) -> Source:
        """What `user_context` takes of an equation that is evaluated again."""
        return self

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.function})" if self.file else "unknown"


UNKNOWN = Source("", 0, "")


class FirstCall(Source):
    """Where an operation outside of any function was called first; later calls have lines of their own."""


def register_exclusion(path: str) -> None:
    """Take the files below `path`, or the file, for a library's own: lines of its callers are named instead.

    >>> mpijax.extend.source_info_util.register_exclusion("/opt/my_library")
    """
    excluded.append(path)
    _internal.clear()


def is_own(code) -> bool:
    """Whether a code object is mpijax's own, or of a library that is left out."""
    name = code.co_filename
    return name.startswith((_PACKAGE, *excluded)) or name.endswith(".pyx")


def is_internal(code) -> bool:
    """Whether a code object is mpijax's own, or Python's machinery around it."""
    name = code.co_filename
    found = is_own(code) or name.startswith("<frozen") or name.endswith(_MACHINERY)
    _internal[code] = found
    return found


class _Inherited(threading.local):
    """The line of the equation from which others are being made: of its derivative, or of a Jaxpr evaluated again."""

    source: Source | None = None


inherited = _Inherited()


class _Waiting(threading.local):
    """The frames in other threads that wait for this one, which lends them its stack; the innermost one first."""

    frames: tuple[FrameType, ...] = ()


waiting = _Waiting()


@contextmanager
def sources_from(source: Source | None):
    """Equations made inside get `source`; with None the line that is being executed."""
    outer = inherited.source
    inherited.source = source
    try:
        yield
    finally:
        inherited.source = outer


def sources_of_function(fun):
    """While `fun` is traced: a function of mpijax itself is traced once for many callers, so it has no lines."""
    code = getattr(inspect.unwrap(fun), "__code__", None)
    return sources_from(UNKNOWN if code is not None and is_internal(code) else None)


def current_source() -> Source:
    """The user's line that is being executed now, or that of the equation being transformed.

    >>> mpijax.extend.source_info_util.current().function
    '<module>'
    """
    if inherited.source is not None:
        return inherited.source
    return source_of(sys._getframe(1))


def source_of(frame: FrameType | None) -> Source:
    """The user's line in a frame, or in the innermost of its callers that is the user's."""
    known = _internal
    for stack in (frame, *waiting.frames):
        frame = stack
        while frame is not None:
            code = frame.f_code
            internal = known.get(code)
            if internal is None:
                internal = is_internal(code)
            if not internal:
                return Source(code.co_filename, frame.f_lineno, code.co_name)
            frame = frame.f_back
    return UNKNOWN


def callable_name(fun) -> str:
    """A name to show for a function, also for partials and callable objects."""
    name = getattr(fun, "__name__", None)
    if isinstance(name, str):
        return name
    inner = getattr(fun, "func", None)
    return callable_name(inner) if inner is not None else type(fun).__name__


def callable_location(fun) -> str:
    """`name at file:line` where the function was defined, as far as Python knows."""
    inner = fun
    while hasattr(inner, "__wrapped__") or hasattr(inner, "func"):
        inner = getattr(inner, "__wrapped__", None) or inner.func
    code = getattr(inner, "__code__", None)
    where = f" at {code.co_filename}:{code.co_firstlineno}" if code is not None else ""
    return callable_name(fun) + where
