"""Runs work once per node: ranks that run the same program compile it once.

A process claims the work by binding a name in Linux's abstract socket namespace. This needs no file and no server, and
the kernel frees the name however the process ends. On systems without this namespace, each process does the work.
"""

from __future__ import annotations

import _socket  # `socket` takes 3 ms longer to load
import os
import sys
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Maximum seconds to wait for another process, which may be stopped.
PATIENCE = 30.0
# Seconds between two attempts: a tenth of the time waited so far, within these bounds.
_SHORTEST, _LONGEST = 5e-4, 1e-2
# The claims of this process.
_claims: set[_socket.socket] = set()


def once_on_node(key: str, found: Callable[[], T | None], make: Callable[[], T]) -> T:
    """The result of `make` in the first process that claims `key`; others wait and use the result that they find.

    found: returns the result of an earlier process, or None. A process that finds none after waiting calls `make` too.

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
            _release(claim)  # all waiting processes go on at once, whether or not there is a result for them
        value = found()
        return make() if value is None else value
    finally:
        if claim is not None:
            _release(claim)


def _claim(key: str) -> _socket.socket | None:
    """Claims the name of `key` until the socket is closed; None while another socket has it."""
    claim = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
    _claims.add(claim)
    try:
        if sys.platform == "linux":
            claim.bind(f"\0mpijax-{os.geteuid()}-{key}"[:107])
        return claim
    except OSError:
        _release(claim)
        return None


def _release(claim: _socket.socket) -> None:
    _claims.discard(claim)
    claim.close()


def _leave_to_parent() -> None:
    """In a forked child, which would keep its copies of the sockets, and so the names, as long as it lives."""
    for claim in _claims:
        claim.close()
    _claims.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
