"""A rank that `mpijax.spawn` started: receives a function over its pipe, calls it, and sends the result back."""

import os
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any


def main() -> None:
    """Runs in a fresh process; ``argv[1]`` is the descriptor of the pipe to the parent."""
    from mpijax.distributed import bootstrap, functions

    pipe = Connection(int(sys.argv[1]))
    pipe.send("started")
    try:
        fn, args, kwargs = functions.loads(pipe.recv_bytes())
        threading.Thread(target=_end_with_parent, args=(pipe,), daemon=True).start()
        from mpijax.runtime.mpi import mpi_start

        mpi_start.start()
        bootstrap.forget()
        answer = functions.dumps(("result", _plain(fn(*args, **kwargs))))
    except BaseException as error:
        _flush()
        pipe.send_bytes(_failure(error))
        os._exit(1)  # the others may wait for this rank: the parent ends them
    pipe.send_bytes(answer)
    _flush()


def _plain(value: Any) -> Any:
    """`value` with NumPy arrays instead of mpijax's."""
    import numpy as np

    from mpijax import Array, tree

    return tree.map(lambda leaf: np.asarray(leaf) if isinstance(leaf, Array) else leaf, value)


def _failure(error: BaseException) -> bytes:
    from mpijax.core.base import tracebacks
    from mpijax.distributed import functions

    text = tracebacks.without_own_frames(error)
    try:
        functions.loads(functions.dumps(error))  # some exceptions can be pickled but not unpickled
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    return functions.dumps(("error", error.with_traceback(None), text))


def _end_with_parent(pipe: Connection) -> None:
    """Exits when the parent process ends."""
    try:
        pipe.poll(None)
        pipe.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


if __name__ == "__main__":
    main()
