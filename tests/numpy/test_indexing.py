"""`x[...]`, take and take_along_axis against JAX: Jaxprs, values, errors."""

# ruff: noqa: B023 (functions of loop variables are called before the next iteration)
import numpy as np
import pytest
from oracle import check, sample
from quickly import one_in

import mpijax as jax

s_ = np.s_
X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)


class Arr:
    """Stands for an array of the library under test."""

    def __init__(self, value, dtype=np.int32):
        self.value = np.asarray(value, dtype)

    def __repr__(self):
        return f"Arr({self.value.tolist()}, {self.value.dtype})"

    def __getitem__(self, index):
        return Arr(self.value[index], self.value.dtype)


def built(index, J):
    """The index with arrays of library J."""
    if isinstance(index, tuple):
        return tuple(built(i, J) for i in index)
    return J.numpy.asarray(index.value) if isinstance(index, Arr) else index


j = Arr([0, 2, 1])
n = np.array([0, -1, 1])
mask = np.array([True, False, True])

STATIC = [
    s_[0], s_[-1], s_[5], s_[-7], s_[1:], s_[::2], s_[::-1], s_[2:0:-1], s_[...], s_[None], s_[:, None],
    s_[..., 0],
    s_[0, ..., None], s_[1, 2, 3], s_[0:0], s_[:, ::-2, 1:3], s_[None, ..., None, 1], s_[()], s_[4:10],
    s_[-2:],
    s_[np.int32(1)], s_[np.uint8(2)], s_[:, -3:-1, ::3],
]  # fmt: skip
ARRAYS = [
    s_[j], s_[n], s_[j, j], s_[j, :, j], s_[:, j, j], s_[0, :, j], s_[j, None, :, 0], s_[j[:, None], n],
    s_[j, ::2],
    s_[j, ::-1], s_[:, :, j[:1]], s_[[0, 1], :], s_[np.array(2)], s_[Arr(1)], s_[Arr(1, np.uint8), ::2],
    s_[Arr(1), 1:3, ::-1], s_[[],], s_[np.array([], int)], s_[0, j, None, j], s_[j, 0, :, None], s_[..., j],
    s_[1, ..., j], s_[Arr([[0, 1], [1, 0]]), 1:3], s_[j[0], j[1], None], s_[j, 1:3], s_[j, 3:1],
    s_[:, 2, 1:4:2],
    s_[Arr(7)], s_[Arr(-1)], s_[10, j],
]  # fmt: skip
MASKS = [
    s_[mask], s_[Arr(mask, bool)], s_[:, np.array([1, 0, 0, 1], bool)], s_[True], s_[None, True], s_[False],
    s_[np.ones((3, 4), bool)], s_[mask, 0], s_[[True, False, True],], s_[True, j], s_[j, True], s_[0, True],
]  # fmt: skip
BAD = [
    s_[0, 0, 0, 0], s_[..., ...], s_["a"], s_[1.0], s_[1.0:2], s_[::0], s_[np.array([1.0, 2.0])], s_[[0, 1]],
    s_[[0, slice(None)]], s_[mask[:2]], s_[object()], s_[np.array(1.0)], s_[{}],
]  # fmt: skip


@pytest.mark.parametrize("index", one_in(3, STATIC + ARRAYS + MASKS), ids=repr)
@pytest.mark.one_in(3)
def test_get(index):
    check(
        lambda J: lambda x: x[built(index, J)] if hasattr(x, "aval") else J.numpy.asarray(x)[built(index, J)],
        X,
    )


@pytest.mark.parametrize("index", BAD, ids=lambda index: repr(index).split(" at ")[0])
def test_bad_index(index):
    check(lambda J: lambda x: J.numpy.asarray(x)[index], X)


@pytest.mark.sweep
@pytest.mark.parametrize("i", [np.int32(1), np.int32(-1), np.uint8(2), np.int8(1)], ids=repr)
@pytest.mark.parametrize(
    "index",
    [
        lambda i: i,
        lambda i: (i, i),
        lambda i: (i, slice(1, 3)),
        lambda i: (slice(None), i, None),
        lambda i: (i, slice(None, None, 2)),
        lambda i: (slice(None, None, -1), i),
        lambda i: slice(i),
        lambda i: ([i, i],),
        lambda i: (..., i),
        lambda i: i > 0,
        lambda i: (1, i),
        lambda i: (5, i),
        lambda i: slice(0, None, i),
    ],
)
@pytest.mark.one_in(3)
def test_traced_scalar(index, i):
    check(lambda J: lambda x, i: x[index(i)], X, i, eager=False)


@pytest.mark.sweep
@pytest.mark.parametrize("i", [np.array([0, 1], np.int32), np.array([[0, 1], [2, 1]], np.uint8)], ids=["1d", "2d"])
@pytest.mark.parametrize(
    "index",
    [
        lambda i: i,
        lambda i: (i, i),
        lambda i: (i, slice(1, 3)),
        lambda i: (slice(None), i, None),
        lambda i: (i, slice(None, None, 2)),
        lambda i: (slice(None, None, -1), i),
        lambda i: ([i, i],),
        lambda i: (..., i, 0),
    ],
)
@pytest.mark.one_in(3)
def test_traced_array(index, i):
    check(lambda J: lambda x, i: x[index(i)], X, i, eager=False)


