"""What a rank holds: sums over ranks lie in the memory of their operands, transposes are gathered untransposed."""

from __future__ import annotations

import numpy as np
import pytest
from spmd.ranks import SIZE, P, assert_same, mesh_1d, real
from spmd.test_global_arrays import CLOSE, placed

import mpijax as jax
from mpijax import lax
from mpijax import numpy as jnp

pytestmark = [pytest.mark.mpi, pytest.mark.many_ranks]  # meshes of two axes

N = 12 * SIZE


def compiled(f, *args):
    return jax.jit(f).lower(*args).compile()


def temporaries(f, *args) -> int:
    return compiled(f, *args).memory_analysis().temp_size_in_bytes


def test_a_sum_over_ranks_is_made_in_place():
    x, w = placed([real((64, N)), real((N, 64), 1)], [P(None, "i"), P("i")], mesh_1d())
    assert temporaries(jnp.matmul, x, w) == 0
    assert_same(jax.jit(jnp.matmul)(x, w), np.asarray(real((64, N)) @ real((N, 64), 1)), **CLOSE)


def test_a_partial_result_that_is_read_again_stays():
    """The operand of the sum is a result as well, and read by what follows."""
    x = real((N, 256))

    def f(x):
        mine = x * 2
        total = lax.psum(mine, "i")
        return mine, total, mine.sum() + total.sum()

    specs = (P("i"), P(), P("i"))
    body = jax.shard_map(
        lambda x: (*f(x)[:2], f(x)[2][None]), mesh=mesh_1d(), in_specs=P("i"), out_specs=specs, check_vma=False
    )
    mine, total, both = jax.jit(body)(*placed([x], [P("i")], mesh_1d()))
    parts = 2 * x.reshape(SIZE, -1, 256)
    assert_same(mine, 2 * x)
    assert_same(total, parts.sum(0), **CLOSE)
    assert_same(both, parts.sum((1, 2)) + parts.sum(), rtol=1e-4, atol=1e-3)


def test_sums_that_go_as_one_and_are_read_later():
    """Packed, reduced where they lie, unpacked; in a loop as well."""
    x, y = real((N, 8)), real((N, 4), 1)

    def f(x, y):
        def turn(_, s):
            a, b = s
            return 0.5 * a + x.sum(0) * b.sum(), b + y.sum(0) / 8

        return lax.fori_loop(0, 3, turn, (jnp.zeros(8), jnp.ones(4)))

    got = jax.jit(f)(*placed([x, y], [P("i")] * 2, mesh_1d()))
    for g, w in zip(got, f(jnp.asarray(x), jnp.asarray(y)), strict=True):
        assert_same(g, w, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [N, N - 1])
def test_rows_against_rows(rows):
    """The transpose that a product gathers is never made: its rows are sent, and BLAS reads them as columns."""
    [x] = placed([real((N, 64))], [P("i")], mesh_1d())

    def f(x):
        return x[:rows] @ x[:rows].T

    assert_same(jax.jit(f)(x), real((N, 64))[:rows] @ real((N, 64))[:rows].T, **CLOSE)
    if rows == N and SIZE > 1:
        assert temporaries(f, x) == x.nbytes
        assert "transpose" not in compiled(f, x).as_text().partition("program:")[2]


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)])
@pytest.mark.parametrize("axis", [0, 1])
def test_transposes_that_are_gathered(order, axis):
    x = real((2 * SIZE + 1, 2 * SIZE + 1, 3))
    [arg] = placed([np.pad(x, [(0, -x.shape[0] % SIZE), (0, -x.shape[1] % SIZE), (0, 0)])], [P(*[None] * axis, "i")], mesh_1d())

    def f(x):
        turned = jnp.transpose(x[: 2 * SIZE + 1, : 2 * SIZE + 1], order)
        return jnp.einsum("abc,dbc->ad", turned[:1], turned), turned.sum(0)

    for g, w in zip(jax.jit(f)(arg), f(jnp.asarray(x)), strict=True):
        assert_same(g, w, rtol=1e-4, atol=1e-4)


def test_rows_come_from_their_owners_where_that_sends_no_more():
    """As many bytes as the table has: the table is not gathered."""
    [table] = placed([real((8 * SIZE, 16))], [P("i")], mesh_1d())
    at = np.arange(4 * SIZE, dtype=np.int32)
    assert_same(jax.jit(lambda t, at: t[at])(table, at), real((8 * SIZE, 16))[at])
    assert "allgather" not in compiled(lambda t, at: t[at], table, at).as_text()


def test_a_result_that_is_sent_from_what_it_is_a_part_of():
    """What is sent lies in another array, of which a kernel computes both: that one is stored too."""

    def body(x):
        total = (x * x).sum()
        part = jnp.stack([total, total]).reshape(1, 1, 2)[:, :, :1].reshape(1, 1)
        return part, lax.all_gather(part, "i")

    f = jax.shard_map(body, mesh=mesh_1d(), in_specs=P("i"), out_specs=(P("i"), P()), check_vma=False)
    parts, everyone = jax.jit(f)(*placed([np.arange(SIZE, dtype=np.float32)], [P("i")], mesh_1d()))
    squares = np.arange(SIZE, dtype=np.float32)[:, None] ** 2
    assert_same(parts, squares)
    assert_same(everyone, squares[:, None])


def test_work_on_whole_arrays_is_shared_by_the_ranks_that_read_parts_of_it():
    n = 64 * SIZE
    q, k = placed([real((n, 16)), real((n, 16), 1)], [P("i"), P()], mesh_1d())

    def f(q, k):
        scores = jnp.sin(k) @ k.T  # n x n, of which a rank reads n / SIZE rows
        return (q * (scores @ k)).sum(1)

    assert temporaries(f, q, k) < 1.5 * 4 * n * n / SIZE + 3 * k.nbytes
    whole = [np.asarray(real((n, 16))), np.asarray(real((n, 16), 1))]
    assert_same(jax.jit(f)(q, k), (whole[0] * (np.sin(whole[1]) @ whole[1].T @ whole[1])).sum(1), rtol=1e-4, atol=1e-2)
