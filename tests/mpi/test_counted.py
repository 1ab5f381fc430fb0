"""Blocks of different lengths whose counts are values of the program, beside the program of one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from mpi4py import MPI
from spmd.ranks import SIZE, assert_same, draw, real

import mpijax as jax
from mpijax import lax, mpi
from mpijax import numpy as jnp

pytestmark = [pytest.mark.mpi, pytest.mark.many_ranks]  # counts differ by rank
RANK = jax.process_index()
ROOT = SIZE - 1
ROWS = 4  # that each rank has, of which some count
CAPACITY = 2 * SIZE + 1
COUNTS = np.array([[(r + k + 1) % 3 for r in range(SIZE)] for k in range(3)], np.int32)  # three sets of them
SENDS = np.array([[[(a + 2 * b + k) % 3 for b in range(SIZE)] for a in range(SIZE)] for k in range(3)], np.int32)


def padded(rows, capacity):
    rows = jnp.concatenate(rows)
    return jnp.concatenate([rows, jnp.zeros((capacity - rows.shape[0], *rows.shape[1:]), rows.dtype)])


def joined(values, k):
    return padded([v[:c] for v, c in zip(values, COUNTS[k])], CAPACITY)


def parts(values, k, r):
    start = COUNTS[k][:r].sum()
    return padded([values[ROOT][start : start + COUNTS[k][r]]], ROWS)


def exchanged(values, k, r):
    starts = [SENDS[k][a][:r].sum() for a in range(SIZE)]
    return padded([values[a][s : s + SENDS[k][a][r]] for a, s in enumerate(starts)], CAPACITY)


@dataclass(frozen=True)
class Row:
    """run: of a rank's array and one of the sets of counts, as values; model: of all ranks' arrays."""

    run: Callable
    model: Callable
    counts: np.ndarray
    rows: Callable = lambda rank: ROWS


TABLE = {
    "allgatherv": Row(
        lambda x, c: mpi.allgatherv(x, c, capacity=CAPACITY),
        lambda values, k, r: joined(values, k), COUNTS,
    ),
    "gatherv": Row(
        lambda x, c: mpi.gatherv(x, c, ROOT, capacity=CAPACITY),
        lambda values, k, r: joined(values, k) if r == ROOT else values[r], COUNTS,
    ),
    "scatterv": Row(
        lambda x, c: mpi.scatterv(x, c, ROOT, capacity=ROWS), parts, COUNTS,
        lambda rank: CAPACITY if rank == ROOT else ROWS,
    ),
    "alltoallv": Row(
        lambda x, c: mpi.alltoallv(x, c[0], c[1], capacity=CAPACITY), exchanged,
        np.stack([SENDS[:, RANK], SENDS[:, :, RANK]], 1), lambda rank: CAPACITY,
    ),
}  # fmt: skip
every_operation = pytest.mark.parametrize("name", TABLE)


def drawn(row, batch=(), dtype=None):
    shapes = [(row.rows(r), 2, *batch) for r in range(SIZE)]
    return [real(s, seed=r) if dtype is None else draw(s, dtype, seed=r) for r, s in enumerate(shapes)]


def whole(row, k):
    return lambda values: [row.model(values, k, r) for r in range(SIZE)]


def close(got, want):
    assert_same(got, np.asarray(want), rtol=2e-5, atol=2e-5)


@every_operation
@pytest.mark.one_in(2)
def test_values(name):
    row = TABLE[name]
    for dtype in ("float32", "bool", "int8", "complex64", "bfloat16"):
        values = drawn(row, dtype=dtype)
        f = jax.jit(row.run)
        for k in (0, 1):
            want = row.model([jnp.asarray(v) for v in values], k, RANK)
            assert_same(f(values[RANK], row.counts[k]), want)
            assert_same(row.run(jnp.asarray(values[RANK]), row.counts[k]), want)


@every_operation
def test_in_a_loop_with_other_counts_each_turn(name):
    row = TABLE[name]
    values = drawn(row)
    f = jax.jit(lambda x, cs: lax.scan(lambda i, c: (i + 1, row.run(x, c)), 0, cs)[1])
    close(f(values[RANK], row.counts), np.stack([row.model(values, k, RANK) for k in range(3)]))


@every_operation
@pytest.mark.one_in(2)
def test_derivatives(name):
    """Forward, reverse, and forward over reverse."""
    row = TABLE[name]
    values, counts = drawn(row), row.counts[0]
    tangents = [np.cos(3 * v) for v in values]
    close(
        jax.jit(lambda x, t, c: jax.jvp(lambda x: row.run(x, c), (x,), (t,))[1])(values[RANK], tangents[RANK], counts),
        jax.jvp(whole(row, 0), (values,), (tangents,))[1][RANK],
    )
    cts = [real(o.shape, seed=50 + r) for r, o in enumerate(whole(row, 0)(values))]

    def back(run, x, ct):
        return jax.vjp(lambda x: jax.tree.map(jnp.sin, run(jax.tree.map(jnp.square, x))), x)[1](ct)[0]

    def mine(x, c):
        return back(lambda x: row.run(x, c), x, cts[RANK])

    close(jax.jit(mine)(values[RANK], counts), back(whole(row, 0), values, cts)[RANK])
    got = jax.jit(lambda x, t, c: jax.jvp(lambda x: mine(x, c), (x,), (t,))[1])(values[RANK], tangents[RANK], counts)
    want = jax.jvp(lambda xs: back(whole(row, 0), xs, cts), (values,), (tangents,))[1][RANK]
    assert_same(got, np.asarray(want), rtol=2e-4, atol=2e-4)


@every_operation
def test_vmap(name):
    row = TABLE[name]
    values = drawn(row, batch=(3,))
    examples = [[v[..., i] for v in values] for i in range(3)]
    close(
        jax.vmap(row.run, in_axes=(-1, None))(values[RANK], row.counts[1]),
        np.stack([row.model(v, 1, RANK) for v in examples]),
    )
    close(
        jax.vmap(row.run, in_axes=(-1, 0))(values[RANK], row.counts),
        np.stack([row.model(v, k, RANK) for k, v in enumerate(examples)]),
    )


def test_a_gradient_with_counts_that_are_computed():
    """Each rank sends its positive elements, as in a particle code; their squares have the gradient 2 x."""
    x = real((ROWS,), seed=RANK)

    @jax.jit
    @jax.grad
    def g(x):
        keep = x > 0
        order = jnp.argsort(~keep)
        counts = mpi.allgather(jnp.sum(keep))
        everyone = mpi.allgatherv(x[order], counts, capacity=ROWS * SIZE)
        return jnp.sum(everyone**2) / SIZE

    close(g(x), np.where(x > 0, 2 * x, 0))


def test_keys_and_zero_size():
    keys = jax.random.split(jax.random.key(RANK), ROWS)
    got = mpi.allgatherv(keys, COUNTS[0], capacity=CAPACITY)
    want = [jax.random.key_data(jax.random.split(jax.random.key(r), ROWS)) for r in range(SIZE)]
    assert_same(jax.random.key_data(got), joined(want, 0))
    assert mpi.allgatherv(jnp.zeros((ROWS, 0)), COUNTS[0], capacity=CAPACITY).shape == (CAPACITY, 0)
    assert mpi.allgatherv(jnp.zeros((0, 2)), [0] * SIZE, capacity=0).shape == (0, 2)


X = np.ones((ROWS, 2), np.float32)
ONE = np.ones(SIZE, np.int32)


@pytest.mark.parametrize("call, error, text", [
    (lambda: mpi.allgatherv(X, ONE, capacity=SIZE - 1), RuntimeError,
     rf"allgatherv on rank {RANK}: counts \[1.*\] make {SIZE} rows, more than the capacity of {SIZE - 1}"
     r"(.|\n)*test_counted.py"),
    (lambda: mpi.allgatherv(X, ONE * (ROWS + 1), capacity=99), RuntimeError,
     f"give rank {RANK} {ROWS + 1} rows, but its block has {ROWS} rows"),
    (lambda: mpi.alltoallv(X, -ONE, ONE, capacity=9), RuntimeError, "alltoallv on rank .* must not be negative"),
    (lambda: jax.jit(lambda c: mpi.allgatherv(X, c))(ONE), TypeError, r"abstract tracer was passed(.|\n)*capacity=\.\.\."),
    (lambda: jax.jit(lambda c: mpi.allgatherv(X, ONE, capacity=c))(3), TypeError, "capacity must be an int that is known"),
    (lambda: mpi.allgatherv(X, ONE, capacity=-1), ValueError, "capacity must not be negative, got -1"),
    (lambda: mpi.allgatherv(X, np.ones(SIZE + 1, int), capacity=1), ValueError, f"one for each of the {SIZE} ranks"),
    (lambda: mpi.allgatherv(X, np.ones(SIZE), capacity=1), ValueError, "counts must be integers"),
    (lambda: mpi.gatherv(np.float32(1), ONE, 0, capacity=1), ValueError, r"gatherv: input must have shape \(rows"),
])  # fmt: skip
def test_wrong_calls(call, error, text):
    with pytest.raises(error, match=text):
        call()
    MPI.COMM_WORLD.Barrier()
