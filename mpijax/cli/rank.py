"""One rank of ``mpijax run``: pins itself, forwards its output to the command, starts the program, and records how it
ended. It runs as a file, by ``python -I -S``, and imports only the standard library, so that it costs 10 ms.

    rank.py FOLDER COMMAND...

FOLDER, made by `cli.run` on the first machine of the job, has `plan.json` ({"cpus": a list for each rank, "prefix",
"telling": seconds that the other ranks have to report where they wait for one that has ended}), and the pipes
`RANK.out` and `RANK.err`. The rank writes `RANK.pid`, `RANK.exit` ("TIME STATUS") and, if it ends because another rank
has ended, `RANK.because` (that rank's "RANK STATUS"). Other machines have no such folder; the command then runs
unchanged.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
# Seconds that the other ranks have to report where they wait for one that has ended: the watchdog's `GONE`
# (`runtime.reports.watchdog`) plus one check. In a job that will be restarted, only to write pending output.
TELLING, AGAIN = 1.5, 0.2
_PASSED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
_STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
stopped: list[int] = []  # the signals of _STOP received so far


def main() -> int:
    folder, command = sys.argv[1], sys.argv[2:]
    rank = given_rank()
    try:
        with open(os.path.join(folder, "plan.json")) as file:
            plan = json.load(file)
    except OSError:
        os.execvp(command[0], command)
    os.environ["MPIJAX_RUN_FOLDER"] = folder  # where the rank may report that it ends because of another one
    if plan["cpus"]:
        os.sched_setaffinity(0, plan["cpus"][int(rank)])
    if plan["prefix"]:
        for number, name in ((1, "out"), (2, "err")):
            pipe = os.open(os.path.join(folder, f"{rank}.{name}"), os.O_WRONLY)
            os.dup2(pipe, number)
            os.close(pipe)
    status = supervise(command, lambda pid: _note(folder, f"{rank}.pid", str(pid)))
    _note(folder, f"{rank}.exit", f"{time.monotonic_ns()} {status}")
    _wait_for_others(folder, plan["telling"])
    return status


def given_rank() -> str:
    """The rank that the launcher gave to this process; "0" for a program that runs alone."""
    return next((os.environ[name] for name in _RANKS if name in os.environ), "0")


def _wait_for_others(folder: str, seconds: float) -> None:
    """Wait until all ranks have ended, or the time is over: launchers end the others with the first, and these could
    then not report where they wait for it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not stopped:
        try:
            names = os.listdir(folder)
        except OSError:
            return
        if sum(n.endswith(".pid") for n in names) <= sum(n.endswith(".exit") for n in names):
            return
        time.sleep(0.02)


def end_with_parent(number: int) -> Callable[[], object]:
    """A function for a new process to call, so that it gets signal `number` when its parent ends in any way."""
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(1, int(number))  # PR_SET_PDEATHSIG


def supervise(command: list[str], started: Callable[[int], object]) -> int:
    """Run a command and return its exit status, or 128 + the signal's number if a signal ended it."""
    with_parent = end_with_parent(signal.SIGKILL)  # launchers end only the process that they started
    # Block signals until there is a child to pass them to.
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED)

    def begin() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED)
        with_parent()

    child = subprocess.Popen(command, preexec_fn=begin, close_fds=False)  # PMI uses an inherited descriptor
    def pass_on(number: int, _frame: object) -> None:
        if number in _STOP:
            stopped.append(number)
        child.send_signal(number)

    for number in _PASSED:
        signal.signal(number, pass_on)
    started(child.pid)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED)
    code = child.wait()
    return code if code >= 0 else 128 - code


def _note(folder: str, name: str, text: str) -> None:
    """Write a small file atomically."""
    path = os.path.join(folder, name)
    with open(path + ".new", "w") as file:
        file.write(text)
    os.rename(path + ".new", path)


if __name__ == "__main__":
    sys.exit(main())
