"""Recursion that does not get deep: for walks over expressions, which may be as deep as the user's program is long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Calls inside of each other before the innermost one is evaluated from the bottom of the stack instead.
LEVELS = 24


class _Deeper(Exception):
    """Asks for a call to be evaluated from the bottom of the stack."""

    def __init__(self, owner: Shallow, args: tuple):
        super().__init__()
        self.owner, self.wanted = owner, args


class Shallow:
    """Calls `fun`, which remembers its results and calls this object for the parts that nobody has computed yet.

    Whoever calls looks first whether the result is remembered: a call at the bound always counts as work to be done.
    Beyond `LEVELS` calls inside of each other all of them are given up, the innermost one is done first, and the
    outermost one again: it finds that part done. So a chain of any length is done with a bounded stack, and in a time
    that grows with its length, because what is done stays done.
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
    """A function of expressions that is computed once for each; `rewritten` says what it is, and calls the object."""

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
