"""Loops in what ranks do on their parts: those of `lax`, which lies above."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpijax.core.base import provided


def fori_loop(lower: Any, upper: Any, body: Callable[[Any, Any], Any], carry: Any) -> Any:
    """`carry` after `body(i, carry)` for each `i` in `[lower, upper)`."""
    return provided.fori_loop(lower, upper, body, carry)


def loop_map(fun: Callable[[Any], Any], xs: Any) -> Any:
    """The results of `fun` for the slices of `xs` along the first axis, computed one after the other."""
    return provided.loop_map(fun, xs)
