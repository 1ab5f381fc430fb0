"""Work that one process of a node does for all: ranks that run the same program compile it once.

A name in Linux's abstract namespace of sockets says that a process is at work. It leaves no file, takes no server, and
the kernel frees it however the process ends. Where there is no such namespace, each process does the work.
"""

from __future__ import annotations

import _socket  # without `socket`, which takes 3 ms to load
import os
import sys
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Seconds after which another process, which may have been stopped, is waited for no longer.
PATIENCE = 30.0
# Between two looks: a tenth of the time waited so far, within these seconds.
_SHORTEST, _LONGEST = 5e-4, 1e-2


def once_on_node(key: str, found: Callable[[], T | None], make: Callable[[], T]) -> T:
    """What `make` returns, in the first process that asks for `key`; others wait and take what they find.

    found: what an earlier process has left, or None. Who waited and finds nothing calls `make` as well.

    >>> from mpijax.compiler.backend.once_on_node import once_on_node
    >>> once_on_node("a key", lambda: None, lambda: "made")
    'made'
    """
    claim = _claim(key)
    began = time.monotonic()
    while claim is None and (waited := time.monotonic() - began) < PATIENCE:
        time.sleep(min(max(waited / 10, _SHORTEST), _LONGEST))
        claim = _claim(key)
    try:
        if claim is not None and time.monotonic() - began > _SHORTEST:
            claim.close()  # all who waited go on at once, whether or not something was left for them
        value = found()
        return make() if value is None else value
    finally:
        if claim is not None:
            claim.close()


def _claim(key: str) -> _socket.socket | None:
    """Holds the name of `key` until it is closed; None while another socket does."""
    claim = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
    try:
        if sys.platform == "linux":
            claim.bind(f"\0mpijax-{os.geteuid()}-{key}"[:107])
        return claim
    except OSError:
        claim.close()
        return None
