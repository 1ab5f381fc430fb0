"""``debug.breakpoint()``: look around, in the manner of pdb, where a running program reaches a line.

The arrays among the local variables of the calling frames become arguments of a callback, so that the debugger has
their values of this very run.
"""

from __future__ import annotations

import cmd
import inspect
import pprint
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import IO, Any

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.source import is_internal
from mpijax.core.trees import tree
from mpijax.core.types.array_api import Array
from mpijax.core.types.effects import DebugEffect, OrderedDebugEffect
from mpijax.ops.ad_ops import stop_gradient
from mpijax.ops.callbacks.debug import SplitCall, debug_callback_p, split_arguments
from mpijax.ops.callbacks.host import pure_callback


@dataclass(frozen=True)
class DebuggerFrame:
    """A frame of the traced function: where it is, its source, and its names."""

    filename: str
    lineno: int
    source: tuple[str, ...]
    first: int
    globals: dict[str, Any]
    locals: dict[str, Any]

    def line(self) -> str | None:
        """The text of the line that is being executed."""
        offset = self.lineno - self.first
        return self.source[offset] if 0 <= offset < len(self.source) else None

    def context(self, around: int) -> list[str]:
        """The lines around it, one more before it, that one marked."""
        offset = self.lineno - self.first
        shown = [f"> {self.filename}({self.lineno})"]
        for i, text in enumerate(self.source):
            if offset - around - 1 <= i <= offset + around:
                shown.append(f"->  {text}" if i == offset else f"    {text}")
        return shown


@dataclass(frozen=True)
class _Opaque:
    """A value that the callback keeps as it is: no array, or no pytree, such as a container that holds itself."""

    value: Any


def _as_pytree(value: Any) -> Any:
    """The value with its arrays as leaves to be computed. Numbers stay what they are in the source."""
    try:
        return tree.tree_map(lambda leaf: leaf if isinstance(leaf, Array) else _Opaque(leaf), value)
    except (RecursionError, TypeError, ValueError):
        return _Opaque(value)


def _as_it_was(value: Any) -> Any:
    return tree.tree_map(lambda leaf: leaf.value if type(leaf) is _Opaque else leaf, value)


def _frame_of(info: inspect.FrameInfo) -> DebuggerFrame:
    try:
        source, first = inspect.getsourcelines(info.frame)
    except OSError:
        source, first = [], 1
    names = dict(info.frame.f_globals), dict(info.frame.f_locals)
    return DebuggerFrame(info.filename, info.lineno, tuple("".join(source).split("\n")), max(first, 1), *names)


class CliDebugger(cmd.Cmd):
    """A debugger of text commands; a line that is not a command is evaluated as an expression."""

    prompt = "(jdb) "
    intro = "Entering jdb:"

    def __init__(
        self,
        frames: list[DebuggerFrame],
        stdin: IO[str] | None = None,
        stdout: IO[str] | None = None,
        completekey: str = "tab",
    ):
        super().__init__(stdin=stdin, stdout=stdout, completekey=completekey)
        self.use_rawinput = stdin is None
        self.frames = frames
        self.at = 0

    def _say(self, *lines: str) -> None:
        print("\n".join(lines), file=self.stdout)

    def _show(self, expression: str, form: Callable[[Any], str]) -> None:
        frame = self.frames[self.at]
        try:
            text = form(eval(expression, {**frame.globals, **frame.locals}))
        except Exception as error:
            text = "*** " + traceback.format_exception_only(error)[-1].strip()
        self._say(text)

    def default(self, line: str) -> None:
        self._show(line, repr)

    def do_p(self, arg: str) -> None:
        """p expression: print its value."""
        self._show(arg, repr)

    def do_pp(self, arg: str) -> None:
        """pp expression: print its value, laid out."""
        self._show(arg, pprint.pformat)

    def do_up(self, _arg: str) -> None:
        """u(p): go to the calling frame."""
        if self.at == len(self.frames) - 1:
            self._say("At topmost frame.")
        else:
            self.at += 1
        self._say(*self.frames[self.at].context(2))

    def do_down(self, _arg: str) -> None:
        """d(own): go to the called frame."""
        if self.at == 0:
            self._say("At bottommost frame.")
        else:
            self.at -= 1
        self._say(*self.frames[self.at].context(2))

    def do_list(self, _arg: str) -> None:
        """l(ist): the source around the line."""
        self._say(*self.frames[self.at].context(5))

    def do_where(self, _arg: str) -> None:
        """w(here), bt: the frames, the innermost last."""
        lines = ["Traceback:"]
        for frame in reversed(self.frames):
            lines.append(f'  File "{frame.filename}", line {frame.lineno}')
            lines.append(f"    {(frame.line() or '<no source>').strip()}")
        self._say(*lines)

    def do_continue(self, _arg: str) -> bool:
        """c(ont(inue)): go on with the program."""
        return True

    def do_quit(self, _arg: str) -> None:
        """q(uit), exit: end the program."""
        sys.exit(0)

    do_u, do_d, do_l, do_w, do_bt = do_up, do_down, do_list, do_where, do_where
    do_c = do_cont = do_continue
    do_q = do_EOF = do_exit = do_quit

    def emptyline(self) -> bool:
        """An empty line does nothing."""
        return False


