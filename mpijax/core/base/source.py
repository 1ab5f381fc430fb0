"""Finds the source line of the user's program that created an equation."""

from __future__ import annotations

import inspect
import os
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

_PACKAGE = str(Path(__file__).absolute().parents[2]) + os.sep
_MACHINERY = os.sep + "functools.py", os.sep + "threading.py"
_internal: dict = {}
# Files and folders of libraries whose lines are not shown.
excluded: list[str] = []


class NameStackEntry(NamedTuple):
    """A part of a `NameStack`: a scope that the user named, or a transformation."""

    name: str
    transforms: bool


class NameStack(tuple[NameStackEntry, ...]):
    """The scopes and transformations around an operation, outermost first.

    Its text joins the scopes by slashes. A transformation appears around the scope inside of it.

    >>> f = mpijax.vmap(mpijax.named_scope("layer")(jnp.tanh))
    >>> str(mpijax.make_jaxpr(f)(jnp.ones(2)).eqns[0].source_info.name_stack)
    'vmap(layer)'
    """

    __slots__ = ()

    def extend(self, name: str) -> NameStack:
        """This stack with the scope `name` inside."""
        return NameStack((*self, NameStackEntry(name, False)))

    def transform(self, name: str) -> NameStack:
        """This stack with the transformation `name` inside."""
        return NameStack((*self, NameStackEntry(name, True)))

    def __add__(self, inner: tuple) -> NameStack:  # type: ignore[override]
        return NameStack((*self, *inner)) if inner else self

    @property
    def has_scope(self) -> bool:
        """Whether a part is a scope."""
        return not all(part.transforms for part in self)

    def __str__(self) -> str:
        texts: list[str] = []  # the innermost first
        for name, transforms in reversed(self):
            if transforms:
                texts.append(f"{name}({texts.pop() if texts else ''})")
            else:
                texts.append(name)
        return "/".join(reversed(texts))


NO_SCOPES = NameStack()


def name_stack_of(stored: Any) -> NameStack:
    """The stack with these parts, each a name and whether it is a transformation. A text is the name of one scope."""
    if isinstance(stored, str):
        return NO_SCOPES.extend(stored) if stored else NO_SCOPES
    return NameStack(NameStackEntry(str(name), bool(transforms)) for name, transforms in stored)


class Source(NamedTuple):
    """File, line and function of the innermost frame outside mpijax, and the names of the scopes around it.

    >>> mpijax.extend.source_info_util.SourceInfo("model.py", 7, "step").line
    7
    """

    file: str
    line: int
    function: str
    name_stack: NameStack = NO_SCOPES

    @property
    def traceback(self) -> Source:
        """The argument for `user_context` when the equation is evaluated again."""
        return self

    def within(self, caller: Source) -> Source:
        """The source of an equation of a Jaxpr that `caller` calls: its own line, if known, in the caller's scope."""
        return (self if self.file else caller).in_scope(caller.name_stack + self.name_stack)

    def in_scope(self, scope: NameStack) -> Source:
        """This line with other scopes."""
        return self if self.name_stack == scope else self._replace(name_stack=scope)

    def __str__(self) -> str:
        scope = f" in {self.name_stack}" if self.name_stack.has_scope else ""
        return f"{self.file}:{self.line} ({self.function}){scope}" if self.file else "unknown"


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
    """The line of the equation whose derivative is computed, or whose Jaxpr is evaluated again; and the scopes.

    source: None while the user's own lines are executed.
    """

    source: Source | None = None
    scope: NameStack = NO_SCOPES


inherited = _Inherited()


class _Waiting(threading.local):
    """The frames of threads that wait for this one (`any_depth`); the innermost one first."""

    frames: tuple[FrameType, ...] = ()


waiting = _Waiting()


@contextmanager
def _inheriting(source: Source | None, scope: NameStack):
    outer = inherited.source, inherited.scope
    inherited.source, inherited.scope = source, scope
    try:
        yield
    finally:
        inherited.source, inherited.scope = outer


def sources_from(source: Source | None):
    """Equations created inside get `source`, scopes included; with None, the line being executed."""
    return _inheriting(source, inherited.scope if source is None else source.name_stack)


def sources_of(source: Source):
    """Equations created inside get the line of `source`, if it is known, and its scopes inside the current ones."""
    return _inheriting(source if source.file else inherited.source, inherited.scope + source.name_stack)


@contextmanager
def in_scope(scope: NameStack):
    """The operations inside are in this scope alone."""
    outer = inherited.scope
    inherited.scope = scope
    try:
        yield
    finally:
        inherited.scope = outer


def transforming(name: str):
    """The operations inside are those of a function under the transformation `name`."""
    return in_scope(inherited.scope.transform(name))


def sources_of_function(fun):
    """The source while `fun` is traced: unknown for a function of mpijax, because many callers share its trace."""
    code = getattr(inspect.unwrap(fun), "__code__", None)
    return sources_from(UNKNOWN if code is not None and is_internal(code) else None)


def current_source() -> Source:
    """The user's line being executed, or the line of the equation being transformed.

    >>> mpijax.extend.source_info_util.current().function
    '<module>'
    """
    source = inherited.source
    if source is None:
        source = source_of(sys._getframe(1))
    return source.in_scope(inherited.scope)


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
