"""Callbacks with side effects of programs on arrays over ranks: one rank calls them, and all have the results."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI
from spmd.ranks import SIZE

import mpijax as jax
from mpijax import lax
from mpijax import numpy as jnp
from mpijax.experimental import io_callback, multihost_utils
from mpijax.sharding import Mesh, NamedSharding
from mpijax.sharding import PartitionSpec as P

pytestmark = pytest.mark.mpi
RANK = jax.process_index()
N = 4 * SIZE


def rows(devices=None):
    """0, 1, ... over all ranks."""
    mesh = Mesh(np.array(jax.devices() if devices is None else devices), ("i",))
    return jax.device_put(np.arange(float(N), dtype=np.float32), NamedSharding(mesh, P("i")))


def calls_on_ranks(calls):
    return MPI.COMM_WORLD.allgather(len(calls))


@pytest.mark.parametrize("dtype", ["float32", "bool", "int8", "complex64", "bfloat16"])
def test_numbers_that_a_function_draws_are_the_same_on_all_ranks(dtype):
    calls = []

    def drawn(x):
        calls.append(np.asarray(x))
        return (np.random.default_rng(RANK + 1).uniform(0, 9, N) > 5).astype(dtype) + np.asarray(0, dtype)

    @jax.jit
    def program(x):
        return io_callback(drawn, jax.ShapeDtypeStruct((N,), dtype), x * 2), x.sum()

    out, total = program(rows())
    jax.effects_barrier()
    assert calls_on_ranks(calls) == [1] + [0] * (SIZE - 1)
    assert float(total) == N * (N - 1) / 2
    assert out.dtype == dtype
    want = (np.random.default_rng(1).uniform(0, 9, N) > 5).astype(dtype)
    np.testing.assert_array_equal(np.asarray(multihost_utils.process_allgather(out, tiled=True)), want)
    if RANK == 0:
        np.testing.assert_array_equal(calls[0], 2 * np.arange(N))


@pytest.mark.parametrize("ordered", [False, True])
def test_each_turn_of_a_loop_calls_once(ordered):
    calls = []

    @jax.jit
    def program(x):
        def step(c, k):
            io_callback(lambda k, s: calls.append((int(k), float(s))), None, k, c.sum(), ordered=ordered)
            return c + 1, None

        return lax.scan(step, x, jnp.arange(3))[0]

    program(rows()).block_until_ready()
    jax.effects_barrier()
    assert calls_on_ranks(calls) == [3] + [0] * (SIZE - 1)
    first = N * (N - 1) / 2
    assert sorted(calls) == ([(k, first + k * N) for k in range(3)] if RANK == 0 else [])


def test_the_rank_of_the_first_device_calls():
    calls = []
    jax.jit(lambda x: jax.debug.callback(lambda s: calls.append(float(s)), x.sum()))(rows(jax.devices()[::-1]))
    jax.effects_barrier()
    assert calls_on_ranks(calls) == [0] * (SIZE - 1) + [1]


def test_lines_are_printed_once(capfd):
    jax.jit(lambda x: jax.debug.print("sum {}", x.sum()))(rows())
    jax.effects_barrier()
    assert capfd.readouterr().out == (f"sum {N * (N - 1) / 2}\n" if RANK == 0 else "")


def test_each_rank_calls_in_a_program_of_its_own_and_in_shard_map():
    calls = []
    x = rows()

    @jax.jit
    @jax.shard_map(mesh=x.sharding.mesh, in_specs=P("i"), out_specs=P("i"))
    def program(x):
        return io_callback(lambda v: calls.append(0) or np.asarray(v) + RANK, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    out = np.asarray(multihost_utils.process_allgather(program(x), tiled=True))
    np.testing.assert_array_equal(out, np.arange(N) + np.arange(N) // 4)
    jax.jit(lambda: io_callback(lambda: calls.append(0), None))()
    jax.effects_barrier()
    assert len(calls) == 2


def test_the_process_of_each_device_is_live():
    with multihost_utils.live_devices(jax.devices()) as live:
        assert live == jax.devices()
    if SIZE > 1:
        with pytest.raises(NotImplementedError, match=r"devices of the processes \[0\] only"):
            with multihost_utils.live_devices(jax.devices()[:1]):
                pass
