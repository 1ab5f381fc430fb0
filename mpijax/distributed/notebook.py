"""``%load_ext mpijax``: cells on several ranks, which stay alive between cells.

    %mpijax -n 4                      start 4 ranks; ends running ones, and their variables are lost
    %%mpijax                          run the cell on the ranks; starts 2 if none are running
    %%mpijax --in a,b --out c         pass variables of the notebook in, and one out
    %mpijax restart | stop | status
"""

from __future__ import annotations

import argparse
import atexit
import html
import re
import shlex
from typing import Any, NoReturn

from mpijax.distributed import shared_values
from mpijax.distributed.cells import Answer, Ranks
from mpijax.distributed.lines import ranges

_DEFAULT_RANKS = 2
_WIDTH = 100  # maximum width of a value in the table
_ADDRESS = re.compile(r"\b0x[0-9a-f]+")


class MagicError(ValueError):
    """An invalid magic line. A notebook shows only its text."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def load_ipython_extension(ipython: Any) -> None:
    """Add the magics ``%mpijax`` and ``%%mpijax``; ``%mpijax?`` describes them.

    >>> from types import SimpleNamespace
    >>> shell = SimpleNamespace(register_magic_function=lambda magic, kind, name: print(kind, name))
    >>> mpijax.load_ipython_extension(shell)
    line_cell mpijax
    """
    magic = Magic(ipython)

    def mpijax(line: str, cell: str | None = None) -> None:
        if cell is None:
            magic.line(line)
        else:
            magic.cell(line, cell)

    mpijax.__doc__ = __doc__
    ipython.register_magic_function(mpijax, "line_cell", "mpijax")


class _MagicParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise MagicError(f"{self.prog}: {message}")


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if wrong := [name for name in names if not name.isidentifier()]:
        raise argparse.ArgumentTypeError(f"{wrong[0]!r} is not the name of a variable. Write --in a,b")
    return names


def _cell_parser() -> argparse.ArgumentParser:
    p = _MagicParser(prog="%%mpijax", description="Run the cell on ranks that stay alive for the next cells.")
    p.add_argument(
        "-n", "-np", "--np", "--ranks", dest="n", type=int, help="number of ranks to start if none run (default: 2)"
    )
    p.add_argument(
        "--in", dest="into", type=_names, default=[], help="variables to copy from the notebook to the ranks: a,b"
    )
    p.add_argument("--out", type=_names, default=[], help="variables to copy from rank 0 to the notebook")
    p.add_argument(
        "--gather", type=_names, default=[], help="variables to copy from all ranks to the notebook, each as a list"
    )
    p.add_argument("--timeout", type=float, help="interrupt the cell after this many seconds")
    return p


def _line_parser() -> argparse.ArgumentParser:
    p = _MagicParser(prog="%mpijax", description="Start and end the ranks of %%mpijax cells.")
    p.add_argument("-n", "-np", "--np", "--ranks", dest="n", type=int, help="number of new ranks to start")
    p.add_argument("command", nargs="?", choices=("restart", "stop", "status"), help="default: status")
    return p


class Magic:
    """The ranks of a notebook, and the line and cell magics."""

    def __init__(self, ipython: Any):
        self._ipython = ipython
        self._ranks: Ranks | None = None
        self._size = _DEFAULT_RANKS
        atexit.register(self._stop)

    def line(self, line: str) -> None:
        """``%mpijax``"""
        options = _parsed(_line_parser(), line)
        if options is None:
            return
        if options.n is not None or options.command == "restart":
            self._start(self._size if options.n is None else options.n)
        elif options.command == "stop":
            self._stop()
        runs = self._ranks is not None and self._ranks.alive
        print(f"mpijax: {_count(self._size)} run" + "s" * (self._size == 1) if runs else "mpijax: no ranks run")

    def cell(self, line: str, cell: str) -> None:
        """``%%mpijax``"""
        options = _parsed(_cell_parser(), line)
        if options is None:
            return
        known = self._ipython.user_ns
        if missing := ", ".join(sorted({*options.into} - {*known})):
            raise MagicError(f"%%mpijax: the notebook has no variable {missing}")
        running = self._running(options.n)
        wanted = [*dict.fromkeys([*options.out, *options.gather])]
        answers = running.run(cell, {name: known[name] for name in options.into}, wanted, options.timeout)
        for name in wanted:
            values = [
                shared_values.unpack(answer["values"][name], arrays, keep_jax=False) for answer, arrays in answers
            ]
            known[name] = values if name in options.gather else values[0]
        self._show(answers)

    def _running(self, size: int | None) -> Ranks:
        if self._ranks is None or not self._ranks.alive:
            self._start(self._size if size is None else size)
        elif size not in (None, self._size):
            raise MagicError(
                f"%%mpijax: {_count(self._size)} run and hold the variables of earlier cells. `%mpijax -n {size}` "
                f"ends them and starts {size} new ones."
            )
        assert self._ranks is not None
        return self._ranks

    def _start(self, size: int) -> None:
        if size < 1:
            raise MagicError(f"%mpijax needs at least 1 rank, got -n {size}")
        self._stop()
        self._size, self._ranks = size, Ranks(size)

    def _stop(self) -> None:
        if self._ranks is not None:
            self._ranks.stop()
            self._ranks = None

    def _show(self, answers: list[Answer]) -> None:
        """Display the value of rank 0, and those of other ranks that differ."""
        values = [answer["shown"] for answer, _ in answers]
        texts = [value["text/plain"] if value else "" for value in values]
        if values[0]:
            self._ipython.display_pub.publish(data=values[0], metadata={})
        if len({_ADDRESS.sub("0x", text) for text in texts}) > 1:
            self._ipython.display_pub.publish(data=table(texts), metadata={})


def _parsed(parser: argparse.ArgumentParser, line: str) -> argparse.Namespace | None:
    """The parsed options; None after --help."""
    try:
        return parser.parse_args(shlex.split(line))
    except SystemExit:
        return None


def _count(size: int) -> str:
    return f"{size} rank{'s' * (size > 1)}"


def table(texts: list[str]) -> dict[str, str]:
    """The values of all ranks except 0, equal ones in one row, as text and as HTML."""
    groups: dict[str, list[int]] = {}
    for rank, text in enumerate(texts[1:], 1):
        line = " ".join(text.split())
        groups.setdefault(line if len(line) <= _WIDTH else line[: _WIDTH - 3] + "...", []).append(rank)
    rows = [("rank", "value"), *((ranges(ranks), text) for text, ranks in groups.items())]
    width = max(len(ranks) for ranks, _ in rows)
    plain = "\n".join(f"{ranks:<{width}}  {text}".rstrip() for ranks, text in rows)
    cells = "".join(
        f'<tr><td>{html.escape(ranks)}</td><td style="text-align:left"><code>{html.escape(text)}</code></td></tr>'
        for ranks, text in rows[1:]
    )
    return {"text/plain": plain, "text/html": f"<table><tr><th>rank</th><th>value</th></tr>{cells}</table>"}
