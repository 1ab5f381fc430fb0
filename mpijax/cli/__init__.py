"""The command line: ``mpijax COMMAND ...``, or ``python -m mpijax COMMAND ...``.

A command is a module with ``main(arguments) -> exit status``, loaded when it is asked for.
"""

from __future__ import annotations

import importlib
import sys

# name: (module, what it does)
COMMANDS = {
    "run": ("mpijax.cli.run", "run a program on several ranks"),
    "bench": ("mpijax.cli.bench", "measure latency and bandwidth of communication"),
    "doctor": ("mpijax.cli.doctor", "check MPI, launcher, cores, libraries and cache, with remedies"),
    "submit": ("mpijax.cli.submit", "write a batch script and hand it to the scheduler"),
    "trace": ("mpijax.cli.trace", "merge the ranks' records of communication into a timeline"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run a command; its exit status. 2 for a command that there is not."""
    arguments = sys.argv[1:] if arguments is None else arguments
    name = arguments[0] if arguments else "help"
    if name in ("help", "--help", "-h"):
        print("usage: mpijax COMMAND ...\n")
        for command, (_, does) in COMMANDS.items():
            print(f"  {command:8} {does}")
        print("\n`mpijax COMMAND --help` tells more.")
        return 0
    if name not in COMMANDS:
        print(f"mpijax: there is no command {name!r}; there are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    return importlib.import_module(COMMANDS[name][0]).main(arguments[1:])
