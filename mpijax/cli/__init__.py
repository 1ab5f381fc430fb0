"""The command line: ``mpijax COMMAND ...``, or ``python -m mpijax COMMAND ...``.

A command is a module with ``main(arguments) -> exit status``, imported when it is used.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys

# name: (module, help text)
COMMANDS = {
    "run": ("mpijax.cli.run", "run a program on several ranks"),
    "bench": ("mpijax.cli.bench", "measure latency and bandwidth of communication"),
    "doctor": ("mpijax.cli.doctor", "check MPI, launcher, cores, libraries and cache, and say how to fix each problem"),
    "submit": ("mpijax.cli.submit", "write a batch script and submit it to the scheduler"),
    "explain": ("mpijax.cli.explain", "show for each line of a program what the ranks send, and why"),
    "profile": ("mpijax.cli.profile", "show how much time each line of a program takes"),
    "predict": ("mpijax.cli.predict", "predict time and memory of a program on ranks that you do not have"),
    "trace": ("mpijax.cli.trace", "merge the ranks' records of communication into a timeline"),
    "init": ("mpijax.cli.init", "write a small project: program, batch script, tests"),
    "checkpoint": ("mpijax.cli.checkpoint", "list, show and compare checkpoints"),
    "completion": ("mpijax.cli.completion", "print a script that completes these commands in a shell"),
}


def parser_of(command: str) -> argparse.ArgumentParser:
    """The argument parser of a command."""
    return importlib.import_module(COMMANDS[command][0]).parser()


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit status; 2 for an unknown command, 141 (SIGPIPE) if the output is closed."""
    arguments = sys.argv[1:] if arguments is None else arguments
    name = arguments[0] if arguments else "help"
    try:
        status = _run(name, arguments[1:])
        if sys.stdout is not None:  # None if it was closed from the start
            sys.stdout.flush()
    except BrokenPipeError:  # as in `mpijax doctor | head`: the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what Python still writes there at exit
        return 128 + signal.SIGPIPE
    return status


def _run(name: str, arguments: list[str]) -> int:
    if name in ("help", "--help", "-h"):
        print("usage: mpijax COMMAND ...\n       mpijax --version\n")
        for command, (_, does) in COMMANDS.items():
            print(f"  {command:10} {does}")
        print("\n`mpijax COMMAND --help` lists the options of a command.")
        return 0
    if name in ("--version", "-V", "version"):
        from mpijax.version import __version__

        print(f"mpijax {__version__}")
        return 0
    if name not in COMMANDS:
        print(f"mpijax: unknown command {name!r}. The commands are {', '.join(COMMANDS)}.", file=sys.stderr)
        return 2
    return importlib.import_module(COMMANDS[name][0]).main(arguments)
