"""Every operation of mpijax.mpi by table, against the program of one process that has the values of all ranks."""

from __future__ import annotations

import numpy as np
import pytest
from mpi.table import RANK, ROOT, TABLE
from mpi4py import MPI
from spmd.ranks import SIZE, assert_same, draw, real

import mpijax as jax
from mpijax import lax, mpi
from mpijax import numpy as jnp

pytestmark = pytest.mark.mpi
DTYPES = ["bool", "int8", "uint16", "int64", "bfloat16", "float16", "float64", "complex64", "complex128"]
MOVES = [name for name in TABLE if not any(op in name for op in ("SUM", "PROD", "MAX", "MIN"))]
LOOSE = {"rtol": 2e-5, "atol": 2e-5}

every_operation = pytest.mark.parametrize("name", TABLE)


def values_for(row, dtype=None, batch=()):
    """Each rank's value; all ranks draw all of them. With ties for extrema where whole numbers are drawn."""
    if dtype is None:
        return [real((*row.shape(r), *batch), seed=r) for r in range(SIZE)]
    return [draw((*row.shape(r), *batch), dtype, seed=r) for r in range(SIZE)]


def close(got, want):
    assert_same(got, np.asarray(want), **LOOSE)


@every_operation
@pytest.mark.one_in(4)
def test_types(name):
    row = TABLE[name]
    with jax.enable_x64(True):
        for dtype in ["bool", "bfloat16", "complex128"] if name in MOVES else DTYPES:
            if "complex" in dtype and ("MAX" in name or "MIN" in name):
                continue
            if dtype == "bool" and name in ("exchange", "sendrecv-line"):  # they multiply
                continue
            values = values_for(row, dtype)
            if "PROD" in name and "float16" in dtype:
                values = [abs(v) + 1 for v in values]  # few bits: no cancellation
            want = row.model([jnp.asarray(v) for v in values])[RANK]
            rounding = {"rtol": 2e-2, "atol": 1e-2} if "float16" in dtype else {"rtol": 1e-6}
            assert_same(row.run(values[RANK]), want, **rounding)


@every_operation
@pytest.mark.one_in(4)
def test_jvp(name):
    row = TABLE[name]
    values = values_for(row)
    tangents = [np.cos(3 * v) for v in values]
    want, want_dot = jax.jvp(row.model, (values,), (tangents,))
    got, got_dot = jax.jvp(row.run, (values[RANK],), (tangents[RANK],))
    close(got, want[RANK])
    close(got_dot, want_dot[RANK])


def back(row, values, cts):
    """Cotangents in the program of one process: of a shared result there is only one."""
    _, vjp = jax.vjp(row.model, values)
    if row.shared:
        cts = [cts[0], *(jnp.zeros_like(c) for c in cts[1:])]
    return vjp(cts)[0]


def cotangents(row, values):
    outs = row.model(values)
    return [np.asarray(real(o.shape, seed=50 + (0 if row.shared else r))) for r, o in enumerate(outs)]


@every_operation
@pytest.mark.one_in(4)
def test_vjp(name):
    row = TABLE[name]
    values = values_for(row)
    cts = cotangents(row, values)
    want = back(row, values, cts)[RANK]
    close(jax.jit(lambda x, ct: jax.vjp(jax.jit(row.run), x)[1](ct)[0])(values[RANK], cts[RANK]), want)


@every_operation
@pytest.mark.one_in(4)
def test_derivative_of_a_gradient(name):
    """Forward over reverse, of a function that is not linear in what it sends."""
    row = TABLE[name]
    values = values_for(row)
    tangents, cts = [np.cos(3 * v) for v in values], cotangents(row, values)

    def mine(x):
        return jax.vjp(lambda x: jnp.sin(row.run(x * x)), x)[1](cts[RANK])[0]

    def whole(xs):
        model = type(row)(row.run, lambda xs: [jnp.sin(y) for y in row.model([x * x for x in xs])], shared=row.shared)
        return back(model, xs, cts)

    want = jax.jvp(whole, (values,), (tangents,))[1][RANK]
    got = jax.jvp(mine, (values[RANK],), (tangents[RANK],))[1]
    assert_same(got, np.asarray(want), rtol=2e-4, atol=2e-4)


@every_operation
@pytest.mark.one_in(4)
def test_vmap(name):
    row = TABLE[name]
    values = values_for(row, batch=(3,))
    want = [np.asarray(row.model([v[..., i] for v in values])[RANK]) for i in range(3)]
    close(jax.vmap(row.run, in_axes=-1)(values[RANK]), np.stack(want))


