"""Finds tracers that outlive their trace, for `jax.checking_leaks()`."""

from __future__ import annotations

import gc
import sys
from typing import Any

from mpijax.core.tracing.tracer import Tracer

# The caller's variable, the argument of this function, and the argument of `sys.getrefcount`.
_OWN_REFERENCES = 3


def check_leaks(trace: Any, debug: Any) -> None:
    """Raise if an object outside the trace still references a tracer of a finished trace.

    First clears the trace's own table of constants. Runs the garbage collector, so that unreachable tracers in cycles
    do not count.
    """
    getattr(trace, "_const_tracers", {}).clear()
    if sys.getrefcount(trace) == _OWN_REFERENCES:
        return
    gc.collect()
    leaked = [x for x in gc.get_referrers(trace) if isinstance(x, Tracer) and x._trace is trace]
    if not leaked:
        return
    lines = []
    for tracer in leaked:
        holders = [h for h in gc.get_referrers(tracer) if h is not leaked and not _is_frame(h)]
        kinds = ", ".join(sorted({type(h).__name__ for h in holders})) or "an unknown object"
        lines.append(f"{tracer!r}, held by: {kinds}")
    where = (
        f" The function being traced was {debug.func_src_info}, traced for {debug.traced_for}."
        if debug
        else ""
    )
    listed = "\n  ".join(lines)
    raise Exception(
        f"Leaked trace: {len(leaked)} traced value(s) outlive the function in which they were made.{where}\n "
        f" {listed}\nReturn values from the transformed function instead of storing them in globals, "
        "attributes or lists."
    )


def _is_frame(x: Any) -> bool:
    return type(x).__name__ == "frame"
