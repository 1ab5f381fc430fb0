"""Kernels of Pallas on parts of arrays over ranks. Apart from test_pallas.py: the ranks need no JAX."""

import numpy as np
import pytest
from experimental.pallas_kernels import data, library, matmul

import mpijax
import mpijax.numpy as jnp
from mpijax.experimental import multihost_utils
from mpijax.experimental import pallas as pl

pytestmark = [pytest.mark.mpi, pytest.mark.two_ranks]  # a kernel is of one rank


def test_kernels_on_ranks():
    ranks = mpijax.device_count()
    mesh = mpijax.make_mesh((ranks,), ("x",))
    f = matmul(library(mpijax))
    a, b = data(ranks, 3, 4), data(4, 4, seed=1)
    x = mpijax.device_put(jnp.asarray(a).reshape(ranks * 3, 4), mpijax.NamedSharding(mesh, mpijax.P("x")))
    mapped = mpijax.jit(mpijax.shard_map(f, mesh=mesh, in_specs=(mpijax.P("x"), mpijax.P()), out_specs=mpijax.P("x")))
    np.testing.assert_allclose(everything(mapped(x, b)), (a @ b).reshape(-1, 4), rtol=1e-5, atol=1e-5)
    gradient = mpijax.jit(mpijax.grad(lambda b, x: jnp.sum(mapped(x, b))))(b, x)
    np.testing.assert_allclose(everything(gradient), np.outer(a.sum((0, 1)), np.ones(4)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", list(mpijax.sharding.AxisType)[:2])
def test_kernels_on_arrays_over_ranks(kind):
    ranks = mpijax.device_count()
    mesh = mpijax.make_mesh((ranks,), ("x",), axis_types=(kind,))
    a = data(ranks * 3, 4)
    x = mpijax.device_put(jnp.asarray(a), mpijax.NamedSharding(mesh, mpijax.P("x")))

    def kernel(x, o, total):
        o[...] = jnp.sin(x[...])
        total[...] = jnp.where(pl.program_id(0) == 0, 0, total[...]) + x[...]

    row = pl.BlockSpec((1, 4), lambda i: (i, 0))
    f = pl.pallas_call(
        kernel, (mpijax.ShapeDtypeStruct(a.shape, a.dtype), mpijax.ShapeDtypeStruct((1, 4), a.dtype)), grid=ranks * 3,
        in_specs=[row], out_specs=(row, pl.BlockSpec((1, 4), lambda i: (0, 0))),
    )  # fmt: skip
    sines, total = mpijax.jit(f)(x)
    np.testing.assert_allclose(everything(sines), np.sin(a), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(everything(total), a.sum(0, keepdims=True), rtol=1e-4, atol=1e-5)


def everything(x):
    """An array over ranks, whole."""
    return multihost_utils.process_allgather(x, tiled=True)
