"""`distributed.survivors`: ranks are killed at random moments, and the others go on."""

import subprocess
import sys

import pytest
from launching import PATHS, is_open_mpi, marked, mpirun

from mpijax import distributed
from mpijax.cli.launcher import clean_environment

JOB = """
import os, random, signal, sys, threading, time
import numpy as np
import mpijax as jax
from mpijax import mpi, numpy as jnp
from mpijax.sharding import Mesh, NamedSharding, PartitionSpec as P

seed, deaths = map(int, sys.argv[1:])
first, begin = jax.process_index(), time.monotonic()


def die(seconds):
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


victims = random.Random(seed).sample(range(jax.process_count()), deaths)
if first in victims:
    threading.Thread(target=die, args=(random.Random(seed * 100 + first).random(),), daemon=True).start()

total = jax.jit(lambda x: mpi.allreduce(x, "SUM"))
numbers, errors = list(range(jax.process_count())), 0


def step():
    n, r = jax.process_count(), jax.process_index()
    assert n == len(numbers) == jax.device_count() and numbers[r] == first
    mesh = Mesh(np.array(jax.devices()), ("i",))
    x = np.arange(12 * n, dtype=np.float32).reshape(n, 12)
    rows = jax.device_put(x, NamedSharding(mesh, P("i")))
    assert float(jax.jit(lambda x: jnp.sum(jnp.diff(x, axis=0)))(rows)) == 144 * (n - 1)
    assert total(np.ones(3, np.float32))[0] == n == mpi.allreduce(np.float32(1), "SUM")
    other = mpi.sendrecv(np.full(3, r, np.float32), np.zeros(3, np.float32), (r - 1) % n, (r + 1) % n)
    assert other[0] == (r - 1) % n
    return float(mpi.allreduce(np.float32(time.monotonic() - begin), "MIN")) > 2 and n == 4 - deaths


done = False
while not done:
    try:
        done = step()
    except RuntimeError:
        left = jax.distributed.survivors()
        numbers, errors = [numbers[i] for i in left], errors + 1
if jax.process_index() == 0:
    print("left", numbers, "without", sorted(victims), 1 <= errors <= deaths, flush=True)
"""


@marked
@pytest.mark.skipif(not is_open_mpi(), reason="needs Open MPI 5")
@pytest.mark.parametrize("deaths", [1, 2, 3])
def test_the_others_go_on(deaths):
    env = clean_environment() | {"PYTHONPATH": PATHS}
    first, *words = mpirun(4)
    command = [first, "--with-ft", "ulfm", *words, sys.executable, "-c", JOB, str(deaths + 5), str(deaths)]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200)
    [line] = [line for line in ran.stdout.splitlines() if line.startswith("left ")]
    left, _, dead = line.removeprefix("left [").removesuffix("] True").partition("] without [")
    assert line.endswith("] True") and sorted(map(int, left.split(",") + dead.split(","))) == [0, 1, 2, 3], line
    assert len(dead.split(",")) == deaths


def test_other_libraries_are_refused():
    with pytest.raises(RuntimeError, match=r"needs an MPI library that continues after a rank dies.*--with-ft ulfm.*mpijax run --restart 3"):
        distributed.survivors()
