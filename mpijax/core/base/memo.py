"""Caches results per Jaxpr. A result lives as long as its Jaxpr."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import wraps

from mpijax.core.base.any_depth import any_depth
from mpijax.core.base.source import UNKNOWN, sources_from

# Marks a missing entry. A lookup by KeyError would make the KeyError the context of errors in computing the result.
_ABSENT = object()


def memo_on_jaxpr(fun: Callable) -> Callable:
    """Cache `fun(closed_jaxpr, *hashable)` per Jaxpr. The results are dropped with the Jaxpr."""
    table: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
    compute = any_depth(fun)

    @wraps(fun)
    def cached(closed, *args):
        known = table.get(closed)
        if known is None:
            known = table.setdefault(closed, {})
        result = known.get(args, _ABSENT)
        if result is _ABSENT:
            # All callers share the result, so it must not get this caller's source line.
            with sources_from(UNKNOWN):
                result = known[args] = compute(closed, *args)
        return result

    return cached


def memo_on_jaxprs(fun: Callable) -> Callable:
    """Cache `fun(closed_jaxprs, *hashable)`. The results are dropped with the first of the Jaxprs.

    A result must not reference that Jaxpr, or neither is ever freed.
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
