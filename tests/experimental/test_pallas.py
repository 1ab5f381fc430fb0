"""`jax.experimental.pallas`: the same kernels as in JAX, which interprets them."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.experimental.pallas
import jax.experimental.pallas.tpu
import jax.experimental.pallas.triton
import numpy as np
import pytest
from experimental.pallas_kernels import CASES

import mpijax
import mpijax.experimental.pallas
import mpijax.experimental.pallas.tpu
import mpijax.experimental.pallas.triton


def library(module):
    """A library, as the kernels of the table use it."""
    pallas = module.experimental.pallas

    def shape(*sizes, dtype="float32"):
        return module.ShapeDtypeStruct(sizes, module.numpy.dtype(dtype))

    return SimpleNamespace(
        jax=module, jnp=module.numpy, lax=module.lax, pl=pallas, pltpu=pallas.tpu, plgpu=pallas.triton,
        call=partial(pallas.pallas_call, interpret=True), shape=shape,
    )  # fmt: skip


OURS, THEIRS = library(mpijax), library(jax)


def agree(ours, theirs):
    assert str(mpijax.tree.structure(ours)) == str(jax.tree.structure(theirs))
    for a, b in zip(mpijax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        exact = np.dtype(a.dtype).kind in "iub"
        kind = a.dtype if exact else np.float64
        tolerance = 0 if exact else 2e-2 if a.dtype.itemsize < 4 else 2e-5
        np.testing.assert_allclose(np.asarray(a, kind), np.asarray(b, kind), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_kernels_are_those_of_jax(name):
    agree(CASES[name](OURS), CASES[name](THEIRS))