@every_operation
@pytest.mark.one_in(4)
def test_loops_and_branches(name):
    """A loop of each kind, and branches, give what the operation gives outside."""
    row = TABLE[name]
    xs = np.stack([values_for(row)[RANK] * k for k in (1, 2, 3)])
    want = np.stack([np.asarray(row.run(x)) for x in xs])

    @jax.jit
    def f(xs, n):
        ys = lax.scan(lambda i, x: (i + 1, row.run(x)), 0, xs)[1]
        last = lax.fori_loop(0, n, lambda i, y: row.run(xs[i]), jnp.zeros_like(ys[0]))
        chosen = [lax.cond(n > k, row.run, lambda x: row.run(x * 2), xs[0]) for k in (1, 5)]
        return ys, last, chosen

    ys, last, chosen = f(xs, 2)
    close(ys, want)
    close(last, want[1])
    close(chosen[0], want[0])
    close(chosen[1], np.asarray(row.run(xs[0] * 2)))


@every_operation
@pytest.mark.one_in(4)
def test_gradient_through_a_scan_and_a_branch(name):
    row = TABLE[name]
    xs = np.stack([values_for(row)[RANK] * k for k in (1, 2)])
    cts = np.stack([cotangents(row, values_for(row))[RANK]] * 2)
    want = np.stack([jax.vjp(row.run, x * x)[1](ct)[0] * 2 * x for x, ct in zip(xs, cts)])

    def f(xs):
        return lax.scan(lambda i, x: (i + 1, lax.cond(i >= 0, row.run, lambda x: row.run(x), x * x)), 0, xs)[1]

    close(jax.jit(lambda xs: jax.vjp(f, xs)[1](cts)[0])(xs), want)


@pytest.mark.parametrize("name", [n for n in TABLE if n not in ("exchange",) and "PROD" not in n
                                  and "MAX" not in n and "MIN" not in n])  # fmt: skip
def test_linear_transpose(name):
    row = TABLE[name]
    values = values_for(row)
    cts = cotangents(row, values)
    close(jax.linear_transpose(row.run, values[RANK])(cts[RANK])[0], back(row, values, cts)[RANK])


@pytest.mark.parametrize("name", ["allreduce-SUM", "allgather", "alltoall", "bcast", "sendrecv", "scan-SUM"])
@pytest.mark.parametrize("shape", [(), (0,), (0, 2), (40000,)], ids=str)
def test_shapes(name, shape):
    row = TABLE[name]
    shape = (SIZE, *shape) if name == "alltoall" else shape
    values = [real(shape, seed=r) for r in range(SIZE)]
    close(row.run(values[RANK]), row.model([jnp.asarray(v) for v in values])[RANK])


@pytest.mark.parametrize("name", MOVES)
def test_keys_move(name):
    row = TABLE[name]
    if name in ("exchange", "sendrecv-line"):
        pytest.skip("keys are not multiplied")
    values = [jax.random.split(jax.random.key(r), row.shape(r)) for r in range(SIZE)]
    want = row.model([jax.random.key_data(v) for v in values])[RANK]
    assert_same(jax.random.key_data(jax.jit(row.run)(values[RANK])), np.asarray(want))


def test_views_that_are_not_contiguous():
    values = [real((4, 6), seed=r) for r in range(SIZE)]
    assert_same(mpi.allgather(values[RANK].T[::2]), np.stack([v.T[::2] for v in values]))
    f = jax.jit(lambda x: mpi.bcast(x.T[::2, 1:], ROOT))
    assert_same(f(values[RANK]), values[ROOT].T[::2, 1:])


@pytest.mark.parametrize("op", ["LAND", "LOR", "LXOR", "BAND", "BOR", "BXOR"])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32"])
@pytest.mark.one_in(3)
def test_logic(op, dtype):
    values = [draw((5,), dtype, seed=r) for r in range(SIZE)]
    ufunc = {"LAND": np.logical_and, "LOR": np.logical_or, "LXOR": np.logical_xor,
             "BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor}[op]  # fmt: skip
    want = values[0] if SIZE > 1 or op.startswith("B") else values[0]
    for v in values[1:]:
        want = ufunc(want, v).astype(values[0].dtype)
    assert_same(mpi.allreduce(values[RANK], getattr(MPI, op)), want)
