"""Runs cases: every measurement a fresh process, systems in turns, as long as there is time."""

import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from bench import climit
from bench.case import ROOT, Case
from bench.report import amount
from bench.systems import System, systems

TIMEOUT = 120  # seconds one process may take


def environment(case: Case, system: System, caches: Path) -> dict[str, str]:
    """Environment of a process, with the disk caches in the state the case asks for."""
    env = dict(os.environ, PYTHONPATH=str(ROOT), **dict(case.env))
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # packages that are installed have bytecode
    env["PATH"] = f"{system.python.parent}{os.pathsep}{env['PATH']}"
    if case.cache == "empty":
        folder = Path(tempfile.mkdtemp(dir=caches))
    else:
        folder = caches / (
            "shared" if case.cache == "shared" else f"{system.name} {case.name}".replace("/", "_")
        )
        folder.mkdir(exist_ok=True)
    folder.chmod(0o700)
    env["MPIJAX_CACHE_DIR"] = str(folder)
    if case.cache == "warm":
        env["JAX_COMPILATION_CACHE_DIR"] = str(folder)
        env["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        env["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    return env


def last_words(text: str) -> str:
    """The line of a failed process's output that says most: the last one that looks like an exception."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if ": " in line and line.split(":")[0].split(".")[-1].isidentifier()]
    errors = [line for line in errors if line.split(":")[0].endswith(("Error", "Exception", "Interrupt"))]
    return (errors or lines or ["no output"])[-1][:200]


def measure(case: Case, system: System, caches: Path, budget: float) -> dict:
    """{"value", "peak", "base"} of one process, or {"error"}."""
    reason = system.why_not(case)
    if reason:
        return {"error": f"skipped: {reason}"}
    env = environment(case, system, caches)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "result.json"
        command = system.command(case, budget, output)
        try:
            done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            return {"error": f"no result after {TIMEOUT} s"}
        if output.exists():
            return json.loads(output.read_text())
        return {"error": last_words(done.stderr + done.stdout)}


def run(cases: list[Case], rounds: int, seconds: float, budget: float, say) -> list[dict]:
    """Measures all cases on all systems; one record a case, medians over the rounds."""
    peer, ours = systems()
    samples = {(case.name, system): [] for case in cases for system in ("jax", "mpijax")}
    limits: dict[str, list[float]] = {}
    start, longest = time.monotonic(), 0.0
    with tempfile.TemporaryDirectory(prefix="mpijax-bench-") as folder:
        caches = Path(folder)
        for turn in range(rounds):
            began = time.monotonic()
            if turn and began - start + longest > seconds:
                say(f"time is up after {turn} of {rounds} rounds")
                break
            wanted = {case.c for case in cases if case.c}
            for arguments, value in climit.measure(wanted, ours, caches, say).items():
                limits.setdefault(arguments, []).append(value)
            for number, case in enumerate(cases, 1):
                for system in (peer, ours) if turn % 2 == 0 else (ours, peer):
                    taken = samples[case.name, system.name]
                    if taken and "error" in taken[-1]:
                        continue  # it would fail again
                    if case.cache == "warm" and turn == 0:
                        measure(case, system, caches, budget)  # fills the cache
                    taken.append(measure(case, system, caches, budget))
                say(f"round {turn + 1}: {number}/{len(cases)} {case.name}: {brief(samples, case)}")
            longest = max(longest, time.monotonic() - began)
    return [record(case, samples, limits) for case in cases]


def brief(samples: dict, case: Case) -> str:
    last = [samples[case.name, system][-1] for system in ("jax", "mpijax")]
    return "  ".join(amount(r["value"], case.unit) if "value" in r else r["error"] for r in last)


def record(case: Case, samples: dict, limits: dict) -> dict:
    """What the results file holds of a case."""
    row = {"case": case.name, "unit": case.unit, "target": case.target.text()}
    row["c"] = statistics.median(limits[case.c]) if case.c in limits else None
    for system in ("jax", "mpijax"):
        taken = samples[case.name, system]
        good = [sample for sample in taken if "value" in sample]
        if good:
            row[system] = {
                "value": statistics.median(sample["value"] for sample in good),
                "all": [sample["value"] for sample in good],
                "peak": max(sample["peak"] for sample in good),
                "growth": max(sample["peak"] - sample["base"] for sample in good),
            }
        else:
            row[system] = {"error": taken[-1]["error"]}
    theirs, ours = (row[system].get("value") for system in ("jax", "mpijax"))
    row["ratio"] = theirs / ours if theirs and ours else None
    row["met"] = case.target.met(ours, theirs, row["c"]) if ours else None
    return row
