"""Runs one case on one system in this process (on every rank) and writes what was measured as JSON.

python -m bench.worker SYSTEM CASE BUDGET OUTPUT
"""

import json
import sys
import time
from pathlib import Path


def main(system: str, name: str, budget: float, output: Path) -> None:
    from bench.case import load_cases
    from bench.measure import first, peak_bytes, steady

    (case,) = (case for case in load_cases() if case.name == name)
    start = time.perf_counter()
    from bench.backend import Backend

    backend = Backend(system)
    backend.jnp  # part of `import jax` too
    imported = time.perf_counter() - start
    if case.mode == "import":
        result = {"seconds": imported, "peak": peak_bytes(), "base": peak_bytes()}
    else:
        comm = backend.comm if case.ranks > 1 else None
        base = peak_bytes()
        wait = backend.jax.block_until_ready
        timed = case.build(backend)
        seconds = steady(timed, wait, budget, comm) if case.mode == "steady" else first(timed, wait)
        result = {"seconds": seconds, "peak": peak_bytes(), "base": base}
        if comm is not None and comm.rank > 0:
            return
    output.write_text(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), Path(sys.argv[4]))
