"""Python's garbage collector while a program is made.

A Jaxpr of 1,000 operations, its graph and its plan are some 100,000 objects that stay until the program runs. At the
usual thresholds the collector walks them again and again, which was a third of the time of a first call.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

# Objects between two collections of new ones, and how many of these come before one of those that have survived.
_RARELY = (50_000, 1_000, 1_000)

_lock = Lock()
_depth = 0
_before = _RARELY


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect new objects rarely and old ones hardly ever, on all threads.

    Thresholds that the function inside sets itself stay, and a collector that is off stays off.
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
