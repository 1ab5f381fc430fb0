"""mpijax.mpi: each rank's own values, eagerly and under transformations, between the user's mpi4py calls."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI
from spmd.ranks import DTYPES, SIZE, assert_same, draw, dtype_of, real, summed

import mpijax as jax
from mpijax import mpi
from mpijax import numpy as jnp

pytestmark = [pytest.mark.mpi, pytest.mark.many_ranks]  # permutations and groups

RANK = jax.process_index()
OPERATIONS = {
    "SUM": summed,
    "MAX": lambda a: np.max(a, axis=0),
    "MIN": lambda a: np.min(a, axis=0),
    "PROD": lambda a: np.prod(a, axis=0, dtype=a[0].dtype),
}
WAYS = {"eager": lambda f: f, "jit": jax.jit}


def all_values(shape, dtype="float32"):
    return [draw(shape, dtype, seed=r) for r in range(SIZE)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", ["float32", "int32", "bfloat16", "complex64", "uint8"])
@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.one_in(4)
def test_allreduce(op, dtype, way):
    if dtype == "complex64" and op in ("MAX", "MIN"):
        pytest.skip("complex numbers have no order")
    values = all_values((2, 3), dtype)
    f = WAYS[way](lambda x: mpi.allreduce(x, op=getattr(MPI, op)))
    want = np.asarray(OPERATIONS[op](values)).astype(dtype_of(dtype))
    assert_same(f(values[RANK]), want, rtol=1e-2 if dtype == "bfloat16" else 1e-6)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,), (70000,)], ids=str)
def test_shapes(shape):
    values = all_values(shape)
    assert_same(mpi.allreduce(values[RANK], op=MPI.SUM), np.asarray(summed(values)))
    assert_same(mpi.bcast(values[RANK], 0), values[0])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_bcast(dtype, way):
    values = all_values((3, 2), dtype)
    for root in range(SIZE):
        assert_same(WAYS[way](lambda x, root=root: mpi.bcast(x, root))(values[RANK]), values[root])


def test_barrier():
    mpi.barrier()
    assert_same(jax.jit(lambda x: (mpi.barrier(), x + 1, mpi.barrier())[1])(draw((2,))), draw((2,)) + 1)


def test_derivatives_of_allreduce():
    values = [real((3,), r) for r in range(SIZE)]
    x, t = values[RANK], np.cos(values[RANK])
    total, tangent = jax.jvp(lambda x: mpi.allreduce(x**2, op=MPI.SUM), (x,), (t,))
    assert_same(total, sum(v**2 for v in values), rtol=1e-5)
    assert_same(tangent, sum(2 * v * np.cos(v) for v in values), rtol=1e-4, atol=1e-5)
    # The transpose is the identity: of a loss that all ranks share, each one's gradient is its own part.
    g = jax.grad(lambda x: jnp.sum(jnp.sin(mpi.allreduce(x**2, op=MPI.SUM))))
    want = np.cos(sum(v**2 for v in values)) * 2 * x
    assert_same(g(x), want, rtol=1e-4, atol=1e-5)
    assert_same(jax.jit(g)(x), want, rtol=1e-4, atol=1e-5)


def test_transposes_of_allreduce():
    """Transposed once it is the identity, twice a sum again."""
    x = real((3,), RANK)

    def f(x):
        return mpi.allreduce(x, op=MPI.SUM)

    def back(ct):
        return jax.vjp(f, x)[1](ct)[0]

    assert_same(back(x), x)
    assert_same(jax.vjp(back, x)[1](x)[0], sum(real((3,), r) for r in range(SIZE)), rtol=1e-5, atol=1e-6)


def test_derivatives_of_bcast():
    """The root sent to all, so that what all give back is summed there; the others' values did not count."""
    x = real((3,), RANK)
    g = jax.grad(lambda x: jnp.sum((RANK + 1) * jnp.sin(mpi.bcast(x, 0))))(x)
    weight = SIZE * (SIZE + 1) / 2 if RANK == 0 else 0
    assert_same(g, (weight * np.cos(x)).astype(np.float32), rtol=1e-5)


def test_reductions_without_derivatives():
    op = MPI.Op.Create(lambda a, b, dtype: None, commute=True)
    with pytest.raises(NotImplementedError, match="op=user-defined has no derivative"):
        jax.grad(lambda x: mpi.allreduce(x, op=op))(np.float32(1.0))
    op.Free()


def test_vmap():
    values = all_values((4, 3))
    got = jax.vmap(lambda x: mpi.allreduce(x, op=MPI.SUM), in_axes=1, out_axes=1)(values[RANK])
    assert_same(got, summed(values))
    assert_same(jax.vmap(lambda x: mpi.bcast(x, SIZE - 1))(values[RANK]), values[-1])


def test_operations_by_name_and_communicators():
    values = all_values((2,))
    assert_same(mpi.allreduce(values[RANK], op="sum"), summed(values))
    half = MPI.COMM_WORLD.Split(RANK % 2, RANK)
    mine = [v for r, v in enumerate(values) if r % 2 == RANK % 2]
    assert_same(jax.jit(lambda x: mpi.allreduce(x, op=MPI.SUM, comm=half))(values[RANK]), summed(mine))
    assert_same(mpi.bcast(values[RANK], 0, comm=half), mine[0])
    half.Free()


def test_between_calls_of_mpi4py():
    """Our messages are on a communicator of their own: the user's never match them."""
    comm = MPI.COMM_WORLD
    values = all_values((3,))
    f = jax.jit(lambda x: mpi.allreduce(x, op=MPI.SUM))
    for k in range(3):
        request = comm.isend(RANK + k, dest=(RANK + 1) % SIZE, tag=k)
        total = f(values[RANK] + k)
        assert comm.recv(source=(RANK - 1) % SIZE, tag=k) == (RANK - 1) % SIZE + k
        request.wait()
        buffer = np.array(total)
        comm.Allreduce(MPI.IN_PLACE, buffer)
        assert_same(buffer, SIZE * (summed(values) + np.float32(SIZE * k)), rtol=1e-6)


def test_order_is_that_of_the_program():
    """Unused communication happens too: all ranks send the same messages in the same order."""
    values = all_values((2,))

    @jax.jit
    def f(x):
        a = mpi.allreduce(x, op=MPI.SUM)
        mpi.allreduce(x * 100, op=MPI.MAX)
        b = mpi.bcast(x, 0)
        return b, mpi.allreduce(a + b, op=MPI.MIN)

    b, c = f(values[RANK])
    assert_same(b, values[0])
    assert_same(c, summed(values) + values[0])


@pytest.mark.parametrize("call, error, text", [
    (lambda: mpi.allreduce(np.ones(2, np.float32), op="mean"), ValueError, "unknown reduction 'mean'"),
    (lambda: mpi.allreduce(np.ones(2, np.float32), op=3), TypeError, "op must be an operation of mpi4py"),
    (lambda: mpi.allreduce("text", op=MPI.SUM), TypeError, "allreduce takes an array or a scalar, got str"),
    (lambda: mpi.allreduce(np.ones(2, np.float32), op=MPI.SUM, comm=1), TypeError, "comm must be a communicator"),
    (lambda: mpi.bcast(np.ones(2, np.float32), SIZE), ValueError, "root must be a rank of the communicator"),
    (lambda: mpi.allreduce(np.ones(2, np.float32), op=MPI.BAND), TypeError, "does not support floating-point numbers"),
])  # fmt: skip
def test_wrong_calls(call, error, text):
    with pytest.raises(error, match=text):
        call()
