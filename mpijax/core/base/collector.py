"""Tunes Python's garbage collector while a program is compiled.

A Jaxpr of 1,000 operations, its graph and its plan are some 100,000 objects that live until the program runs. At the
default thresholds the collector scans them again and again, which took a third of the time of a first call.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from mpijax.core.base import locks

# New objects between two collections of the young generation, and collections between those of older generations.
_RARELY = (50_000, 1_000, 1_000)

_lock = locks.lock()
_depth = 0
_before = _RARELY


@contextmanager
def rare_collections() -> Iterator[None]:
    """Inside, collect new objects rarely and old objects almost never, on all threads.

    Thresholds that the code inside sets stay, and a disabled collector stays disabled.
    """
    global _depth, _before
    with _lock:
        _depth += 1
        if _depth == 1:
            _before = gc.get_threshold()
            if 0 < _before[0] < _RARELY[0]:
                gc.set_threshold(*_RARELY)
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0 and gc.get_threshold() == _RARELY:
                gc.set_threshold(*_before)