@pytest.mark.parametrize("index", [s_[0], s_[j], s_[:, j], s_[Arr(0)], s_[Arr([])]], ids=repr)
def test_empty_operand(index):
    check(lambda J: lambda x: J.numpy.asarray(x)[built(index, J)], np.zeros((0, 3), np.float32))


@pytest.mark.sweep
@pytest.mark.parametrize(
    "how",
    [
        {"mode": "fill"},
        {"mode": "fill", "fill_value": 3},
        {"mode": "clip"},
        {"mode": "drop"},
        {"mode": "promise_in_bounds"},
        {"wrap_negative_indices": False, "mode": "clip"},
        {"wrap_negative_indices": False, "mode": "fill"},
        {"unique_indices": True, "indices_are_sorted": True},
        {"mode": "bogus"},
        {"mode": "fill", "fill_value": [1, 2]},
    ],
    ids=repr,
)
@pytest.mark.parametrize("index", [s_[0], s_[-1], s_[9], s_[j], s_[Arr(2)], s_[Arr([0, 5, -1])], s_[j, 0]], ids=repr)
@pytest.mark.one_in(3)
def test_at_get(index, how):
    check(lambda J: lambda x: J.numpy.asarray(x).at[built(index, J)].get(**how), X)


@pytest.mark.sweep
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("mode", [None, "fill", "clip", "wrap", "raise", "bogus"])
@pytest.mark.one_in(2)
def test_take(axis, mode):
    for indices in (np.array([[0, 1], [2, -1]]), np.array([7, -9]), np.int32(1), np.zeros((0,), int)):
        check(lambda J: lambda x, i: J.numpy.take(x, i, axis, mode=mode), X, indices)


def test_take_fills_with_the_value_asked_for():
    for dtype in (np.float32, np.int32, np.uint8, bool):
        check(lambda J: lambda x, i: J.numpy.take(x, i, 0), X.astype(dtype), np.array([1, 9]))
    check(lambda J: lambda x, i: J.numpy.take(x, i, 0, fill_value=-1), X, np.array([1, 9]))


@pytest.mark.sweep
@pytest.mark.parametrize("axis", [0, 1, 2, -1, None])
@pytest.mark.parametrize(
    "shape", [(3, 4, 5), (1, 4, 5), (3, 1, 5), (3, 4, 1), (2, 4, 5), (1, 1, 1), (7,), (3, 4)], ids=repr
)
@pytest.mark.one_in(3)
def test_take_along_axis(axis, shape):
    indices = sample(*shape, dtype=np.int32)
    for how in ({}, {"mode": "clip"}, {"mode": "fill", "fill_value": 1.0}, {"mode": "one_hot"}):
        check(lambda J: lambda x, i: J.numpy.take_along_axis(x, i, axis, **how), X, indices)
    for x in (X[:1], X[:, :1]):
        check(lambda J: lambda x, i: J.numpy.take_along_axis(x, i, axis), x, indices.astype(np.uint8) % 3)


def test_iteration_and_unpacking():
    check(lambda J: lambda x: list(J.numpy.asarray(x)), X[0])
    check(lambda J: lambda x: [*J.numpy.asarray(x)][::-1], X[0, 0])
    check(lambda J: lambda x: list(J.numpy.asarray(x)), np.float32(1))


def test_gradient_of_indexing():
    for index in (s_[1:], s_[::-2], s_[n], s_[0, :, n], s_[mask]):
        check(lambda J: J.grad(lambda x: (x[index] ** 2).sum()), X)


def test_repeated_static_index_is_planned_once():
    import mpijax.numpy as jnp
    from mpijax.numpy.indexing import take as indexing

    x = jnp.arange(10.0)
    x[3:7]
    before = len(indexing._known)
    for _ in range(3):
        np.testing.assert_array_equal(x[3:7], np.arange(3.0, 7.0))
    assert len(indexing._known) == before


@pytest.mark.parametrize("dtype, n", [("int8", 192), ("int16", 40_000)])
def test_positions_of_few_bits_in_a_longer_axis(dtype, n):
    """JAX raises OverflowError, or takes another element for a negative position."""
    x, at = np.arange(n, dtype=np.float32), np.array([1, -2, 100], dtype)
    taken = jax.jit(lambda x, at: (x[at], x[at[1]], jax.lax.dynamic_slice(x, (at[1] - 1,), (2,)), x.at[at].set(-1)))(x, at)
    changed = x.copy()
    changed[at] = -1
    for got, want in zip(taken, (x[at], x[-2], x[-3:-1], changed), strict=True):
        np.testing.assert_array_equal(got, want)


def test_positions_of_four_bits():
    x = np.arange(6, dtype=np.float32)
    taken = jax.jit(lambda x, i: (x[i], x[i[1]], jax.lax.dynamic_slice(x, (i[1],), (2,))))(x, jax.numpy.asarray([2, -3], "int4"))
    for got, want in zip(taken, (x[[2, -3]], x[-3], x[3:5]), strict=True):
        np.testing.assert_array_equal(got, want)
