"""``mpijax run -n 4 script.py``: run a program on several ranks, with the launcher of the MPI library.

Ranks are pinned to separate cores if there are enough; lines of output are prefixed with their rank; signals reach the
program; the command exits with the status of the rank that failed first. With ``--restart``, a job in which a rank
fails starts again in the same allocation.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from mpijax.cli import cores, rank
from mpijax.cli.launcher import Launcher, NoLauncher, clean_environment, find_launcher, find_library
from mpijax.cli.scratch import scratch
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.distributed.lines import Merger, Screen, ranges
from mpijax.runtime.machine import leftovers

PROGRAM = "script.py args ... | -m module args ... | -c code args ..."
_VALUED = ("-n", "-np", "--np", "--ranks", "--bind", "--threads", "--launcher", "--restart", "--restart-with")
_PASSED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
# A program that ends after one of these signals was asked to end (SIGUSR2: `distributed.should_stop`).
_ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2)
# Seconds after an interrupt until ranks that have not ended are killed.
GRACE = 10.0
# The folder of checkpoints in memory, and the code that removes them.
_SHARED = "/dev/shm"
_REMOVE = "import shutil, sys; shutil.rmtree(sys.argv[1], ignore_errors=True)"
# Seconds after the other ranks have reported where they wait for a failed one, until this command ends them if the
# launcher has not. Hydra does not if a rank fails before MPI_Init, where the others wait for it.
LEFT = 0.5


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="mpijax run", description=__doc__, usage=f"mpijax run [options] {PROGRAM}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    p.add_argument(
        "-n", "-np", "--np", "--ranks", dest="ranks", type=int, help="number of ranks (default: one for each core)"
    )
    p.add_argument(
        "--bind", choices=("core", "none"), help="pin ranks to cores (default: core if there are enough cores)"
    )
    p.add_argument("--threads", type=int, help="threads of each rank (default: its share of the cores)")
    p.add_argument(
        "--prefix", action=argparse.BooleanOptionalAction, default=None, help="print [rank] before each line (default)"
    )
    p.add_argument("--as-jax", action="store_true", help="`import jax` in the program imports mpijax (mpijax.as_jax)")
    p.add_argument("--launcher", help="mpirun, mpiexec or srun to use (default: the library's own)")
    p.add_argument(
        "--restart", type=int, default=0, metavar="N", help="restart the job if a rank fails, at most N times"
    )
    p.add_argument(
        "--restart-with", choices=("same", "fewer"), default="same",
        help="number of ranks after a restart: the same, or one less, without the rank that failed first (default: "
        "same)",
    )  # fmt: skip
    p.add_argument("--dry-run", action="store_true", help="print the command instead of running it")
    return p


def split_program(arguments: list[str], valued: tuple[str, ...] = _VALUED) -> tuple[list[str], list[str]]:
    """(options of the command, the program with its arguments). The program begins at the first word that is not an
    option, or at -m or -c. valued: options that are followed by a value."""
    i = 0
    while i < len(arguments) and arguments[i].startswith("-") and not arguments[i].startswith(("-m", "-c")):
        if arguments[i] == "--":
            return arguments[:i], arguments[i + 1 :]
        i += 2 if arguments[i] in valued else 1
    return arguments[:i], arguments[i:]


def without_interpreter(program: list[str]) -> list[str]:
    """The words after ``python``, if the program is given as to mpirun. A path to another Python is an error."""
    if not program or not re.fullmatch(r"python(\d(\.\d+)?)?", Path(program[0]).name):
        return program
    named = Path(program[0])
    if named.parent != Path() and not (named.exists() and named.parent.samefile(Path(sys.executable).parent)):
        parser().error(
            f"ranks run this Python, {sys.executable}. To run {program[0]}, start mpijax with it: {program[0]} -m "
            "mpijax.cli run ..."
        )
    return program[1:]


@dataclass
class Job:
    """The job to run. program: the words after ``python``."""

    program: list[str]
    ranks: int
    bind: str | None = None
    threads: int | None = None
    prefix: bool = True
    launcher: str | None = None
    as_jax: bool = False
    restarts: int = 0
    fewer: bool = False

    def placement(self) -> tuple[list[list[int]], int]:
        """(CPUs of each rank, or [] without pinning; threads per rank, or 0 to let each rank decide)."""
        if cores.several_machines():
            return [], self.threads or 0
        available = cores.physical()
        share = max(1, min(len(available), int(cores.quota())) // self.ranks)
        enough = self.ranks <= len(available)
        if self.bind == "core" and not enough:
            raise NoLauncher(
                f"{self.ranks} ranks cannot be pinned to {len(available)} cores: use fewer ranks, or --bind none"
            )
        # Under a CPU time quota other users share the cores, and may be pinned to the same ones.
        pin = self.bind == "core" or (self.bind is None and enough and cores.quota() >= len(available))
        width = min(max(share, self.threads or 1), len(available) // self.ranks) if pin else 0
        cpus = [sum(available[r * width : (r + 1) * width], []) for r in range(self.ranks)] if pin else []
        return cpus, self.threads or share


def main(arguments: list[str]) -> int:
    """Return the exit status of the job; 2 for wrong arguments, 1 if there is no launcher."""
    _open_standard_streams()
    given, program = split_program(arguments)
    options, program = parser().parse_args(given), without_interpreter(program)
    if not program:
        parser().error(f"expected a program: {PROGRAM}")
    if not program[0].startswith("-") and not Path(program[0]).is_file():
        parser().error(f"file {program[0]!r} not found; use -m to run a module")
    ranks = options.ranks if options.ranks is not None else len(cores.physical())
    if ranks < 1 or (options.threads is not None and options.threads < 1):
        parser().error("ranks and threads must be at least 1")
    if options.restart < 0:
        parser().error(f"--restart expects a number of restarts of at least 0, got {options.restart}")
    prefix = ranks > 1 if options.prefix is None else options.prefix
    job = Job(
        program, ranks, options.bind, options.threads, prefix, options.launcher, options.as_jax, options.restart,
        options.restart_with == "fewer",
    )  # fmt: skip
    try:
        return run(job, dry=options.dry_run)
    except NoLauncher as error:
        print(f"mpijax run: {error}", file=sys.stderr)
        return 1


def run(job: Job, *, dry: bool = False, stdout=None) -> int:
    """Run a job and return its exit status. stdout: a binary stream for the ranks' lines instead of this process's."""
    launcher = find_launcher(find_library(), job.launcher)
    if dry:
        job.placement()  # raises for an impossible placement
        print(" ".join(_command(job, launcher, Path("FOLDER"))))
        return 0
    with _memory(job, launcher) as given:
        for restarted in itertools.count():
            settings = given | {"MPIJAX_RESTARTS": str(restarted)}
            last = restarted == job.restarts
            status, failed = _run_once(job, launcher, settings, last, stdout or _binary(sys.stdout, 1))
            if not failed or last:
                return status
            if job.fewer:
                job = replace(job, ranks=max(1, job.ranks - 1))
            print(
                f"mpijax run: restart {restarted + 1} of {job.restarts}, on {job.ranks} rank{'s' * (job.ranks > 1)}",
                file=sys.stderr, flush=True,
            )  # fmt: skip
    raise AssertionError("the last attempt returns")


@contextlib.contextmanager
def _memory(job: Job, launcher: Launcher) -> Iterator[dict[str, str]]:
    """The variables that tell ranks of a restartable job the folder of its checkpoints in memory
    (`distributed.memory`). The folders are removed at the end; on other machines, by processes of the launcher."""
    if not job.restarts or not os.access(_SHARED, os.W_OK):
        yield {}
        return
    with scratch("memory", _SHARED) as folder:
        yield {"MPIJAX_MEMORY": str(folder)}
        if cores.several_machines():
            words = [sys.executable, "-I", "-S", "-c", _REMOVE, str(folder)]
            with contextlib.suppress(subprocess.TimeoutExpired):  # a machine that has failed
                subprocess.run(
                    [*launcher.command(job.ranks, len(cores.physical())), *words], env=clean_environment(),
                    stdin=subprocess.DEVNULL, capture_output=True, timeout=GRACE, check=False,
                )  # fmt: skip


def _run_once(job: Job, launcher: Launcher, settings: dict[str, str], last: bool, stdout) -> tuple[int, bool]:
    """The exit status of a job, and whether it failed without being asked to end. last: whether it is not restarted."""
    cpus, threads = job.placement()
    environment, telling = clean_environment() | settings, rank.TELLING if last else rank.AGAIN
    if threads:
        environment.setdefault("MPIJAX_NUM_THREADS", str(threads))
        if job.threads:
            environment["MPIJAX_NUM_THREADS"] = str(threads)
    if _is_screen(sys.stderr):
        environment.setdefault("MPIJAX_PROGRESS", "bar")  # the ranks themselves write to pipes
    began = time.time()
    with scratch("run") as folder:
        (folder / "plan.json").write_text(json.dumps({"cpus": cpus, "prefix": job.prefix, "telling": telling}))
        running = _RunningJob(job, _command(job, launcher, folder), environment, folder, stdout, telling + LEFT)
        status = running.outcome()
        if status:
            leftovers.remove_of_failed(began)
        return status, status != 0 and not running.asked and not running.unread


def _command(job: Job, launcher: Launcher, folder: Path) -> list[str]:
    supervisor = [sys.executable, "-I", "-S", rank.__file__, str(folder)]
    starter = ["-m", "mpijax.as_jax"] if job.as_jax else []
    program = [sys.executable, *(["-u"] if job.prefix else []), *starter, *job.program]
    return [*launcher.command(job.ranks, len(cores.physical())), *supervisor, *program]


def _open_standard_streams() -> None:
    """Open /dev/null for closed standard streams (``>&-``), whose numbers other files would get."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _binary(stream: Any, number: int) -> Any:
    """The bytes stream of a standard stream; Python has none if it was closed."""
    return stream.buffer if stream is not None else open(number, "wb", closefd=False)


