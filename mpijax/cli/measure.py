"""Measures communication operations inside a compiled loop: runs on every rank, results on rank 0.

    python -m mpijax.cli.measure '{"operations": ["allreduce"], "sizes": [16], "seconds": 0.05}'

Rank 0 prints one line of JSON after `MARK`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

MARK = "mpijax-measured "
# Target seconds of one timing, and the minimum number of timings. The fastest counts: other programs on the cores do
# not disturb all of the short ones.
_PART, _PARTS = 3e-4, 15
# Lower bound of a result, in seconds.
_SHORTEST = 1e-8
OPERATIONS = ("allreduce", "allgather", "alltoall", "bcast", "sendrecv")


def measure(operations: list[str], sizes: list[int], seconds: float) -> Iterator[dict[str, Any]]:
    """{"operation", "bytes" (of a rank's argument), "us" (of the slowest rank), "MB/s" (bytes over time)} for each
    operation and size. Collective; takes about `seconds` for each."""
    from mpijax import numpy as jnp
    from mpijax.runtime.mpi import mpi_start

    world = mpi_start.world()
    ranks = world.size
    for name in operations:
        for nbytes in sizes:
            count = max(1, nbytes // 4)
            if name == "alltoall":  # a row for each rank
                count = max(1, count // ranks) * ranks
            x = jnp.zeros((ranks, count // ranks) if name == "alltoall" else count, jnp.float32)
            call = _calls(world.rank, ranks)[name]
            best = _fastest(_timer(world, _loop(call), x), _timer(world, _loop(None), x), seconds)
            yield {"operation": name, "bytes": x.nbytes, "us": best * 1e6, "MB/s": x.nbytes / best / 1e6}


def _fastest(whole: Callable[[int], float], besides: Callable[[int], float], seconds: float) -> float:
    """Seconds per iteration of the loop `whole`, less those of `besides`, the same loop without communication."""
    iterations, best = 1, float("inf")
    for seconds_of in (whole, besides):
        seconds_of(1)  # compiles
    while iterations < 4096 and (best := min(whole(iterations) for _ in range(3))) * iterations < _PART:
        iterations *= 4
    parts = max(_PARTS, int(3 * seconds / (iterations * best)))
    found = [(whole(iterations), besides(iterations)) for _ in range(parts)]
    return max(_SHORTEST, min(a for a, _ in found) - min(b for _, b in found))


def _calls(rank: int, ranks: int) -> dict[str, Callable]:
    from mpijax import mpi

    return {
        "allreduce": lambda x: mpi.allreduce(x, op="SUM"),
        "allgather": mpi.allgather,
        "alltoall": mpi.alltoall,
        "bcast": lambda x: mpi.bcast(x, 0),
        "sendrecv": lambda x: mpi.sendrecv(x, x, (rank - 1) % ranks, (rank + 1) % ranks),
    }


def _loop(call: Callable | None) -> Callable:
    """A program of (iterations, x) that communicates x `iterations` times, and rewrites x after each time.

    Real programs send data that they have just computed. Data sent a second time is still in the receivers' caches: if
    MPI copies it directly from rank to rank, that takes a third of the time.
    """
    import mpijax
    from mpijax import lax

    def iteration(_, x):
        _, x = lax.optimization_barrier((None if call is None else call(x), x))
        return x + 1

    return mpijax.jit(lambda iterations, x: lax.fori_loop(0, iterations, iteration, x))


def _timer(world: Any, run: Callable, x: Any) -> Callable[[int], float]:
    """seconds_of(iterations): the time per iteration on the slowest rank."""

    def seconds_of(iterations: int) -> float:
        world.Barrier()
        begin = time.perf_counter()
        run(iterations, x)
        return max(world.allgather((time.perf_counter() - begin) / iterations))

    return seconds_of


def loggp(world: Any, seconds: float) -> dict[str, float]:
    """The parameters of the LogGP model (`cli.loggp`) for messages between neighbours: {"L_us", "o_us", "G_ns"}.

    Collective. A message each way takes L + 2 o; a byte of a long one G. `o` is a send for which nobody waits.
    """
    short, long = measure(["sendrecv"], [16, 1 << 20], seconds)
    byte = max(0.0, (long["us"] - short["us"]) / (long["bytes"] - short["bytes"]))
    o = min(_overhead(world), short["us"] / 2)
    return {"L_us": short["us"] - 2 * o, "o_us": o, "G_ns": byte * 1e3}


def _overhead(world: Any, messages: int = 64) -> float:
    """µs for which a small message to rank 1, which receives it later, occupies rank 0."""
    import numpy as np

    import mpijax
    from mpijax import lax, mpi

    x, send, count = np.zeros(4, np.float32), _loop(lambda x: mpi.send(x, 1)), _loop(None)
    receive = mpijax.jit(lambda x: lax.fori_loop(0, messages, lambda _, x: mpi.recv(x, 0), x))
    best = {send: float("inf"), count: float("inf")}
    for _ in range(20):
        for run in best:
            world.Barrier()
            begin = time.perf_counter()
            if world.rank == 0:
                run(messages, x)
            best[run] = min(best[run], time.perf_counter() - begin)
            world.Barrier()
            if world.rank == 1 and run is send:
                receive(x)
    return world.bcast(max(0.0, best[send] - best[count]) / messages * 1e6)


def mpi_latency(world: Any, iterations: int = 2000) -> float:
    """µs of mpi4py's own allreduce of 4 floats: the time of the library and Python without mpijax."""
    import numpy as np

    x, y = np.zeros(4, np.float32), np.zeros(4, np.float32)
    for _ in range(10):
        world.Allreduce(x, y)
    begin = time.perf_counter()
    for _ in range(iterations):
        world.Allreduce(x, y)
    return (time.perf_counter() - begin) / iterations * 1e6


def copy_rate() -> float:
    """MB/s of copying 32 MB of memory, for comparison with messages between ranks of a machine."""
    import numpy as np

    x, y = np.ones(1 << 23, np.float32), np.empty(1 << 23, np.float32)
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        np.copyto(y, x)
        best = min(best, time.perf_counter() - begin)
    return x.nbytes / best / 1e6


def main() -> None:
    wanted = json.loads(sys.argv[1])
    from mpijax.runtime.machine import cpus
    from mpijax.runtime.mpi import mpi_start

    start = mpi_start.start()
    rows = list(measure(wanted["operations"], wanted["sizes"], wanted["seconds"]))
    model = loggp(start.world, wanted["seconds"]) if start.size > 1 and rows else {}
    here = {
        "node": os.uname().nodename, "cpus": sorted(cpus.affinity()), "threads": cpus.cpus_per_rank(),
    }  # fmt: skip
    ranks = start.world.gather(here)
    plain = mpi_latency(start.world, 50 if start.yields else 2000)
    if start.rank == 0:
        levels = ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")
        constants = [getattr(start.MPI, f"THREAD_{level}") for level in levels]
        found = {
            "rows": rows, "loggp": model, "ranks": ranks, "level": levels[constants.index(start.MPI.Query_thread())],
            "mpi4py_us": plain, "yields": start.yields, "library": mpi_start.library_version(),
            "copy_MB/s": copy_rate(),
        }  # fmt: skip
        print(MARK + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
