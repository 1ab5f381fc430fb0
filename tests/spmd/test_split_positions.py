"""Positions, masks and counts that are split over ranks, outside of traces, where NumPy cannot read them."""

from __future__ import annotations

import numpy as np
import pytest
from spmd.ranks import SIZE, P, assert_same, mesh_1d, real, whole

import mpijax as jax
from mpijax import NamedSharding
from mpijax import numpy as jnp

pytestmark = [pytest.mark.mpi, pytest.mark.many_ranks]  # owners of positions

N = 6 * SIZE
K = np.random.default_rng(0).integers(0, 5, N)
X = np.random.default_rng(1).integers(-9, 9, N).astype(np.float32)


def split(x):
    return jax.device_put(x, NamedSharding(mesh_1d(), P("i")))


def _summed(k, x):
    out = np.zeros(k.max() + 1, x.dtype)
    np.add.at(out, k, x)
    return out


# name: (the function, the same in NumPy), of integers k and floats x
CASES = {
    "read": (lambda k, x: x[k], lambda k, x: x[k]),
    "read from whole": (lambda k, x: jnp.asarray(X)[k], lambda k, x: X[k]),
    "sorted": (lambda k, x: x[jnp.argsort(x)], lambda k, x: np.sort(x)),
    "add": (lambda k, x: jnp.zeros(5).at[k].add(x), lambda k, x: np.r_[_summed(k, x), np.zeros(5)][:5]),
    "power": (lambda k, x: 2**k, lambda k, x: 2**k),
    "where": (lambda k, x: jnp.where(x > 0)[0], lambda k, x: np.where(x > 0)[0]),
    "argwhere": (lambda k, x: jnp.argwhere(x > 0), lambda k, x: np.argwhere(x > 0)),
    "repeat": (lambda k, x: jnp.repeat(x, k), lambda k, x: np.repeat(x, k)),
    "bincount": (lambda k, x: jnp.bincount(k), lambda k, x: np.bincount(k)),
    "histogram2d": (lambda k, x: jnp.histogram2d(x, k, 3)[0], lambda k, x: np.histogram2d(x, k, 3)[0]),
    "choose": (lambda k, x: jnp.choose(k % 2, [x, -x]), lambda k, x: np.choose(k % 2, [x, -x])),
    "ravel": (lambda k, x: jnp.ravel_multi_index((k, k), (5, 5)), lambda k, x: np.ravel_multi_index((k, k), (5, 5))),
    "list": (lambda k, x: jnp.array([x, -x]), lambda k, x: np.array([x, -x])),
    "delete": (lambda k, x: jnp.delete(x, k), lambda k, x: np.delete(x, k)),
    "trim": (lambda k, x: jnp.trim_zeros(x * (k > 2)), lambda k, x: np.trim_zeros(x * (k > 2))),
    "segments": (lambda k, x: jax.ops.segment_sum(x, k), _summed),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(3)
def test_split_positions_are_read_by_operations(name):
    here, numpy = CASES[name]
    want = np.asarray(numpy(K, X))
    got = here(split(K), split(X))
    assert_same(got, want.astype(got.dtype))


@pytest.mark.parametrize("mode", ["promise_in_bounds", "clip", "fill"])
def test_rows_of_truth_values_come_from_their_owners(mode):
    x = np.random.default_rng(2).random((N, 3)) > 0.5
    rows = np.array([0, N - 1, 2, N // 2])
    assert_same(split(x).at[rows].get(mode=mode), x[rows])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "int8", "complex64", "bool"])
def test_rows_come_from_their_owners_bit_by_bit(dtype):
    """A sum of parts of which one is not 0 made 0.0 of -0.0, and there is none of float8."""
    x = np.repeat(np.array([-0.0, 1.5, 0.0, -2.0] * N)[:N, None], 3, 1).astype(jnp.dtype(dtype))
    x = x.conj() if dtype == "complex64" else x
    rows = np.array([0, N - 1, 2, N // 2])
    got = jnp.take(split(x), rows, axis=0)
    assert whole(got).tobytes() == x[rows].tobytes()
    alike = jax.jit(lambda x, at: x[at // 2])(split(x), split(np.arange(N)))
    assert whole(alike).tobytes() == x[np.arange(N) // 2].tobytes()
    window = jax.jit(lambda x, at: jax.lax.dynamic_slice_in_dim(x, at, 2))(split(x), 4)
    assert whole(window).tobytes() == x[4:6].tobytes()


@pytest.mark.parametrize("largest", [True, False])
def test_largest_and_smallest_of_complex_numbers(largest):
    """By real part, then by imaginary part, which MPI does not compare."""
    x = (real((N, 3)) // 0.5 + 1j * real((N, 3), 1)).astype(np.complex64)
    f = jax.jit(lambda x: [(jnp.max if largest else jnp.min)(x, axis=axis) for axis in (0, 1, None)])
    for got, want in zip(f(split(x)), f(jnp.asarray(x)), strict=True):
        assert_same(got, want)