class _RunningJob:
    """A running job: merges the ranks' output, and passes signals to them."""

    def __init__(self, job: Job, command: list[str], environment: dict[str, str], folder: Path, stdout, left: float):
        self.job, self.left = job, left
        self.folder = folder
        self.selector = selectors.DefaultSelector()
        outputs = (stdout, _binary(sys.stderr, 2))
        screen = Screen(lambda: shutil.get_terminal_size().columns) if any(map(_is_screen, outputs)) else None
        self.mergers = [
            Merger(job.ranks, _writer(out), screen=screen if _is_screen(out) else None) for out in outputs
        ]
        self.signalled = 0
        self.unread = self.asked = False
        self.deadline = float("inf")
        self.ending: float | None = None
        if job.prefix:
            self._open_pipes()
        self._wake, wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake, False)
        self.selector.register(self._wake, selectors.EVENT_READ, None)
        handlers = {number: signal.signal(number, self._pass_on) for number in (*_PASSED, signal.SIGCHLD)}
        previous = signal.set_wakeup_fd(wake)
        # In a separate session, so that Ctrl-C reaches the ranks only once, through this process.
        stdin = subprocess.DEVNULL if _is_terminal() else None
        try:
            self.process = subprocess.Popen(
                command, env=environment, stdin=stdin, start_new_session=True,
                preexec_fn=rank.end_with_parent(signal.SIGTERM),
            )  # fmt: skip
            self.status: int = self._serve()
        except BrokenPipeError:
            self.unread = True
            self._end()
        finally:
            signal.set_wakeup_fd(previous)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            self.selector.close()

    def outcome(self) -> int:
        """The status of the rank that failed first, else that of the launcher; SIGPIPE's if the output was closed."""
        if self.unread:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what Python still writes there at exit
            return 128 + signal.SIGPIPE
        ends = self._failures()
        if not ends:
            return self.status if self.status >= 0 else 128 - self.status
        _, first, code = self._cause(ends)
        if not self.signalled:
            others = sorted({r for _, r, _ in ends} - {first})
            also = f" (then rank{'s' * (len(others) > 1)} {ranges(others)})" if others else ""
            print(f"mpijax run: rank {first} failed first, with {_described(code)}{also}", file=sys.stderr)
        return code

    def _cause(self, ends: list[tuple[int, int, int]]) -> tuple[int, int, int]:
        """The end (time, rank, status) that caused the others. A rank that waited for an ended one reports that in a
        file. It may itself end first: the launcher may then end the other one before its status is known here."""
        found, seen = min(ends), set[int]()
        while found[1] not in seen:
            seen.add(found[1])
            note = self.folder / f"{found[1]}.because"
            if note.exists():
                cause, status = map(int, note.read_text().split())
                found = next((end for end in ends if end[1] == cause), (found[0], cause, status))
        return found

    def _open_pipes(self) -> None:
        for r in range(self.job.ranks):
            for merger, name in zip(self.mergers, ("out", "err"), strict=True):
                path = self.folder / f"{r}.{name}"
                os.mkfifo(path, 0o600)
                # Opened for writing too, so that reading never reaches the end of the pipe.
                self.selector.register(os.open(path, os.O_RDWR | os.O_NONBLOCK), selectors.EVENT_READ, (merger, r))

    def _serve(self) -> int:
        while self.process.poll() is None:
            self._read(0.02 if any(m.waiting for m in self.mergers) else 0.5)  # SIGCHLD wakes it
            if time.monotonic() > min(self.deadline, self._first_failure() + self.left):
                self.process.terminate()
                self.deadline = self.ending = float("inf")
        while self._read(0.0):
            pass
        for merger in self.mergers:
            merger.flush(everything=True)
        return self.process.wait()

    def _first_failure(self) -> float:
        """The time of the first failure of a rank that was not asked to end."""
        if self.ending is None and not self.asked:
            failed = [when for when, _, _ in self._failures()]
            self.ending = min(failed) / 1e9 if failed else None
        return float("inf") if self.ending is None else self.ending

    def _failures(self) -> list[tuple[int, int, int]]:
        """(time in ns, rank, status) of the failed ranks."""
        ends = [(*map(int, file.read_text().split()), int(file.stem)) for file in self.folder.glob("*.exit")]
        return [(when, number, status) for when, status, number in ends if status]

    def _end(self) -> None:
        """End the ranks, by force if necessary."""
        self.process.terminate()
        try:
            self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _read(self, timeout: float) -> bool:
        """Read the ranks' output, waiting at most `timeout` seconds; returns whether there was any."""
        some = False
        for key, _ in self.selector.select(timeout):
            try:
                data = os.read(key.fd, 1 << 16)
            except BlockingIOError:
                continue
            if key.data is not None:
                merger, r = key.data
                merger.feed(r, data)
                some = True
        for merger in self.mergers:
            merger.flush()
        return some

    def _pass_on(self, number: int, _frame) -> None:
        """Pass a signal to the ranks, so that the program decides; to the launcher if they cannot be reached, or on a
        second interrupt."""
        if number == signal.SIGCHLD:
            return
        pids = [int(file.read_text()) for file in self.folder.glob("*.pid")]
        self.asked = self.asked or number in _ASKING
        stops = number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if len(pids) < self.job.ranks or (stops and self.signalled):
            self.process.send_signal(number)
        else:
            for pid in pids:
                _send(pid, number)
        if stops:
            self.signalled = number
            if number != signal.SIGTERM:  # SIGTERM may announce a preemption: the program may take its time
                self.deadline = time.monotonic() + GRACE


def _described(status: int) -> str:
    """``status 3``, or ``status 137 (SIGKILL)``."""
    known = {128 + s: s.name for s in signal.Signals}
    return f"status {status} ({known[status]})" if status in known else f"status {status}"


def _writer(stream):
    def write(data: bytes) -> None:
        stream.write(data)
        stream.flush()

    return write


def _is_screen(stream: Any) -> bool:
    """Whether this stream is a terminal on which lines can be overwritten."""
    try:
        return os.isatty(stream.fileno()) and os.environ.get("TERM", "dumb") != "dumb"
    except (AttributeError, OSError, ValueError):  # not a file: a test's or a caller's stream
        return False


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _is_terminal() -> bool:
    try:
        return os.isatty(0)
    except OSError:
        return False
