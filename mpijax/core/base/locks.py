"""Locks that a forked child finds free: the threads that hold them in the parent do not exist in the child."""

from __future__ import annotations

import os
import threading


def lock() -> threading.Lock:
    """A lock that a forked child finds free."""
    return _free_after_fork(threading.Lock())


def reentrant_lock() -> threading.RLock:
    """A lock that one thread may acquire several times, and that a forked child finds free."""
    return _free_after_fork(threading.RLock())


def _free_after_fork(made):
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=made._at_fork_reinit)
    return made
