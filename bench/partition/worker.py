"""Runs programs on the system of this process, and appends a line of JSON for each to a file.

python -m bench.partition.worker OUTPUT REFERENCES DEVICES PROGRAM...

JAX also writes what each program yields on one device into the folder REFERENCES. On mpijax every rank runs this, and
rank 0 writes.
"""

import json
import math
import sys
import time
from pathlib import Path

import numpy as np

from bench.partition import hlo
from bench.partition.modules import SYSTEM, jax, sharding
from bench.partition.program import PROGRAMS, Program, load_programs

CALLS = 5
SLOW = 0.2  # seconds; slower programs are called once


class Alone:
    """The ranks of a process that is alone."""

    rank = 0

    def gather(self, x):
        return [x]

    def wait(self):
        pass


class Ranks:
    """The ranks of the job, between which mpijax's programs run."""

    def __init__(self):
        jax.devices()
        from mpi4py import MPI  # mpijax has started it

        self.comm = MPI.COMM_WORLD
        self.rank = self.comm.Get_rank()

    def gather(self, x):
        return self.comm.allgather(x)

    def wait(self):
        self.comm.Barrier()


def place(program: Program, devices: int) -> list:
    """The arguments, laid out over the devices."""
    shape = program.mesh_shape(devices)
    mesh = sharding.Mesh(np.array(jax.devices()[:devices], dtype=object).reshape(*shape.values()), tuple(shape))
    return [
        jax.device_put(x, sharding.NamedSharding(mesh, sharding.PartitionSpec(*array.spec)))
        for x, array in zip(program.draw(), program.arrays, strict=True)
    ]


def fetch(x) -> np.ndarray:
    """All elements of a result, on every rank."""
    if getattr(x, "is_fully_addressable", True) or x.is_fully_replicated:
        return np.asarray(x)
    from mpijax.experimental.multihost_utils import process_allgather  # of arrays over ranks only

    return np.asarray(process_allgather(x, tiled=True))


def analyse(lowered, compiled, devices: int) -> dict:
    """What this device sends and holds."""
    sizes = compiled.memory_analysis()
    held = sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes
    held -= sizes.alias_size_in_bytes
    if SYSTEM == "jax":
        found = hlo.traffic(compiled.as_text(), devices)
        return {"sent": max(found.sent), "held": held, "gathered": found.gathered, "known": found.known}
    from mpijax.runtime.program.traffic import sent

    found = sent(lowered.compiler_ir())
    return {
        "sent": math.fsum(s.total for s in found),
        "held": held,
        "gathered": max((s.received for s in found if "allgather" in s.kind), default=0),
        "known": all(s.known for s in found),
    }


def differs(got, want, rtol: float) -> str:
    """What is wrong with a result; nothing if it is right."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    if want.dtype.kind not in "fc":
        wrong = got != want
    else:
        finite = want[np.isfinite(want)]
        scale = np.abs(finite).max() if finite.size else 0
        wrong = ~np.isclose(got, want, rtol=rtol, atol=rtol * scale, equal_nan=True)
    return f"{np.count_nonzero(wrong)} of {want.size} elements are wrong" if wrong.any() else ""


def seconds(call, ranks) -> float:
    """The least time of a few calls."""
    times = []
    for _ in range(CALLS):
        ranks.wait()
        start = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - start)
        if max(ranks.gather(times[0])) > SLOW:
            break
    return min(times)


def measure(program: Program, devices: int, references: Path, ranks) -> dict:
    """The row of one program. Raises what the program raises."""
    arguments = place(program, devices)
    jitted = jax.jit(program.function)
    start = time.perf_counter()
    lowered = jitted.lower(*arguments)
    row = analyse(lowered, lowered.compile(), devices)
    row["compile"] = time.perf_counter() - start
    results = jax.tree.leaves(jitted(*arguments))
    row["whole"] = [bool(r.is_fully_replicated) for r in results]
    got = [fetch(r) for r in results]
    reference = references / (program.name.replace("/", " ") + ".npz")
    if SYSTEM == "jax":
        np.savez(reference, *map(np.asarray, jax.tree.leaves(jax.jit(program.function)(*program.draw()))))
    if ranks.rank == 0:
        want = list(np.load(reference).values()) if reference.exists() else []
        wrong = [differs(g, w, program.rtol) for g, w in zip(got, want)]
        row["wrong"] = "; ".join(filter(None, wrong))
        row["checked"] = len(want) == len(got)
    row["seconds"] = seconds(lambda: jitted(*arguments), ranks)
    return row


def row_of(program: Program, devices: int, references: Path, ranks) -> dict:
    """The row, or what was raised: by all ranks, or by which."""
    error, row = None, {}
    try:
        row = measure(program, devices, references, ranks)
    except Exception as e:
        error = f"{type(e).__name__}: {e}".replace("\n", " ")[:300]
    errors = ranks.gather(error)
    if any(errors):
        failed = [k for k, e in enumerate(errors) if e]
        where = "" if len(failed) == len(errors) else f"only ranks {failed}: "
        return {"error": where + errors[failed[0]]}
    for key in ("sent", "held"):
        row[key] = max(ranks.gather(row[key]))
    return row


def main(output: Path, references: Path, devices: int, names: list[str]) -> None:
    load_programs()
    ranks = Alone() if SYSTEM == "jax" else Ranks()
    with output.open("a", buffering=1) as lines:
        for name in names:
            row = row_of(PROGRAMS[name], devices, references, ranks)
            if ranks.rank == 0:
                lines.write(json.dumps({"name": name, **row}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
