"""``%load_ext mpijax``: a cell on several ranks. ``%%mpijax -n 4`` runs its cell on four fresh ranks."""

import argparse
import sys
from typing import Any

from mpijax.distributed.spawning import spawn


def load_ipython_extension(ipython: Any) -> None:
    """Adds the magic ``%%mpijax [-n RANKS] [--timeout SECONDS] [NAME ...]``.

    >>> from types import SimpleNamespace
    >>> shell = SimpleNamespace(register_magic_function=lambda magic, kind, name: print(kind, name))
    >>> mpijax.load_ipython_extension(shell)
    cell mpijax
    """
    ipython.register_magic_function(_magic(ipython), "cell", "mpijax")


def _magic(ipython: Any) -> Any:
    def mpijax(line: str, cell: str) -> None:
        """Run the cell on fresh ranks, and show what they print, the same lines of several ranks once.

        The cell starts with an empty namespace and the notebook's variables that the line names:
        ``%%mpijax -n 4 field steps``.
        """
        parser = argparse.ArgumentParser(prog="%%mpijax", exit_on_error=False)
        parser.add_argument("-n", type=int, default=2, help="number of ranks")
        parser.add_argument("--timeout", type=float, help="seconds after which the ranks are ended")
        parser.add_argument("names", nargs="*", help="variables of the notebook that the cell reads")
        try:
            options = parser.parse_args(line.split())
        except SystemExit:  # after --help
            return
        except argparse.ArgumentError as error:
            print(f"%%mpijax: {error}", file=sys.stderr)
            return
        values = {name: ipython.user_ns[name] for name in options.names if name in ipython.user_ns}
        if missing := ", ".join(sorted({*options.names} - {*values})):
            print(f"%%mpijax: the notebook has no variable {missing}", file=sys.stderr)
            return
        spawn(run_cell, options.n, (cell, values), timeout=options.timeout)

    return mpijax


def run_cell(source: str, values: dict[str, Any]) -> None:
    """On a rank: executes `source` as a program of its own, with `values` as its variables."""
    import linecache

    name = "<%%mpijax cell>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), {"__name__": "__main__", **values})
