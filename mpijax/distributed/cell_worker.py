"""A rank of a notebook: runs cells one after the other in one namespace, and reports the result of each.

Messages have the form of `shared_values`. The notebook sends ``{"source", "name", "values", "wanted"}``; the answer is
``{"state", "error", "traceback", "shown", "values", "counts"}``. The rank ends when the notebook closes the pipe.
"""

from __future__ import annotations

import ast
import base64
import io
import linecache
import os
import select
import signal
import sys
import threading
import time
import types
from multiprocessing.connection import Connection
from typing import Any

from mpijax.distributed import shared_values

# Seconds for a rank that runs no cell to finalize MPI.
_LEAVING = 5.0
# IPython's display methods, with their content types.
_RICH = {"_repr_html_": "text/html", "_repr_svg_": "image/svg+xml", "_repr_png_": "image/png"}


class _Interrupts:
    """Handles SIGINT: it interrupts the cell; between cells, and while an answer is sent, it has no effect."""

    cell_runs = False

    def __call__(self, _number: int, _frame: Any) -> None:
        if self.cell_runs:
            raise KeyboardInterrupt


def main() -> None:
    """Runs in a fresh process; ``argv[1]`` is the descriptor of the pipe to the notebook."""
    from mpijax.distributed import bootstrap

    for stream in (sys.stdout, sys.stderr):  # write whole lines, whatever PYTHONUNBUFFERED says
        assert isinstance(stream, io.TextIOWrapper)  # true in a fresh process
        stream.reconfigure(line_buffering=True, write_through=False)
    interrupts = _Interrupts()
    signal.signal(signal.SIGINT, interrupts)
    pipe = Connection(int(sys.argv[1]))
    threading.Thread(target=_end_with_notebook, args=(pipe.fileno(), interrupts), daemon=True).start()
    from mpijax.runtime.mpi import mpi_start

    mpi_start.start()
    bootstrap.forget()
    program = sys.modules["__main__"] = types.ModuleType("__main__")
    while True:
        try:
            task, arrays = shared_values.receive(pipe)
        except (EOFError, OSError):
            return
        shared_values.send(pipe, *_answer(task, arrays, program.__dict__, interrupts))


def _answer(
    task: dict[str, Any], arrays: list[bytes], namespace: dict[str, Any], interrupts: _Interrupts
) -> tuple[dict[str, Any], list[bytes]]:
    from mpijax.core.base import tracebacks

    answer: dict[str, Any] = {"state": "done", "error": None, "traceback": None, "shown": None, "values": {}}
    out: list[bytes] = []
    try:
        interrupts.cell_runs = True
        for name, packed in task["values"].items():
            namespace[name] = shared_values.unpack(packed, arrays, keep_jax=True)
        value = run_cell(task["source"], task["name"], namespace)
        answer["shown"] = None if value is None else shown(value)
        answer["values"] = {name: _shared(name, namespace, out) for name in task["wanted"]}
        interrupts.cell_runs = False
    except BaseException as error:
        interrupts.cell_runs = False
        answer["state"] = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        answer["error"] = f"{type(error).__name__}: {error}".removesuffix(": ")
        answer["traceback"] = tracebacks.without_own_frames(error)
        out = []
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return {**answer, "counts": _counts()}, out


def run_cell(source: str, name: str, namespace: dict[str, Any]) -> Any:
    """Execute a cell; returns the value of a final expression, unless a semicolon follows it."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    tree = ast.parse(source, name)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        del tree.body[-1]
    exec(compile(tree, name, "exec", dont_inherit=True), namespace)
    if not isinstance(last, ast.Expr):
        return None
    value = eval(compile(ast.Expression(last.value), name, "eval", dont_inherit=True), namespace)
    return None if source.rstrip().endswith(";") else value


def shown(value: Any) -> dict[str, str]:
    """A value's representations for a notebook, by content type."""
    data = {"text/plain": repr(value)}
    for method, content in _RICH.items():
        found = getattr(value, method, None) if not isinstance(value, type) else None
        made = found() if callable(found) else None
        if isinstance(made, (str, bytes)):
            data[content] = base64.b64encode(made).decode() if isinstance(made, bytes) else made
    return data


def _shared(name: str, namespace: dict[str, Any], arrays: list[bytes]) -> Any:
    if name not in namespace:
        raise NameError(f"--out names {name}, but no cell has assigned this variable on this rank")
    return shared_values.pack(name, namespace[name], arrays)


def _counts() -> dict[str, Any]:
    """For each communicator, the number of collectives and guard agreements this rank has begun, and its ranks."""
    from mpijax.runtime.reports.recorder import COLLECTIVE, GUARD, recorder

    return {
        str(group.id + kind): [recorder.count(recorder.mine, group.id + kind), list(group.ranks)]
        for group in recorder.groups.values()
        for kind in (COLLECTIVE, GUARD)
        if group.sequence
    }


def _end_with_notebook(descriptor: int, interrupts: _Interrupts) -> None:
    """Exits when the notebook ends, whatever the cell does. Between cells, MPI is finalized first."""
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP | select.POLLHUP)
    poll.poll()
    if not interrupts.cell_runs:
        time.sleep(_LEAVING)
    os._exit(1)


if __name__ == "__main__":
    main()
