"""Ragged products and exchanges against JAX."""

import numpy as np
import pytest
from oracle import OURS, THEIRS, sample

X, W = sample(6, 3), sample(4, 3, 2, seed=1)
SIZES = np.array([2, 0, 3, 0], np.int32)
A, TWO_SIZES = sample(2, 6, 3, seed=2), np.array([[2, 1, 3], [1, 0, 4]], np.int32)
# Numbers of a product: operands, sizes, axes.
PRODUCTS = {
    "rows": (X, W, SIZES, (((1,), (1,)), ((), ())), [0], [0]),
    "rows of a stack": (A, sample(3, 2, 3, 5), TWO_SIZES, (((2,), (2,)), ((0,), (1,))), [1], [0]),
    "contracted": (A, sample(2, 6, 5), TWO_SIZES, (((1,), (1,)), ((0,), (0,))), [1], []),
    "contracted, sizes for all": (A, sample(2, 6, 5), TWO_SIZES[0], (((1,), (1,)), ((0,), (0,))), [1], []),
    "batch": (A, sample(2, 3, 5), TWO_SIZES[0], (((2,), (1,)), ((0,), (0,))), [0], []),
}


def product(J, x, w, sizes, dot, ragged, groups):
    return J.lax.ragged_dot_general(x, w, sizes, J.lax.RaggedDotDimensionNumbers(dot, ragged, groups))


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.one_in(2)
def test_products_are_jaxs(name):
    theirs, ours = (product(J, *PRODUCTS[name]) for J in (THEIRS, OURS))
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_gradients_are_jaxs():
    def gradients(J):
        return J.grad(lambda x, w: (J.lax.ragged_dot(x, w, SIZES) ** 2).sum(), argnums=(0, 1))(X, W)

    for ours, theirs in zip(gradients(OURS), gradients(THEIRS), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_vmap_is_the_stacked_loop():
    xs = np.stack([X, X * 2])
    together = OURS.vmap(lambda x: OURS.lax.ragged_dot(x, W, SIZES))(xs)
    np.testing.assert_array_equal(together, np.stack([OURS.lax.ragged_dot(x, W, SIZES) for x in xs]))


@pytest.mark.parametrize(
    ("sizes", "ragged", "groups", "message"),
    [
        (SIZES[:3], [0], [0], "expected rhs group dimension size to be 3"),
        (SIZES.astype(np.float32), [0], [0], "subtype of np.integer"),
        (SIZES, [0, 1], [0], "exactly one lhs ragged dimension"),
        (SIZES, [5], [0], "lhs ragged dimension numbers to be nonnegative"),
        (SIZES, [1], [0], "requires zero group dimensions"),
        (np.ones((2, 4), np.int32), [0], [0], "expected group_sizes to have shape"),
    ],
)
def test_misfits_are_type_errors(sizes, ragged, groups, message):
    with pytest.raises(TypeError, match=message):
        product(OURS, X, W, sizes, (((1,), (1,)), ((), ())), ragged, groups)


def exchange(J, operand, output, *vectors):
    return J.vmap(lambda *args: J.lax.ragged_all_to_all(*args, axis_name="i"), axis_name="i")(operand, output, *vectors)


def test_exchange_is_what_the_messages_would_be():
    rng = np.random.default_rng(0)
    ranks, slices, rows = 3, 2, 20
    sizes = rng.integers(0, 4, (ranks, ranks * slices)).astype(np.int32)
    sizes[0, 1] = 0
    operand = rng.normal(size=(ranks, rows, 2)).astype(np.float32)
    output = rng.normal(size=(ranks, 30, 2)).astype(np.float32)
    starts = np.cumsum(sizes, axis=1).astype(np.int32) - sizes
    targets = np.zeros_like(sizes)
    expected, fill = output.copy(), [1] * ranks
    for source in range(ranks):
        for i in range(ranks * slices):
            to, n = i // slices, sizes[source, i]
            targets[source, i] = fill[to]
            expected[to, fill[to] : fill[to] + n] = operand[source, starts[source, i] :][:n]
            fill[to] += n + 1
    received = sizes.reshape(ranks, ranks, slices).swapaxes(0, 1).reshape(ranks, -1)
    got = exchange(OURS, operand, output, starts, sizes, targets, received)
    np.testing.assert_array_equal(got, expected)


def test_exchange_checks_its_vectors():
    v = np.zeros((2, 3), np.int32)
    with pytest.raises(ValueError, match="multiple of the axis size"):
        exchange(OURS, sample(2, 4), sample(2, 4), v, v, v, v)
    with pytest.raises(ValueError, match="same length"):
        exchange(OURS, sample(2, 4), sample(2, 4), v, v, v, v[:, :2])
    with pytest.raises(ValueError, match="same dtype"):
        exchange(OURS, sample(2, 4), sample(2, 4, 1), v, v, v, v)
