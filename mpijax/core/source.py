"""Finds the source line of the user's program that created an equation."""

from __future__ import annotations

import inspect
import os
import sys
import threading
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple, overload

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MACHINERY = os.sep + "functools.py", os.sep + "threading.py"
_internal: dict = {}
# Files and folders of libraries whose lines are not shown.
excluded: list[str] = []


class Source(NamedTuple):
    """File, line and function of the innermost frame outside mpijax, and the names of the scopes around it.

    >>> mpijax.extend.source_info_util.SourceInfo("model.py", 7, "step").line
    7
    """

    file: str
    line: int
    function: str
    name_stack: str = ""

    @property
    def traceback(self) -> Source:
        """The argument for `user_context` when the equation is evaluated again."""
        return self

    @overload
    def within(self, caller: Source) -> Source: ...

    @overload
    def within(self, caller: None) -> Source | None: ...

    def within(self, caller: Source | None) -> Source | None:
        """The source of an equation of a Jaxpr that `caller` calls: its own line, in the caller's scope."""
        if not self.file:
            return caller
        if caller is None or not caller.name_stack:
            return self
        return self._replace(name_stack=join_scopes(caller.name_stack, self.name_stack))

    def __str__(self) -> str:
        scope = f" in {self.name_stack}" if self.name_stack else ""
        return f"{self.file}:{self.line} ({self.function}){scope}" if self.file else "unknown"


def join_scopes(outer: str, inner: str) -> str:
    """The names of the scopes of `inner` inside those of `outer`."""
    return f"{outer}/{inner}" if outer and inner else outer or inner


UNKNOWN = Source("", 0, "")


class FirstCall(Source):
    """The first call of an operation outside any function. Later calls have other lines."""


def register_exclusion(path: str) -> None:
    """Treat the file `path`, or all files below it, as library code: the source is then the line of the caller.

    >>> mpijax.extend.source_info_util.register_exclusion("/opt/my_library")
    """
    excluded.append(path)
    _internal.clear()


def is_own(code) -> bool:
    """Whether a code object belongs to mpijax, or to an excluded library."""
    name = code.co_filename
    return name.startswith((_PACKAGE, *excluded)) or name.endswith(".pyx")


def is_internal(code) -> bool:
    """Whether a code object belongs to mpijax, or to Python's machinery around it."""
    name = code.co_filename
    found = is_own(code) or name.startswith("<frozen") or name.endswith(_MACHINERY)
    _internal[code] = found
    return found


class _Inherited(threading.local):
    """The source of an equation whose derivative is computed, or whose Jaxpr is evaluated again."""

    source: Source | None = None
    # The names of the scopes around the line being executed, joined by "/".
    scope: str = ""


inherited = _Inherited()


class _Waiting(threading.local):
    """The frames of threads that wait for this one (`any_depth`); the innermost one first."""

    frames: tuple[FrameType, ...] = ()


waiting = _Waiting()


@contextmanager
def sources_from(source: Source | None):
    """Equations created inside get `source`; with None, the line being executed."""
    outer = inherited.source
    inherited.source = source
    try:
        yield
    finally:
        inherited.source = outer


@contextmanager
def in_scope(scope: str):
    """The operations inside are in this scope alone."""
    outer = inherited.scope
    inherited.scope = scope
    try:
        yield
    finally:
        inherited.scope = outer


def sources_of_function(fun):
    """The source while `fun` is traced: unknown for a function of mpijax, because many callers share its trace."""
    code = getattr(inspect.unwrap(fun), "__code__", None)
    return sources_from(UNKNOWN if code is not None and is_internal(code) else None)


def current_source() -> Source:
    """The user's line being executed, or the line of the equation being transformed.

    >>> mpijax.extend.source_info_util.current().function
    '<module>'
    """
    if inherited.source is not None:
        return inherited.source
    source = source_of(sys._getframe(1))
    return source._replace(name_stack=inherited.scope) if inherited.scope else source


def source_of(frame: FrameType | None) -> Source:
    """The user's line of a frame, or of its innermost caller in user code."""
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
    """A name for a function, also for partials and callable objects."""
    name = getattr(fun, "__name__", None)
    if isinstance(name, str):
        return name
    inner = getattr(fun, "func", None)
    return callable_name(inner) if inner is not None else type(fun).__name__


def callable_location(fun) -> str:
    """`name at file:line` of a function's definition, if Python knows it."""
    inner = fun
    while hasattr(inner, "__wrapped__") or hasattr(inner, "func"):
        inner = getattr(inner, "__wrapped__", None) or inner.func
    code = getattr(inner, "__code__", None)
    where = f" at {code.co_filename}:{code.co_firstlineno}" if code is not None else ""
    return callable_name(fun) + where
