"""Runs rows of the table of faults, and says which promises were not kept.

PYTHONPATH=tests python -m faults.run [PATTERN ...]     rows whose names contain one of the patterns; all without any
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from faults.rows import BEGIN, ROWS, Row
from launching import has_status, mpirun
from mpi.jobs import LAUNCHER, ROOT, left_behind, whereabouts

# Concurrent jobs. Blocked ranks sleep or poll, so they take little CPU time.
AT_ONCE = 6
# Seconds for a job to come to its fault; and that busy cores may add to what is promised.
START, SLACK = 60.0, 10.0


@dataclass
class Running:
    row: Row
    process: subprocess.Popen
    folder: Path
    began: float
    ended: float = 0.0
    stuck: str = ""  # where its processes were if it did not end by itself

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text(errors="replace")

    def fault(self) -> float:
        """When the last rank came to the fault; 0: none has."""
        return max(map(float, re.findall(r"FAULT (\d+\.\d+)", self.output)), default=0.0)


def start(row: Row, folder: Path) -> Running:
    folder.mkdir()
    env = {k: v for k, v in os.environ.items() if not k.startswith((*LAUNCHER, "MPIJAX_STALL"))}
    env |= {"PYTHONPATH": str(ROOT), "MPIJAX_TRACE_DIR": str(folder / "records"), "TEST_JOB": str(folder)}
    command = [*mpirun(row.ranks), sys.executable, "-c", row.start + BEGIN + row.body]
    with (folder / "output").open("w") as file:
        process = subprocess.Popen(
            command, env=env | row.settings, stdout=file, stderr=subprocess.STDOUT, cwd=folder, start_new_session=True
        )
    return Running(row, process, folder, time.time())


def is_over(job: Running) -> bool:
    """Whether a job has ended, or has had all of its time: then it is ended here."""
    now = time.time()
    if job.process.poll() is None:
        fault = job.fault()
        if now - job.began < START if not fault else now - fault < job.row.promise.within + SLACK:
            return False
        job.stuck = whereabouts(f"TEST_JOB={job.folder}") or "without processes"
        os.killpg(job.process.pid, signal.SIGKILL)
        job.process.wait()
    job.ended = now
    return True


def is_late(job: Running) -> bool:
    """Whether a job has ended, but after the time of its promise."""
    return 0 < job.fault() < job.ended - job.row.promise.within - SLACK


def broken(job: Running) -> list[str]:
    """What a job that has ended has not kept of its promise, its time apart."""
    row, promise, output, found = job.row, job.row.promise, job.output, []
    if not job.fault():
        found.append("it has not come to the fault")
    if job.stuck:
        found.append(f"it has not ended by itself\n{job.stuck}")
    status = job.process.returncode
    if not has_status(status, promise.status):
        found.append(f"status {status}, promised {'any but 0' if promise.status is None else promise.status}")
    for pattern in (*promise.words, *row.told):
        for rank in range(row.ranks) if "{rank}" in pattern else [0]:
            if not re.search(pattern.replace("{rank}", str(rank)), output):
                found.append(f"does not say {pattern.replace('{rank}', str(rank))!r}")
    if "Segmentation fault" in output and "crashes" not in row.name:
        found.append("a crash")
    if left := left_behind(f"TEST_JOB={job.folder}"):
        found.append(f"processes {left} are left")
    if files := sorted(f.name for f in job.folder.iterdir() if f.name not in ("output", "records")):
        found.append(f"files {files} are left")
    return found


def faults(rows: list[Row], folder: Path, at_once: int = AT_ONCE) -> dict[str, str]:
    """By row: what was promised and not kept, with the output; '' if all was.

    A job that ends by itself and as promised, but late, runs again alone: the cores may have been busy.
    """
    waiting, running, late, found = list(enumerate(rows))[::-1], [], [], {}
    while waiting or running:
        while waiting and len(running) < at_once:
            number, row = waiting.pop()
            running.append(start(row, folder / str(number)))
        time.sleep(0.05)
        for job in [job for job in running if is_over(job)]:
            running.remove(job)
            wrong = broken(job)
            if is_late(job) and not wrong:
                late.append(job.row)
                wrong.append(f"it has not ended within {job.row.promise.within:g} s")
            found[job.row.name] = "\n".join([*wrong, job.output]) if wrong else ""
    if late and at_once > 1:
        alone = folder / "alone"
        alone.mkdir()
        found |= faults(late, alone, 1)
    return found


def abandoned_files() -> list[str]:
    """mpijax's files in the memory of this node that have a name, although no job starts."""
    return sorted(f.name for f in Path("/dev/shm").glob("mpijax-*") if time.time() - f.stat().st_mtime > START)


def main(patterns: list[str]) -> int:
    rows = [row for row in ROWS if not patterns or any(p in row.name for p in patterns)]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = faults(rows, Path(folder))
    wrong = {name: text for name, text in found.items() if text}
    for name, text in wrong.items():
        print(f"=== {name}\n{text}")
    print(f"{len(rows)} rows in {time.monotonic() - began:.0f} s, {len(wrong)} of them not as promised")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
