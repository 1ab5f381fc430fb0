"""Results remembered for as long as the Jaxpr they were made from lives."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import wraps

from mpijax.core.any_depth import any_depth
from mpijax.core.source import UNKNOWN, sources_from

# Of a result that is not known yet. Errors of computing it are raised outside of any `except`, as the first cause.
_ABSENT = object()


def memo_on_jaxpr(fun: Callable) -> Callable:
    """Cache `fun(closed_jaxpr, *hashable)` per Jaxpr, dropping the results with it."""
    table: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
    compute = any_depth(fun)

    @wraps(fun)
    def cached(closed, *args):
        known = table.get(closed)
        if known is None:
            known = table.setdefault(closed, {})
        result = known.get(args, _ABSENT)
        if result is _ABSENT:
            # The result serves all callers, so it does not get this one's line.
            with sources_from(UNKNOWN):
                result = known[args] = compute(closed, *args)
        return result

    return cached


def memo_on_jaxprs(fun: Callable) -> Callable:
    """Cache `fun(closed_jaxprs, *hashable)`, dropping the results with the first of the Jaxprs.

    Results must not hold that Jaxpr, or it would never go.
    """
    table: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
    compute = any_depth(fun)

    @wraps(fun)
    def cached(closed, *args):
        known = table.setdefault(closed[0], {})
        key = (tuple(weakref.ref(c) for c in closed[1:]), args)
        result = known.get(key, _ABSENT)
        if result is _ABSENT:
            with sources_from(UNKNOWN):
                result = known[key] = compute(closed, *args)
        return result

    return cached
