"""Recursion with bounded stack depth, for walks over expressions, which are as deep as the user's program is long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Maximum depth of nested calls; a deeper call restarts from the bottom of the stack.
LEVELS = 24


class _Deeper(Exception):
    """Requests that a call be evaluated from the bottom of the stack."""

    def __init__(self, owner: Shallow, args: tuple):
        super().__init__()
        self.owner, self.wanted = owner, args


class Shallow:
    """Calls `fun`, which memoizes its results and calls this object for results that are not yet computed.

    A caller looks in the memo first: at the depth limit, every call counts as work to do.
    At more than `LEVELS` nested calls all of them are abandoned. The innermost one runs first, from the bottom of the
    stack; then the outermost one runs again and finds that result in the memo. So a chain of any length needs a bounded
    stack, and time that grows linearly with its length.
    """

    __slots__ = ("fun", "level")

    def __init__(self, fun: Callable[..., Any]):
        self.fun = fun
        self.level = 0

    def __call__(self, *args: Any) -> Any:
        if self.level >= LEVELS:
            raise _Deeper(self, args)
        if not self.level:
            return self._from_bottom(args)
        self.level += 1
        try:
            return self.fun(*args)
        finally:
            self.level -= 1

    def _from_bottom(self, args: tuple) -> Any:
        waiting = [args]
        try:
            while True:
                self.level = 1
                try:
                    found = self.fun(*waiting[-1])
                except _Deeper as e:
                    if e.owner is not self:
                        raise
                    waiting.append(e.wanted)
                    continue
                waiting.pop()
                if not waiting:
                    return found
        finally:
            self.level = 0


class Rewriter:
    """A memoized function of expressions. Subclasses define `rewritten`, which calls the object for operands."""

    def __init__(self) -> None:
        self.memo: dict[Any, Any] = {}
        self._shallow = Shallow(self._remembered)

    def __call__(self, e: Any) -> Any:
        found = self.memo.get(e)
        return self._shallow(e) if found is None else found

    def _remembered(self, e: Any) -> Any:
        found = self.memo[e] = self.rewritten(e)
        return found

    def rewritten(self, e: Any) -> Any:
        raise NotImplementedError
