"""Programs for mpi4jax before 0.8, with tokens, and communicators as static arguments."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI
from spmd.ranks import SIZE

import mpijax as jax
import mpijax.mpi.with_tokens as mpi4jax
from mpijax import lax, mpi
from mpijax import numpy as jnp
from mpijax.mpi._src.utils import HashableMPIType, unpack_hashable, wrap_as_hashable

pytestmark = [pytest.mark.mpi, pytest.mark.two_ranks]  # the operations are those of test_operations.py
RANK = jax.process_index()
AFTER, BEFORE = (RANK + 1) % SIZE, (RANK - 1) % SIZE
X = np.arange(3, dtype=np.float32) + RANK
ROWS = np.arange(2 * SIZE, dtype=np.int32).reshape(SIZE, 2) + 10 * RANK
ALL = np.stack([np.arange(3, dtype=np.float32) + r for r in range(SIZE)])

OPERATIONS = {
    "allgather": (lambda **token: mpi4jax.allgather(X, **token), ALL),
    "allreduce": (lambda **token: mpi4jax.allreduce(X, MPI.SUM, **token), ALL.sum(0)),
    "alltoall": (
        lambda **token: mpi4jax.alltoall(ROWS, **token),
        np.stack([np.array([2 * RANK, 2 * RANK + 1], np.int32) + 10 * r for r in range(SIZE)]),
    ),
    "bcast": (lambda **token: mpi4jax.bcast(X, 0, **token), ALL[0]),
    "gather": (lambda **token: mpi4jax.gather(X, 0, **token), ALL if RANK == 0 else X),
    "reduce": (lambda **token: mpi4jax.reduce(X, MPI.SUM, 0, **token), ALL.sum(0) if RANK == 0 else X),
    "scan": (lambda **token: mpi4jax.scan(X, MPI.SUM, **token), ALL[: RANK + 1].sum(0)),
    "scatter": (
        lambda **token: mpi4jax.scatter(ROWS if RANK == 0 else ROWS[0], 0, **token),
        np.array([2 * RANK, 2 * RANK + 1], np.int32),
    ),
    "sendrecv": (lambda **token: mpi4jax.sendrecv(X, X, BEFORE, AFTER, **token), ALL[BEFORE]),
}  # fmt: skip


@pytest.mark.parametrize("way", [lambda f: f, jax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_results_come_with_a_token(name, way):
    call, want = OPERATIONS[name]
    got, token = way(call)()
    again, handed_on = way(lambda token: call(token=token))(token)
    for result in (got, again):
        assert result.dtype == want.dtype
        np.testing.assert_array_equal(result, want)
    assert jax.typeof(handed_on) == jax.typeof(token) == jax.typeof(lax.create_token())


def test_messages_and_barriers_give_the_token_alone():
    token = mpi4jax.send(X, AFTER, tag=3)
    got, token = mpi4jax.recv(X, BEFORE, tag=3, token=token)
    np.testing.assert_array_equal(got, ALL[BEFORE])
    assert mpi4jax.barrier(token=token) is token
    assert not mpi4jax.has_cuda_support() and not mpi4jax.has_sycl_support()


def test_tokens_go_through_loops_and_derivatives():
    def step(token, x):
        y, token = mpi4jax.allreduce(x, MPI.SUM, token=token)
        return token, y

    _, ys = jax.jit(lambda xs: lax.scan(step, lax.create_token(), xs))(X)
    np.testing.assert_array_equal(ys, ALL.sum(0))
    grad = jax.grad(lambda x: mpi4jax.allreduce(jnp.sum(x**2), MPI.SUM)[0])(X)
    np.testing.assert_allclose(grad, 2 * X)


def test_automatic_tokens():
    @jax.jit
    @mpi4jax.experimental.auto_tokenize
    def around(x):
        mpi4jax.send(x, AFTER)
        return mpi4jax.recv(x, BEFORE)[0]

    np.testing.assert_array_equal(around(X), ALL[BEFORE])
    np.testing.assert_array_equal(mpi4jax.experimental.notoken.allreduce(X, MPI.MAX), ALL.max(0))


# ---------------------------------------------------------------- communicators as arguments


@pytest.mark.parametrize("wrap", [lambda comm: comm, wrap_as_hashable], ids=["mpi4py", "wrapped"])
def test_communicators_are_static_arguments(wrap):
    traced = []

    def total(x, comm, op):
        traced.append(None)
        assert unpack_hashable(comm).Get_size() in (1, SIZE)
        return mpi.allreduce(x, op, comm=comm)

    f = jax.jit(total, static_argnums=1, static_argnames="op")
    own = MPI.COMM_WORLD.Dup()
    for comm, op, want in [
        (MPI.COMM_WORLD, MPI.SUM, ALL.sum(0)), (own, MPI.SUM, ALL.sum(0)), (own, MPI.MAX, ALL.max(0)),
        (MPI.COMM_SELF, MPI.SUM, X), (own, MPI.SUM, ALL.sum(0)),
    ]:  # fmt: skip
        np.testing.assert_array_equal(f(X, wrap(comm), op=wrap(op)), want)
    assert len(traced) == 4  # the last is met again
    own.Free()
    fresh = MPI.COMM_WORLD.Dup()  # maybe with the handle of the one that was freed
    np.testing.assert_array_equal(f(X, wrap(fresh), op=wrap(MPI.SUM)), ALL.sum(0))
    fresh.Free()


def test_wrapped_objects_compare_by_what_they_hold():
    world = HashableMPIType(MPI.COMM_WORLD)
    assert world == wrap_as_hashable(MPI.COMM_WORLD) and hash(world) == hash(wrap_as_hashable(MPI.COMM_WORLD))
    assert world != HashableMPIType(MPI.COMM_SELF) and world != MPI.COMM_WORLD
    assert wrap_as_hashable(world) is world and unpack_hashable(MPI.SUM) is MPI.SUM
    status = MPI.Status()
    got = mpi.sendrecv(X, X, BEFORE, AFTER, status=wrap_as_hashable(status))
    np.testing.assert_array_equal(got, ALL[BEFORE])
    assert status.Get_source() == BEFORE


def test_other_static_arguments_still_need_a_hash():
    with pytest.raises(ValueError, match="Non-hashable static arguments"):
        jax.jit(lambda x, shape: x, static_argnums=1)(X, [1, 2])
