"""Runs a program for commands that evaluate its ranks afterwards: ``mpijax explain`` and ``mpijax profile``.

Each rank runs the program through the command's starter code, which writes a JSON file at the end.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from mpijax.cli.run import PROGRAM, Job, run, split_program, without_interpreter
from mpijax.cli.scratch import scratch

_VALUED = ("-n", "-np", "--np", "--ranks", "--html", "--launcher")


def parser(command: str, description: str | None, page: str) -> argparse.ArgumentParser:
    """The parser of such a command. page: what the page of ``--html`` shows."""
    p = argparse.ArgumentParser(
        prog=f"mpijax {command}", description=description, usage=f"mpijax {command} [options] {PROGRAM}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    p.add_argument(
        "-n", "-np", "--np", "--ranks", dest="ranks", type=int, default=1,
        help="number of ranks (default: 1, without a launcher)",
    )  # fmt: skip
    p.add_argument("--json", action="store_true", help="print JSON; the output of the program goes to standard error")
    p.add_argument("--html", type=Path, help=f"also write a page with {page}")
    p.add_argument("--as-jax", action="store_true", help="`import jax` in the program imports mpijax (mpijax.as_jax)")
    p.add_argument("--launcher", help="mpirun, mpiexec or srun to use (default: the library's own)")
    p.set_defaults(command=command)
    return p


def parsed(p: argparse.ArgumentParser, arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """(options, the program's command line); exits with status 2 for wrong arguments."""
    given, program = split_program(arguments, _VALUED)
    options, program = p.parse_args(given), without_interpreter(program)
    if not program:
        p.error(f"expected a program: {PROGRAM}")
    if not program[0].startswith("-") and not Path(program[0]).exists():
        p.error(f"file {program[0]!r} not found; use -m to run a module")
    if options.ranks < 1:
        p.error("ranks must be at least 1")
    return options, program


def observed(
    options: argparse.Namespace, program: list[str], starter: str, *words: str
) -> tuple[int, list[dict[str, Any]]]:
    """(exit status of the program, the record of each rank). Raises NoLauncher.

    starter: the code that each rank runs, with a folder, `words` and the program; it writes `RANK.json` there.
    """
    with scratch(options.command) as folder:
        status = _run(options, ["-c", starter, str(folder), *words, *program])
        found = [json.loads(file.read_text()) for file in folder.glob("*.json")]
    return status, sorted(found, key=lambda record: record["rank"])


def _run(options: argparse.Namespace, words: list[str]) -> int:
    out = sys.stderr if options.json else sys.stdout
    out.flush()
    if options.ranks > 1:
        job = Job(words, options.ranks, launcher=options.launcher, as_jax=options.as_jax)
        return run(job, stdout=out.buffer)
    starter = ["-m", "mpijax.as_jax"] if options.as_jax else []
    return subprocess.run([sys.executable, *starter, *words], stdout=out.fileno(), check=False).returncode
