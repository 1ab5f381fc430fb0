"""Nothing grows: memory, mappings, open files, threads and shared memory, over many programs, calls and messages.

Slow tests, each a job of its own of two ranks. `-s` prints what was counted.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from launching import marked, mpirun

from mpijax.cli import launcher

TESTS = Path(__file__).parents[1]

# step(i) does the i-th piece of work. What is counted settles in the first half of them.
COUNTED = """
import ctypes, gc, os, sys, time
import numpy as np
import mpijax as jax
from mpijax import lax, numpy as jnp
from mpijax.sharding import PartitionSpec as P

def counts():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    files = len(os.listdir("/proc/self/fd"))
    shared = sum(f"/{name}" in line for name in ("mpich", "mpijax", "sm_segment") for line in open("/proc/self/maps"))
    return {
        "bytes": int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        "mappings": sum(1 for _ in open("/proc/self/maps")), "files": files,
        "threads": len(os.listdir("/proc/self/task")), "shared": shared,
        "in /dev/shm": sum(name.startswith("mpijax") for name in os.listdir("/dev/shm")),
    }

mesh = jax.make_mesh((jax.device_count(),), ("ranks",))
x = np.arange(6, dtype=np.float32)
total = jax.jit(jax.shard_map(lambda x: lax.psum(x, "ranks"), mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False))
number = int(sys.argv[1])
"""
RUN = """
for i in range(number // 2):
    step(i)
before, began = counts(), time.perf_counter()
for i in range(number // 2, number):
    step(i)
each = (time.perf_counter() - began) / (number - number // 2)
after = counts()
sys.stdout.write(f"{each * 1e6:.2f} us each; " + ", ".join(f"{k} {before[k]} -> {after[k]}" for k in before) + "\\n")
"""
STEPS = {
    # Random programs on arrays over the ranks, which are forgotten: compared with whole arrays meanwhile.
    "programs": (300, """
from spmd.random_global import failures
def step(i):
    assert not failures([70_000 + i])
"""),
    # Calls of programs, of which each hundredth has a collective: where ranks share cores with others, one takes 1 ms.
    "calls": (10_000_000, """
scaled = jax.jit(lambda x: x * 2)
y = total(x)
def step(i):
    global y
    y = (scaled if i % 100 else total)(x)
"""),
    # Functions of their own, each with a constant of its own.
    "functions": (100_000, """
def step(i):
    jax.jit(lambda x: x * float(i))(x)
"""),
    # One function, of ever other static arguments: it begins anew when it has as many programs as it keeps.
    "arguments": (20_000, """
scaled = jax.jit(lambda x, n: x * n, static_argnums=1)
def step(i):
    scaled(x, i)
"""),
}  # fmt: skip
MAPPINGS, BYTES = 40, 25 << 20


@marked
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("what", STEPS)
def test_nothing_grows(what):
    number, body = STEPS[what]
    env = launcher.clean_environment() | {
        "PYTHONPATH": f"{TESTS.parent}:{TESTS}",
        "MPIJAX_NUM_THREADS": "1",
        # LLVM, of 65 MB, is then loaded in the first half, whichever programs an earlier run has compiled.
        "MPIJAX_CACHE": "0",
    }
    words = [*mpirun(2), sys.executable, "-c", COUNTED + body + RUN, str(number)]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=3500)
    assert done.returncode == 0, done.stderr
    print(f"{what}, {number}:\n{done.stdout}")
    lines = [line for line in done.stdout.splitlines() if " us each; " in line]
    assert len(lines) == 2
    for line in lines:
        for counted in line.partition("; ")[2].split(", "):
            name, before, after = counted.replace(" -> ", "|").replace(" ", "|").rsplit("|", 2)
            room = {"bytes": BYTES, "mappings": MAPPINGS}.get(name, 0)
            assert int(after) <= int(before) + room, line
