"""Arrays of few coordinates a point, whose short axes are written out inside of the vectorized loop."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import mpijax
import mpijax.numpy as jnp
from mpijax.compiler.loops.scheduling import scheduled
from mpijax.compiler.steps.planner import plan_program

DTYPES = ("f4", "i2", "u1", "c8", ml_dtypes.bfloat16, "?")


def numbers(dtype, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 5, shape).astype(dtype)


def neighbours(x, y, xp):
    """Each coordinate of x times the next one of y."""
    k = x.shape[1]
    return xp.stack([x[:, i] * y[:, (i + 1) % k] for i in range(k)], -1)


@pytest.mark.sweep
@pytest.mark.parametrize("k", [2, 3, 4, 5, 9])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.one_in(2)
def test_coordinates(dtype, k):
    for n in (7, 33, 100):
        x, y = numbers(dtype, n, k), numbers(dtype, n, k)[::-1].copy()
        np.testing.assert_array_equal(mpijax.jit(neighbours, static_argnums=2)(x, y, jnp), neighbours(x, y, np))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_repeats(dtype):
    x = numbers(dtype, 33, 6)
    for times in (2, 3, 4, 7):
        repeated = mpijax.jit(lambda x, times=times: jnp.repeat(jnp.repeat(x, times, 1), 2, 0))(x)
        np.testing.assert_array_equal(repeated, np.repeat(np.repeat(x, times, 1), 2, 0))


def test_two_results_of_which_one_is_made_of_the_other():
    x = numbers("i4", 65)

    def both(x):
        points = jnp.stack([x, -x, x + 1], -1)
        return points, points * points

    points, squares = mpijax.jit(both)(x)
    np.testing.assert_array_equal(points, np.stack([x, -x, x + 1], -1))
    np.testing.assert_array_equal(squares, np.asarray(points) ** 2)


CASES = {
    "cross": (jnp.cross, np.cross, (100, 3), (100, 3)),
    "matrices": (jnp.matmul, np.matmul, (50, 3, 3), (50, 3, 3)),
    "transposed": (lambda a, b: jnp.swapaxes(a @ b + a, 1, 2), lambda a, b: np.swapaxes(a @ b + a, 1, 2), (50, 3, 3), (50, 3, 3)),
    "rotated": (lambda a, x: jnp.einsum("nij,nj->ni", a, x), lambda a, x: np.einsum("nij,nj->ni", a, x), (50, 3, 3), (50, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(2)
def test_products(name):
    ours, theirs, *shapes = CASES[name]
    args = [numbers("f4", *shape) for shape in shapes]
    nests = plan_program(mpijax.make_jaxpr(ours)(*args), ()).nests
    assert any(scheduled(nest).written for nest in nests)
    np.testing.assert_allclose(mpijax.jit(ours)(*args), theirs(*args), atol=1e-5)
