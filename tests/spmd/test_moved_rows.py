"""Operations that move rows of a split array: results, gradients, and the bytes that ranks send for them."""

from __future__ import annotations

import numpy as np
import pytest
from spmd.ranks import SIZE, P, assert_same, mesh_1d, mesh_2d, real

import mpijax as jax
from mpijax import NamedSharding
from mpijax import numpy as jnp
from mpijax.runtime.program.traffic import sent

pytestmark = pytest.mark.mpi
many = pytest.mark.skipif(SIZE == 1, reason="one rank has all of every array")

N = 12 * SIZE
X = real((N, 3))
ROWS = P("i")


def split(x, spec=ROWS, mesh=None):
    return jax.device_put(x, NamedSharding(mesh or mesh_1d(), spec))


def traffic(f, *xs):
    return sent(jax.jit(f).lower(*xs).compiler_ir())


def bytes_of(f, *xs):
    return sum(s.total for s in traffic(f, *xs))


def check(f, *xs, cut_off: int = 0, rtol: float = 1e-6):
    """Compares results, gradients and a batch of results on split arrays with those on whole arrays.

    The function receives each array without its first `cut_off` rows, so ranks have unequal parts.
    """

    def cut(*ys):
        return f(*(y[cut_off:] for y in ys))

    def loss(*ys):
        return jnp.sum(jnp.sin(cut(*ys)))

    ys = [split(x) for x in xs]
    assert_same(jax.jit(cut)(*ys), np.asarray(cut(*xs)), rtol=rtol, atol=1e-6)
    for got, want in zip(jax.jit(jax.grad(loss, range(len(xs))))(*ys), jax.grad(loss, range(len(xs)))(*xs), strict=True):
        assert_same(got, np.asarray(want), rtol=1e-5, atol=1e-5)
    batch = [np.stack([x, -x, 2 * x], 1) for x in xs]
    mapped = jax.vmap(cut, in_axes=1, out_axes=1)
    assert_same(jax.jit(mapped)(*map(split, batch)), np.asarray(mapped(*batch)), rtol=rtol, atol=1e-6)


# ---------------------------------------------------------------- copies


@pytest.mark.parametrize("cut_off", [0, 1])
@pytest.mark.parametrize("reps", [(2, 1), (3, 2), (SIZE + 2, 1), (1, 4), (0, 1)], ids=str)
def test_tiled(reps, cut_off):
    check(lambda x: jnp.tile(x, reps), X, cut_off=cut_off)


def test_tiled_along_two_split_axes():
    mesh = mesh_2d((SIZE // 2, 2) if SIZE % 2 == 0 else (SIZE, 1))
    x = real((N, N))
    for reps in ((2, 3), (SIZE + 1, 2)):
        got = jax.jit(lambda x: jnp.tile(x, reps))(split(x, P("i", "j"), mesh))  # noqa: B023
        assert_same(got, np.tile(x, reps))


@many
def test_a_tiled_array_stays_split():
    x = split(X)
    assert not any("gather" in s.kind for s in traffic(lambda x: jnp.tile(x, (2, 1)) if SIZE > 2 else x, x))
    assert bytes_of(lambda x: jnp.tile(x, (2, 1)), x) <= 2 * X.nbytes / SIZE
    for copies in (2, SIZE + 1):
        got = jax.jit(lambda x: jnp.tile(x, (copies, 1)))(x)  # noqa: B023
        assert not got.is_fully_replicated


@many
def test_a_whole_array_is_split_like_the_rows_written_into_it():
    def f(x):
        return jnp.zeros((N + SIZE, 3)).at[1 : N + 1].set(x)

    got = jax.jit(f)(split(X))
    assert_same(got, np.asarray(f(X)))
    assert not got.is_fully_replicated
    assert bytes_of(f, split(X)) < X.nbytes / 2
    few = jax.jit(lambda x: jnp.zeros((4 * N, 3)).at[:N].set(x))(split(X))
    assert few.is_fully_replicated
