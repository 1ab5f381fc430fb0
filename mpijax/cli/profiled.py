"""One rank of ``mpijax profile``: runs the program, and records how long each step of its programs took.

The arguments are FOLDER and the program's command line. It writes `RANK.json` into FOLDER. Code is optimized before the
first run, so times do not include baseline code.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from mpijax.aliasing import program
from mpijax.cli import rank
from mpijax.compiler.fusion.expr import Load
from mpijax.compiler.fusion.kernel import Kernel
from mpijax.compiler.steps.plan import ProgramPlan
from mpijax.core.base import config
from mpijax.runtime.program import loader
from mpijax.runtime.reports import step_notes

# The code that Python runs. It is not a module, because the program replaces the module `__main__`.
STARTER = "from mpijax.cli.profiled import main; raise SystemExit(main())"


class _Programs:
    """The loaded programs: the number of each one's first step, its name, and the work of its loop nests."""

    def __init__(self) -> None:
        self.loaded: list[tuple[int, str, dict[tuple[str, str], list[tuple[int, int]]]]] = []

    def note(self, plan: ProgramPlan, name: str) -> None:
        work = defaultdict(list)
        for nest in plan.nests:
            work[nest.name, str(nest.source)].append((nest.flops(), traffic(nest)))
        self.loaded.append((step_notes.count(), name, work))

    def steps(self) -> list[dict[str, Any]]:
        """The record of each step that ran."""
        found, ends = [], [*(first for first, _, _ in self.loaded), step_notes.count()]
        sums = step_notes.sums()
        for (begin, end), (_, name, work) in zip(pairwise(ends), self.loaded, strict=True):
            for step, calls, seconds in sums[begin:end]:
                flops, nbytes = step.flops, step.nbytes
                if known := work.get((step.label, step.line)):
                    flops, nbytes = known.pop(0) if len(known) > 1 else known[0]
                if calls:
                    found.append({
                        "program": name, "kind": step.kind, "label": step.label, "line": step.line, "calls": calls,
                        "seconds": seconds, "flops": flops * calls, "bytes": nbytes * calls,
                    })  # fmt: skip
        return found


def traffic(nest: Kernel) -> int:
    """The minimum bytes that a loop nest moves: each value once, or the bytes of its loads and stores if fewer."""
    iterations = math.prod(v.size for v in nest.variables)
    uses = [e.value for e in nest.expressions if isinstance(e, Load)], [s.value for s in nest.stores]
    total = 0
    for values in uses:
        for value, times in Counter(map(id, values)).items():
            x = next(v for v in values if id(v) == value)
            total += min(x.nbytes, times * iterations * x.aval.dtype.itemsize)
    return total


def peak_flops() -> float:
    """Operations per second of a single-precision matrix product: the limit of this rank's cores."""
    from mpijax import numpy as jnp

    x = jnp.ones((1024, 1024), jnp.float32)
    return max(2.0 * 1024**3 / _seconds(lambda: jnp.matmul(x, x)) for _ in range(3))


def _seconds(call: Any) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def main() -> int:
    """Run the program and return its exit status."""
    from mpijax.cli.measure import copy_rate

    folder, number = Path(sys.argv[1]), rank.given_rank()
    sys.argv[1:] = sys.argv[2:]
    programs = _Programs()
    loader.watchers.append(programs.note)
    config.config.update("mpijax_profile_kernels", True)
    config.config.update("jax_optimization_level", "O3")
    step_notes.with_exchanges = True
    begin = time.perf_counter()
    try:
        return program.main()
    finally:
        seconds = time.perf_counter() - begin
        loader.watchers.remove(programs.note)
        config.config.update("mpijax_profile_kernels", False)
        found = {
            "rank": int(number), "seconds": seconds, "steps": programs.steps(),
            "bytes_per_second": copy_rate() * 2e6, "flops_per_second": peak_flops(),
        }  # fmt: skip
        if folder.is_dir():  # on the machine of the command
            (folder / f"{number}.json").write_text(json.dumps(found))
