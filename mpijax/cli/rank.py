"""One rank of ``mpijax run``: pins itself, sends its output to the one who asked, starts the program, and notes how
it ended. Run as a file, by ``python -I -S``, so that it costs 10 ms: it imports the standard library alone.

    rank.py FOLDER COMMAND...

FOLDER, made by `cli.run` on the first machine of the job, has `plan.json` ({"cpus": a list for each rank, "prefix",
"telling": seconds that the other ranks have to say where they wait for one that has ended}),
pipes `RANK.out` and `RANK.err`, and gets `RANK.pid`, `RANK.exit` ("TIME STATUS") and, from a rank that ends because
another one has ended, `RANK.because` ("RANK STATUS" of that one). On other machines there is no such folder: the
command then runs as it is.
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
# Seconds that the other ranks have to say where they wait for one that has ended: `GONE` of the watchdog
# (`runtime.reports.watchdog`), and a look. In a job that is started again, to write what they have to say already.
TELLING, AGAIN = 1.5, 0.2
_PASSED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
_STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
stopped: list[int] = []  # the signals of _STOP that have come


def main() -> int:
    folder, command = sys.argv[1], sys.argv[2:]
    rank = given_rank()
    try:
        with open(os.path.join(folder, "plan.json")) as file:
            plan = json.load(file)
    except OSError:
        os.execvp(command[0], command)
    os.environ["MPIJAX_RUN_FOLDER"] = folder  # where the rank may say that it ends because of another one
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
    """The number that the launcher gave to this process; "0" for a program that runs alone."""
    return next((os.environ[name] for name in _RANKS if name in os.environ), "0")


def _wait_for_others(folder: str, seconds: float) -> None:
    """Until all ranks have ended, or a while: launchers end the others with the first, which then could not say
    where they wait for it."""
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
    """What a new process calls to get signal `number` when the one that started it ends, however that does."""
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(1, int(number))  # PR_SET_PDEATHSIG


def supervise(command: list[str], started: Callable[[int], object]) -> int:
    """Run command; its exit status, 128 + the signal's number if one ended it."""
    with_parent = end_with_parent(signal.SIGKILL)  # launchers end the process that they started

    # Signals wait until there is a child to pass them to.
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED)

    def begin() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED)
        with_parent()

    child = subprocess.Popen(command, preexec_fn=begin, close_fds=False)  # PMI speaks over an inherited descriptor
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
    """Write a small file in one piece."""
    path = os.path.join(folder, name)
    with open(path + ".new", "w") as file:
        file.write(text)
    os.rename(path + ".new", path)


if __name__ == "__main__":
    sys.exit(main())
