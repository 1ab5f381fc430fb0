"""Numba kernels and C functions of ranks: each its own shard, between messages, in the order of the program."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from ffi_library import library
from quickly import one_in
from spmd.ranks import SIZE, mesh_1d, whole

import mpijax as jax
from mpijax import lax
from mpijax.sharding import PartitionSpec as P

pytestmark = [pytest.mark.mpi, pytest.mark.two_ranks]  # each rank calls its own

X = np.arange(3.0 * SIZE, dtype=np.float32) + 1


@functools.cache
def kernel():
    import numba  # which takes long, and not all ranks that collect this test run it

    @numba.njit
    def add_index(x, start, out):
        for i in range(x.shape[0]):
            out[i] = x[i] + start + i

    return add_index


def numba_add(x):
    return jax.numba_call(kernel(), lambda x, start: x)(x, 3 * lax.axis_index("i"))


def c_double(x):
    return jax.ffi.ffi_call("scale", jax.ShapeDtypeStruct(x.shape, x.dtype))(x, factor=2.0)


@pytest.mark.parametrize(
    "f, expected",
    one_in(2, [
        (numba_add, X + np.arange(3 * SIZE)),
        (c_double, 2 * X),
        (lambda x: lax.fori_loop(0, 3, lambda i, c: c_double(c) + 0 * lax.psum(c, "i"), x), 8 * X),
        (lambda x: c_double(lax.psum(numba_add(x), "i")), np.tile(2 * (X + np.arange(3 * SIZE)).reshape(SIZE, 3).sum(0), SIZE)),
    ], rows=True),
)
def test_each_rank_calls_its_own(f, expected):
    library()
    run = jax.jit(jax.shard_map(f, mesh=mesh_1d(), in_specs=P("i"), out_specs=P("i"), check_vma=False))
    np.testing.assert_array_equal(whole(run(X)), expected)
