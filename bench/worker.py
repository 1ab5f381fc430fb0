"""Runs one case on one system in this process (on every rank) and writes what was measured as JSON.

python -m bench.worker SYSTEM CASE BUDGET OUTPUT
"""

import json
import sys
import time
from pathlib import Path


def main(system: str, name: str, budget: float, output: Path) -> None:
    from bench.case import load_cases
    from bench.measure import first, peak_bytes, planned_bytes, steady

    (case,) = (case for case in load_cases() if case.name == name)
    start = time.perf_counter()
    from bench.backend import Backend

    backend = Backend(system)
    value = time.perf_counter() - start  # mode "import"
    comm = backend.comm if case.ranks > 1 else None
    base = peak_bytes()
    subject = case.build(backend)
    if case.mode == "steady":
        value = steady(subject, backend.jax.block_until_ready, budget, comm)
    elif case.mode == "first":
        value = first(subject, backend.jax.block_until_ready)
    elif case.mode == "memory":
        value = planned_bytes(*subject)
    if comm is None or comm.rank == 0:
        output.write_text(json.dumps({"value": value, "peak": peak_bytes(), "base": base}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), Path(sys.argv[4]))
