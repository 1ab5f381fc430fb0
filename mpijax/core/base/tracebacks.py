"""Filters mpijax's own frames from the tracebacks of uncaught exceptions.

Exceptions pass through mpijax unchanged, at no cost: handlers, debuggers and pytest see every frame. Only the hooks of
Python and IPython, which show uncaught exceptions, drop mpijax's frames. ``jax_traceback_filtering`` controls it.
"""

from __future__ import annotations

import builtins
import sys
import traceback
from types import TracebackType
from typing import Any

from mpijax.core.base import config
from mpijax.core.base.source import is_own

_NOTE = (
    "--------------------\n"
    "mpijax's own frames are left out of this traceback. Set JAX_TRACEBACK_FILTERING=off to see them."
)
# The previous hook. It is kept when this module is reloaded: `show` must not become its own predecessor.
_shown_by: Any = globals().get("_shown_by")


def leave_out_own_frames(error: BaseException) -> None:
    """Drop mpijax's frames from the tracebacks of `error` and its causes, and add a note that says so."""
    if _leave_out(error) and _NOTE not in getattr(error, "__notes__", ()):
        error.add_note(_NOTE)


def without_own_frames(error: BaseException) -> str:
    """The text that a rank passes on. The code that shows it adds the note."""
    _leave_out(error)
    return "".join(traceback.format_exception(error))


def _leave_out(error: BaseException) -> bool:
    """Drop mpijax's frames and return whether there were any. A traceback without other frames stays whole."""
    if config.traceback_filtering.value in ("off", "tracebackhide"):
        return False
    left_out, known = False, set()
    todo: list[BaseException | None] = [error]
    while todo:
        shown = todo.pop()
        if shown is None or id(shown) in known:
            continue
        known.add(id(shown))
        todo += [shown.__cause__, shown.__context__, *getattr(shown, "exceptions", ())]
        frames = _frames(shown.__traceback__)
        kept = [frame for frame in frames if not is_own(frame.tb_frame.f_code)]
        if 0 < len(kept) < len(frames):
            left_out = True
            shown.__traceback__ = _chain(kept)
    return left_out


def _frames(trace: TracebackType | None) -> list[TracebackType]:
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    return frames


def _chain(frames: list[TracebackType]) -> TracebackType | None:
    trace = None
    for frame in reversed(frames):
        trace = TracebackType(trace, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return trace


def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The `sys.excepthook`."""
    leave_out_own_frames(error)
    _shown_by(kind, error, error.__traceback__)


def behind(hook: Any) -> Any:
    """The hook behind `hook`: Python's, if no other library formats exceptions."""
    return _shown_by if hook is show else hook


def _show_in_ipython(shell: Any, kind: type[BaseException], error: BaseException, trace: Any, tb_offset=None) -> None:
    leave_out_own_frames(error)
    shell.showtraceback((kind, error, error.__traceback__), tb_offset=tb_offset)


def install() -> None:
    """Replace Python's hook once, and IPython's hook if no other library has replaced it."""
    global _shown_by
    if _shown_by is not None:
        return
    _shown_by, sys.excepthook = sys.excepthook, show
    shell = getattr(builtins, "get_ipython", lambda: None)()
    if shell is not None and not shell.custom_exceptions:
        shell.set_custom_exc((Exception,), _show_in_ipython)
