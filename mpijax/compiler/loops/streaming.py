"""Decides which stores bypass the caches.

A normal store to an uncached line first reads that line from memory. For a result larger than the caches, this is a
third of all traffic, and the line is evicted before anyone reads it. Streaming stores write whole lines directly to
memory: a map over 16 MB takes three quarters of the time, even if the result is read right after. They need addresses
aligned to a vector register. This module decides that before any IR is emitted.
"""

from __future__ import annotations

import platform
from functools import cache

from mpijax.compiler.fusion.kernel import Kernel, KernelStore
from mpijax.compiler.loops.caches import cache_size
from mpijax.compiler.loops.schedule import VECTOR_BYTES, Schedule, Strategy, iterations_of
from mpijax.core.shapes.index import LoopVar
from mpijax.scalar.types import info

# The least size from which stores bypass the caches.
LEAST = 4 << 20
# Threads start at multiples of this many elements.
SHARE = 64


@cache
def stream_above() -> int:
    """Bytes of a result above which stores bypass the caches: half of the last-level cache."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return 1 << 62
    return max(cache_size(3) // 2, LEAST)


def streams(store: KernelStore, kernel: Kernel, schedule: Schedule) -> bool:
    """Whether every vector that this store writes is aligned to a vector register, so that it may stream."""
    if id(store.value) not in kernel.streamed or kernel.ordered or store.combine is not None or schedule.split:
        return False
    loop = None
    if schedule.strategy in (Strategy.ACROSS, Strategy.BLOCKED):
        loop = schedule.vector_loop
    elif schedule.strategy is Strategy.ALONG:
        loop = schedule.inner[-1]
    element = info(store.value.element)
    if loop is None or element.kind in "bc":
        return False
    unit = VECTOR_BYTES // element.itemsize
    others = [c for atom, c in store.position.terms if atom not in loop]
    if kernel.cumulate is not None and kernel.cumulate.reverse and schedule.strategy is Strategy.ALONG:
        # It runs backwards in whole vectors from the end of the row or chunk.
        if iterations_of(loop) % unit:
            return False
    known = all(type(atom) is LoopVar for atom, _ in store.position.terms)
    return known and store.position.offset % unit == 0 and all(c % unit == 0 for c in others)
