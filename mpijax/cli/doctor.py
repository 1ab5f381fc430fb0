"""``mpijax doctor``: checks this machine and installation for MPI programs, and says how to fix problems.

Exit status 1 if something does not work at all, otherwise 0 (also with warnings).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict

from mpijax.cli import bench, checks, library
from mpijax.cli.checks import ERROR, OK, WARNING, Finding
from mpijax.cli.launcher import Launcher, NoLauncher, find_launcher, find_library

# Bytes of the messages that measure latency and bandwidth.
_SIZES = [16, 4 << 20]


def findings(ranks: int, given: str | None = None) -> Iterator[Finding]:
    """All findings; each is yielded as soon as it is known."""
    yield from checks.versions()
    yield checks.as_jax()
    yield checks.compiler()
    yield from checks.environment()
    yield from checks.machine(ranks)
    yield from checks.shared_memory_left()
    yield checks.blas()
    yield checks.cache()
    try:
        mpi = find_library()
    except NoLauncher as error:
        text, _, remedy = str(error).partition("\n")
        yield Finding("MPI library", ERROR, text, remedy)
        return
    launcher: Launcher | NoLauncher
    try:
        launcher = find_launcher(mpi, given)
    except NoLauncher as error:
        launcher = error
    yield from checks.libraries(mpi, launcher)
    start = checks.alone()
    yield start
    if isinstance(launcher, Launcher) and start.state != ERROR:
        yield from job(ranks, launcher)


def job(ranks: int, launcher: Launcher) -> Iterator[Finding]:
    """The findings from a job of `ranks` ranks."""
    try:
        found = bench.measured(ranks, ["allreduce"], _SIZES, 0.05, launcher=launcher.path)
    except NoLauncher as error:
        text, _, said = str(error).partition("\n")
        remedy = "the launcher and the MPI library may not belong together: pass the right launcher with --launcher"
        yield Finding("job", ERROR, f"{text}: {said.strip().splitlines()[-1]}" if said.strip() else text, remedy)
        return
    if found is not None:
        yield Finding("job", OK, f"{ranks} ranks started and communicated")
        yield checks.pinning(found)
        yield from checks.speed(found)


def shown(finding: Finding) -> str:
    """A finding as a line, with the remedy below it."""
    mark = {OK: "ok     ", WARNING: "WARNING", ERROR: "ERROR  "}[finding.state]
    line = f"{mark}  {finding.check}: {finding.text}"
    return line if not finding.remedy else f"{line}\n         -> {finding.remedy}"


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="mpijax doctor", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    p.add_argument(
        "-n", "-np", "--np", "--ranks", dest="ranks", type=int, default=2,
        help="number of ranks of the trial job (default: 2)",
    )  # fmt: skip
    p.add_argument("--launcher", help="as in mpijax run")
    p.add_argument("--json", action="store_true", help="print JSON: a list of {check, state, text, remedy}")
    p.add_argument(
        "--remove-leftovers", action="store_true",
        help="only remove shared memory that your killed MPI jobs left behind and that no process uses",
    )  # fmt: skip
    p.add_argument(
        "--library", metavar="NAME", help="only list names of jax that a library uses and mpijax does not have"
    )
    return p


def main(arguments: list[str]) -> int:
    """Print the findings; 1 if one is an error."""
    p = parser()
    options = p.parse_args(arguments)
    if options.library:
        return library.report(options.library)
    if options.remove_leftovers:
        print(shown(checks.remove_shared_memory_left()))
        return 0
    if options.ranks < 2:
        p.error("the trial job needs at least 2 ranks")
    if checks.is_rank():
        print("mpijax doctor: run it without a launcher: it starts ranks itself", file=sys.stderr)
        return 1
    found = []
    for finding in findings(options.ranks, options.launcher):
        found.append(finding)
        if not options.json:
            print(shown(finding), flush=True)
    if options.json:
        print(json.dumps([asdict(f) for f in found], indent=2))
    return int(any(f.state == ERROR for f in found))
