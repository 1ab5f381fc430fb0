"""Exchanges beside computation and through shared memory: the same bits with and without, in program order."""

from __future__ import annotations

import re

import numpy as np
import pytest
from launching import marked
from mpi.jobs import START_ALONE, Job, of_chosen_tests, run_once
from once import shared_folder
from quickly import all_slow_but

import mpijax as jax
from mpijax import lax, mpi
from mpijax import numpy as jnp
from mpijax.compiler.steps.instructions import Communicate, Finish, Input, KernelCall, PythonCall, Temp, walk
from mpijax.compiler.steps.planner import plan_program
from mpijax.core.base import config

X = np.ones((64, 64), np.float32)


def steps_of(fun, *args):
    return plan_program(jax.make_jaxpr(fun)(*args)).instructions


def kinds(steps):
    names = {KernelCall: "kernel", Finish: "wait", PythonCall: "host"}
    return [
        ("start" if s.goes_on else "run") + " " + s.label if isinstance(s, Communicate) else names.get(type(s), "other")
        for s in steps
    ]


def total(x):
    return mpi.allreduce(x, "SUM")


# (program, its steps): X is one argument, so that nothing of it is done before a program begins.
PLANS = {
    "independent work runs before the wait": (
        lambda x: (total(x) + 1, jnp.sin(x) + 2), ["start mpi_allreduce", "kernel", "wait", "kernel"],
    ),
    "what needs the result comes after it": (lambda x: jnp.sin(total(x)), ["run mpi_allreduce", "kernel"]),
    "it starts before what it does not need": (
        lambda x: (jnp.sin(x), total(x)), ["start mpi_allreduce", "kernel", "wait"],
    ),
    "each is waited for before the next": (
        lambda x: (total(x), jnp.sin(x), mpi.allgather(x)),
        ["start mpi_allreduce", "kernel", "wait", "run mpi_allgather"],
    ),
    "a small message is not worth it": (lambda x: (total(x[0, :8]), jnp.sin(x)), None),
    "nor is little work": (lambda x: (total(x), jnp.sin(x[:3])), None),
    "messages of one side have one half": (lambda x: (mpi.send(x, 0), jnp.sin(x)), None),
    "Python may fail, and communicate": (
        lambda x: (total(x), jax.pure_callback(np.sin, x, x), jnp.cos(x)), None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
def test_where_exchanges_start_and_end(name):
    fun, expected = PLANS[name]
    found = kinds(steps_of(fun, X))
    if expected is None:
        assert "wait" not in found or found.index("wait") < found.index("host"), found
    else:
        assert found == expected
    with config.overlap(False):
        assert "wait" not in kinds(steps_of(fun, X))


def test_an_exchange_of_a_loop_ends_in_its_turn():
    def loop(x):
        return lax.fori_loop(0, 5, lambda i, c: (c[0] + total(c[1]), jnp.sin(c[1])), (x, x))

    [body] = [s.body for s in walk(steps_of(loop, X)) if hasattr(s, "body")]
    found = kinds(body)
    assert "kernel" in found[found.index("start mpi_allreduce") : found.index("wait")]


def random_program(rng):
    """Exchanges, products and elementwise work on values that die, are updated in place, or are carried in loops."""
    plan = [(int(rng.integers(0, 7)), *rng.integers(0, 4, 2).tolist()) for _ in range(14)]

    def program(a, b, c, d):
        values = [a, b, c, d]
        for kind, i, j in plan:
            x, y = values[i], values[j]
            if kind == 0:
                out = total(x)
            elif kind == 1:
                out = mpi.allgather(y)[0] + x
            elif kind == 2:
                out = jnp.tanh(x @ y)
            elif kind == 3:
                out = x.at[3:30, 5:9].set(y[3:30, 5:9] + 1)
            elif kind == 4:
                out = lax.fori_loop(0, 3, lambda k, c: (c[0] + 0.5 * total(c[1]), jnp.sin(c[1])), (x, y))[0]
            else:
                out = jnp.cos(x) * 0.5 + y
            values[i] = out
        return values

    return program


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.one_in(3)
def test_what_an_exchange_uses_stays_as_it_is(seed):
    """Between start and wait nothing touches its result, nothing writes what it sends (seen where it runs: below)."""
    plan = plan_program(jax.make_jaxpr(random_program(np.random.default_rng(seed)))(X, X, X, X), (True,) * 4)

    def memory(ref):
        b = plan.buffers[ref.buffer]
        if isinstance(b, Temp):
            return "arena", b.offset + ref.offset
        if isinstance(b, Input):
            return ("input", b.index), ref.offset
        return (("input", b.donor) if getattr(b, "donor", -1) >= 0 else ref.buffer), ref.offset

    def lists(steps):
        yield steps
        for s in steps:
            for body in [getattr(s, "body", None)]:
                if body:
                    yield from lists(body)

    found = 0
    for steps in lists(plan.instructions):
        going: list = []
        for s in steps:
            if isinstance(s, Finish):
                going = []
            elif isinstance(s, Communicate):
                assert not going
                if s.goes_on:
                    found += 1
                    going = [(*memory(x.place), x.nbytes) for x in s.outputs]
            elif isinstance(s, KernelCall):
                for where, at in map(memory, s.ptrs):
                    assert not any(w == where and b <= at < b + n for w, b, n in going)
        assert not going
    assert found


COMPARE = (
    """
from mpi.test_overlap import random_program
from mpijax.core.base import config
def runs(fun, *args, **options):
    return [np.asarray(y).tobytes() for y in jax.tree.leaves(jax.jit(fun, **options)(*args))]
fun = random_program(np.random.default_rng(0))
a, b, c, d = [np.random.default_rng((rank, k)).standard_normal((64, 64)).astype(np.float32) for k in range(4)]
with config.overlap(False): want = runs(fun, a, b, c, d)
assert runs(lambda *xs: fun(*xs), a, b, c, d) == want
donated = [jax.numpy.asarray(x) + 0 for x in (a, b, c, d)]
assert runs(lambda *xs: fun(*xs), *donated, donate_argnums=(0, 1, 2, 3)) == want
large = np.random.default_rng(rank).standard_normal(120000).astype(np.float32)
step = lambda x: (mpi.allreduce(x, op='SUM'), jax.numpy.sin(x), mpi.sendrecv(x, x, (rank - 1) % size, (rank + 1) % size))
with config.overlap(False): want = runs(step, large)
assert runs(lambda x: step(x), large) == want
print('the same bits')
"""
)
# Every type at the size that takes the most paths, and each of the other sizes with three.
SIZES = """
SIZES = ((1, ('float32', 'int8', 'bool')), (5, ('int32', 'complex64', 'int8')),
         (1000, ('float32', 'int32', 'int8', 'bool', 'complex64', 'bfloat16')), (70000, ('float32', 'int32', 'bfloat16')))
"""
FEW_SIZES = "\nSIZES = ((5, ('int32',)), (1000, ('float32', 'int8')), (70000, ('float32',)))\n"
OPERATIONS = """
from mpijax.sharding import Mesh, PartitionSpec as P
def bits(x): return np.asarray(x).tobytes()
world = MPI.COMM_WORLD
windows = os.environ.get('MPIJAX_WAIT') == 'block' and 'MPIJAX_SHARED_MEMORY' not in os.environ
for comm in (None, world.Split(rank % 2, -rank)):
    group = comm or world
    me, ranks = group.rank, group.size
    for n, dtypes in SIZES:
        for dtype in dtypes:
            x = jax.numpy.asarray(np.random.default_rng(rank).standard_normal((ranks, n)) * 50).astype(dtype)
            everyone = group.allgather(np.asarray(x))
            y = mpi.allreduce(x, op='SUM', comm=comm)
            assert len(set(group.allgather(bits(y)))) == 1, (n, dtype)
            if dtype in ('int32', 'int8'):
                assert bits(y) == bits(np.add.reduce(everyone, 0, dtype=dtype)), (n, dtype)
            if dtype == 'float32':
                want = everyone[0]
                for other in everyone[1:]: want = want + other
                np.testing.assert_allclose(y, want, 1e-5, 1e-4)
                if windows or ranks == 2: assert bits(y) == bits(want), 'in the order of the ranks'
            if dtype != 'complex64':
                assert bits(mpi.allreduce(x, op='MAX', comm=comm)) == bits(np.maximum.reduce(everyone)), (n, dtype)
            assert bits(mpi.reduce_scatter(x, op='SUM', comm=comm)) == bits(y[me]), (n, dtype)
            assert bits(mpi.allgather(x, comm=comm)) == b''.join(map(bits, everyone)), (n, dtype)
            assert bits(mpi.alltoall(x, comm=comm)) == b''.join(bits(e[me]) for e in everyone), (n, dtype)
            assert bits(mpi.bcast(x, ranks - 1, comm=comm)) == bits(everyone[-1]), (n, dtype)
            mpi.barrier(comm=comm)
comm.Free()
mesh = Mesh(np.array(jax.devices()), ('d',))
for perm in ([(k, (k + 1) % size) for k in range(size)], [(0, size - 1)], [(k, k) for k in range(size)]):
    shift = jax.shard_map(lambda y: lax.ppermute(y, 'd', perm), mesh=mesh, in_specs=P('d'), out_specs=P('d'))
    y = np.arange(size * 5000, dtype=np.float32)
    want = np.zeros((size, 5000), np.float32)
    for a, b in perm: want[b] = y.reshape(size, -1)[a]
    z = jax.jit(lambda y: shift(lax.fori_loop(0, 4, lambda i, c: shift(c) * 0 + c, y)))(y)
    assert bits(z.addressable_shards[0].data) == bits(want[rank])
print('as they should be')
"""
HALOS = """
from mpijax.core.base import config
from mpijax.runtime.mpi import mpi_start
shims = mpi_start.start().ext
def same(fun, *args):
    found = set()
    for windows, overlap in ((False, False), (False, True), (True, False), (True, True)):
        before = shims.set_sharing(windows)
        with config.overlap(overlap):
            f = jax.jit(lambda *xs: fun(*xs))
            found.add(tuple(np.asarray(y).tobytes() for y in jax.tree.leaves(f(*args))))
        shims.set_sharing(before)
    assert len(found) == 1
    return f
ring = mpi.create_cart(1, periods=True)
u = np.random.default_rng(rank).random((6, 4))
text = same(lambda u: lax.fori_loop(0, 40, lambda i, u: mpi.halo_exchange(0.5 * u, ring), u), u).lower(u).compile().as_text()
steps = [line.split()[0] for line in text.splitlines() if 'sendrecv' in line]
assert steps == ['start', 'start', 'wait', 'wait'], text
grids = [((size, 1), True), ((size, 1), False), ((1, size), (True, False))]
if size == 4: grids += [((2, 2), True)]
for dims, periods in grids:
    cart = mpi.create_cart(dims, periods=periods)
    for columns in (3 * size + 1, 3000 * size):
        where = mpi.block_slice((5 * size + 2, columns), cart.dims, cart.coords)
        u = np.random.default_rng(rank).standard_normal([s.stop - s.start + 2 for s in where]).astype(np.float32)
        turn = lambda i, u: jax.numpy.tanh(mpi.halo_exchange(u, cart)) + 0.1 * u
        same(lambda u: lax.fori_loop(0, 4, turn, u), u)
        if columns < 1000: same(jax.grad(lambda u: (mpi.halo_exchange(jax.numpy.sin(u), cart) ** 2).sum()), u)
print('the same halos')
"""
STALL = """
step = jax.jit(lambda x: (mpi.allreduce(x, op='SUM') + 1, jax.numpy.sin(x)))
x = np.ones((100, 100), np.float32)
assert 'wait for mpi_allreduce' in step.lower(x).compile().as_text()
step(x)
if rank == 1: time.sleep(2.5)
step(x)
"""
PATH = "import sys; sys.path.insert(0, 'tests')\n"
START = PATH + START_ALONE + "from mpi4py import MPI\n"
ALONE = {"MPIJAX_SHARED_MEMORY": "0"}
POLL = {"MPIJAX_WAIT": "block"}
SHARED_CORES = {"MPIJAX_WAIT": "yield"}
SOON = {"MPIJAX_STALL_SECONDS": "1"}
JOBS = {
    "1 rank": Job(COMPARE, 1, start=START),
    "2 ranks, few sizes": Job(FEW_SIZES + COMPARE + OPERATIONS + HALOS, 2, POLL, START),
    "2 ranks": Job(SIZES + OPERATIONS, 2, POLL, START),
    "3 ranks that share cores, few sizes": Job(FEW_SIZES + OPERATIONS, 3, SHARED_CORES, START),
    "3 ranks that share cores": Job(SIZES + COMPARE + OPERATIONS, 3, SHARED_CORES, START),
    "3 ranks": Job(HALOS, 3, POLL, START),
    "4 ranks": Job(SIZES + COMPARE + OPERATIONS + HALOS, 4, POLL, START),
    "2 ranks, messages": Job(SIZES + COMPARE + OPERATIONS, 2, ALONE | POLL, START),
    "4 ranks, messages": Job(COMPARE, 4, ALONE, START),
    "stall": Job(STALL, 2, SOON | POLL, START),
    "stall, messages": Job(STALL, 2, SOON | POLL | ALONE, START),
}
# In the default run: each program through shared memory, and halos as messages too.
OFTEN = ("2 ranks, few sizes", "3 ranks that share cores, few sizes", "stall")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, request):
    for job in JOBS.values():
        job.limit = 200  # they run all at once
    return run_once(of_chosen_tests(JOBS, request), shared_folder(tmp_path_factory, "overlap"))


@marked
@pytest.mark.parametrize("name", all_slow_but(OFTEN, JOBS))
def test_jobs(outcomes, name):
    found = outcomes[name]
    assert found.status == 0, found.output
    for told, body in (("the same bits", COMPARE), ("as they should be", OPERATIONS), ("the same halos", HALOS)):
        assert found.output.count(told) == JOBS[name].ranks * (body in JOBS[name].body), found.output
    if name.startswith("stall"):
        assert re.search(r"rank 0 has waited 1 s in allreduce float32\[100,100\] sum .*at <string>:\d+", found.output)
        assert re.search(r"rank 1 has not arrived", found.output), found.output
