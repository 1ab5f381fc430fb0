"""Handles requests to stop a program: all ranks learn of one at the same step."""

import signal
import threading
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGUSR2)
_asked = threading.Event()
_installed = False


def should_stop() -> bool:
    """Whether any rank has received SIGTERM or SIGUSR2 since the first call: time to save and exit.

    Collective: every rank calls it and gets the same answer (one allreduce of 4 bytes). The first call installs the
    handlers, which also call the previous ones. Once true, it stays true.

    Raises:
      RuntimeError: the first call is not in the main thread, where Python's signal handlers live.

    >>> mpijax.spawn(mpijax.distributed.should_stop, 2)
    [False, False]
    """
    from mpijax.runtime.mpi import objects  # starts MPI

    _install()
    return objects.any_rank(_asked.is_set(), "distributed.should_stop")


def _install() -> None:
    global _installed
    if _installed:
        return
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "distributed.should_stop() must be called in the main thread first, because only the main thread can "
            "install signal handlers."
        )
    for number in _SIGNALS:
        signal.signal(number, _handler(signal.getsignal(number)))
    _installed = True


def _handler(previous: Any) -> Any:
    def handle(number, frame):
        _asked.set()
        if callable(previous):
            previous(number, frame)

    return handle