def _run_cli(frames: list[DebuggerFrame], **options: Any) -> None:
    CliDebugger(frames, **options).cmdloop()


_backends: dict[str, Callable] = {"cli": _run_cli}
_one_at_a_time = threading.Lock()


def breakpoint(
    *,
    backend: str | None = None,
    filter_frames: bool = True,
    num_frames: int | None = None,
    ordered: bool = False,
    token: Any = None,
    **options: Any,
) -> Any:
    """Stop in a debugger when the program comes to this line.

    Commands: ``p expression`` (or just the expression), ``pp``, ``up``, ``down``, ``list``, ``where``,
    ``continue``, ``quit``. Under a launcher the input belongs to one rank: call it under a condition on the rank
    outside of `jit`, or give the other ranks an input (``stdin=io.StringIO("c\\n")``).

    Args:
      backend: "cli", the only one.
      filter_frames: leave out mpijax's own frames.
      num_frames: how many frames to keep, from the innermost.
      ordered: keep the order of the program among ordered callbacks.
      token: instead of `ordered`: arrays that are handed through; the breakpoint comes when they are computed, and
        not at all if nobody reads what is returned.
      options: `stdin` and `stdout` of the debugger.

    Returns:
      `token`, or None.

    >>> import io
    >>> commands, screen = io.StringIO("c"), io.StringIO()
    >>> def f(x):
    ...     mpijax.debug.breakpoint(stdin=commands, stdout=screen)
    ...     return x + 1
    >>> f(2)
    3
    """
    if token is not None and ordered:
        raise ValueError("`ordered` and `token` are mutually exclusive arguments.")
    debugger = _backends.get(backend or "cli")
    if debugger is None:
        raise ValueError(f"unknown debugger {backend!r}. The debuggers are: {', '.join(_backends)}")
    infos = [i for i in inspect.stack()[1:] if not (filter_frames and is_internal(i.frame.f_code))][:num_frames]
    frames = [_frame_of(i) for i in infos]
    names = tuple({name: _as_pytree(value) for name, value in f.locals.items()} for f in frames)
    dynamic, in_tree, static = split_arguments((names,), {})

    def enter(all_locals: tuple[dict[str, Any], ...]) -> None:
        known = [{name: _as_it_was(value) for name, value in names.items()} for names in all_locals]
        seen = [replace(f, locals=names) for f, names in zip(frames, known, strict=True)]
        with _one_at_a_time:
            debugger(seen, **options)

    call = SplitCall(enter, in_tree, static)
    if token is None:
        effect = OrderedDebugEffect() if ordered else DebugEffect()
        debug_callback_p.bind(*dynamic, callback=call, effect=effect, partitioned=False)
        return None

    leaves, structure = tree.tree_flatten(token)
    leaves, dynamic = tree.tree_map(stop_gradient, (leaves, dynamic))

    def hand_through(values: list[Any], *arrays: Any) -> list[Any]:
        call(*arrays)
        return values

    return tree.tree_unflatten(structure, pure_callback(hand_through, leaves, leaves, *dynamic))
