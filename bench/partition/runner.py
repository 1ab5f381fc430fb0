"""One process of JAX and one job of mpijax for all programs; another one goes on after a program that hangs or dies."""

import hashlib
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.case import ROOT
from bench.partition.program import Program
from bench.runner import last_words
from bench.systems import System, launcher, systems

HERE = Path(__file__).parent


def command(system: System, devices: int) -> list[str]:
    worker = [str(system.python), "-m", "bench.partition.worker"]
    if system.name == "jax":
        return worker
    return [*launcher(system.program("mpirun"), devices, "none"), *worker]


def environment(system: System, devices: int) -> dict[str, str]:
    env = dict(os.environ, PYTHONPATH=str(ROOT), MPIJAX_BENCH_SYSTEM=system.name)
    env["PATH"] = f"{system.python.parent}{os.pathsep}{env['PATH']}"
    env.pop("XLA_FLAGS", None)
    if system.name == "jax":
        env.update(XLA_FLAGS=f"--xla_force_host_platform_device_count={devices}", JAX_PLATFORMS="cpu")
    return env


def run(system: System, programs: list[Program], devices: int, references: Path, limit: float, say):
    """The name and the row of each program, as they come."""
    waiting = [p.name for p in programs]
    while waiting:
        for row in _job(system, list(waiting), devices, references, limit):
            waiting.remove(row["name"])
            say(f"{system.name}: {len(programs) - len(waiting)}/{len(programs)}")
            yield row.pop("name"), row


def _job(system: System, names: list[str], devices: int, references: Path, limit: float):
    """Rows as they come, the last one being an error if the job ended early or took too long for a program."""
    with tempfile.TemporaryDirectory(prefix="mpijax-bench-") as folder:
        output, log = Path(folder) / "rows", Path(folder) / "log"
        output.touch()
        arguments = [str(output), str(references), str(devices), *names]
        with log.open("w") as text, output.open() as lines:
            job = subprocess.Popen(
                [*command(system, devices), *arguments], cwd=ROOT, env=environment(system, devices),
                stdout=text, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                yield from _rows(job, lines, names, limit, log)
            finally:
                _end(job)


def _rows(job, lines, names: list[str], limit: float, log: Path):
    left = list(names)
    last = time.monotonic() + limit  # the start takes time too
    while left:
        ended = job.poll() is not None
        line = lines.readline()
        if line.endswith("\n"):
            left.pop(0)
            last = time.monotonic()
            yield json.loads(line)
        elif ended:
            yield {"name": left[0], "error": last_words(log.read_text())}
            return
        elif time.monotonic() - last > limit:
            yield {"name": left[0], "error": f"no result after {limit:g} s: {last_words(log.read_text())}"}
            return
        else:
            time.sleep(0.05)


def _end(job) -> None:
    """The job and all that it started."""
    if job.poll() is None:
        os.killpg(job.pid, signal.SIGTERM)
        try:
            job.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
    job.wait()


# ---------------------------------------------------------------- JAX's rows, kept


def jax_rows(programs: list[Program], devices: int, out: Path, limit: float, say) -> tuple[dict[str, dict], Path]:
    """JAX's rows and the folder of its results on one device. A row is measured once for each state of its program."""
    peer, _ = systems()
    folder = out / f"jax-{devices}"
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "rows.json"
    rows = json.loads(kept.read_text()) if kept.exists() else {}
    new = [p for p in programs if rows.get(p.name, {}).get("state") != _state(p, peer)]
    if new and (reason := peer.missing("jax")):
        rows.update({p.name: {"error": f"skipped: {reason}"} for p in new})
        return rows, folder
    states = {p.name: _state(p, peer) for p in new}
    for name, row in run(peer, new, devices, folder, limit, say):
        rows[name] = row | {"state": states[name]}
        kept.write_text(json.dumps(rows, indent=1))
    return rows, folder


def _state(program: Program, peer: System) -> str:
    """A name for what a row depends on."""
    topic = Path(inspect.getfile(program.function))
    files = [topic, *(HERE / f"{name}.py" for name in ("hlo", "program", "worker"))]
    return hashlib.sha256("".join([str(peer.python), *map(Path.read_text, files)]).encode()).hexdigest()[:12]


def measure(programs: list[Program], devices: int, out: Path, limit: float, say=lambda text: None) -> list[dict]:
    """A record for each program: its name, and the rows of both systems."""
    theirs, references = jax_rows(programs, devices, out, limit, say)
    ours = dict(run(systems()[1], programs, devices, references, limit, say))
    return [
        {
            "name": p.name, "largest": p.largest, "least": p.least(devices) if p.least else None,
            "jax": theirs[p.name], "mpijax": ours[p.name],
        }
        for p in programs
    ]  # fmt: skip


def say(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text}   ", end="", file=sys.stderr, flush=True)


def end_jobs_when_told_to_end() -> None:
    """SIGTERM raises SystemExit, so that the job in progress ends too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
