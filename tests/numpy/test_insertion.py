"""Grids by indexing, insertion, deletion and updates, positions, choices, packed bits, functions along axes."""

import numpy as np
import pytest
from numpy_oracle import check_error, check_jax, check_numpy, rows
from oracle import OURS, sample
from quickly import one_in

X = sample(3, 7)
COUNTS = np.array([3, 1, 0, 3, 5, 1, 1], np.int32)

NUMPYS = rows("""
    n.mgrid[0:3, 1:5:2]
    n.mgrid[0:1:5j, 0:2]
    n.ogrid[0:3, 0:2.5:0.5]
    n.ogrid[1:3]
    n.r_[1:4, 7, x[0]]
    n.r_["0,2", x, x]
    n.r_["0,2,0", x[0], x[0]]
    n.r_["1,3,0", x[0], x[0]]
    n.c_[x[0], x[1]]
    n.c_[1:4, x[0, :3]]
    n.r_[-1:1:5j]
    n.ix_(x[0].astype(int), n.arange(3))
    n.delete(x, 1)
    n.delete(x, -1, 1)
    n.delete(x, slice(1, 5, 2), 1)
    n.insert(x, 1, 5.0)
    n.insert(x, 1, 5.0, axis=0)
    n.insert(x, 1, n.arange(3.0), axis=1)
    n.insert(x, n.array([1]), n.arange(3.0)[:, None], axis=1)
    n.insert(x, n.array([1, 3, 3]), n.arange(9.0).reshape(3, 3), axis=1)
    n.insert(x, slice(0, 3), 9.0, axis=1)
    n.insert(x[0], n.array([5, 1, 2]), n.array([1, 2, 3]))
    n.apply_along_axis(n.sort, 0, x)
    n.apply_along_axis(lambda v, k: v[:2] * k, 1, n.ones((2, 3, 4)), 3)
    n.apply_over_axes(n.sum, n.ones((2, 3, 4)), [0, 2])
    n.piecewise(x, [x < 0, x > 1], [lambda v: -v, lambda v: v * 2])
    n.piecewise(x, [x < 0, x > -1], [1, 2, 3])
    n.piecewise(x, [x < 0], [lambda v, k, m: v * k + m], 5.0, m=2.0)
""")


@pytest.mark.parametrize("source", one_in(3, NUMPYS))
@pytest.mark.one_in(3)
def test_values(source):
    check_numpy(source, x=X)


VALUE_DEPENDENT = rows("""
    n.delete(x, n.array([0, 0, -1]), 1)
    n.delete(x, n.arange(7) > 3, 1)
    n.compress(n.array([True, False, True]), x, axis=0)
    n.extract(x > 0, x)
""")


@pytest.mark.parametrize("source", VALUE_DEPENDENT)
def test_shapes_that_depend_on_values(source):
    check_numpy(source, jitted=False, x=np.asarray(X))


JAXS = rows("""
    n.delete(x, n.array([0, -1]), 1, assume_unique_indices=True)
    n.put(x, n.array([1, 5, 99]), n.array([7.0, 8.0]), inplace=False)
    n.put(x, n.array([1, 5, -99, 99]), n.array([7.0, 8.0]), mode="clip", inplace=False)
    n.put(x, n.array([1, 5, 99, -1]), n.array([7.0, 8.0]), mode="wrap", inplace=False)
    n.place(x, x > 0, n.array([1.0, 2, 3]), inplace=False)
    n.fill_diagonal(x, n.array([1.0, 2]), inplace=False)
    n.fill_diagonal(n.zeros((3, 3, 3), int), n.arange(3), inplace=False)
    n.compress(x[0] > 0, x, axis=1, size=4, fill_value=-1)
    n.extract(x > 0, x, size=5, fill_value=7)
    n.mask_indices(3, n.tril, 1, size=10)
""")


@pytest.mark.parametrize("source", one_in(2, JAXS))
@pytest.mark.one_in(2)
def test_values_as_jaxs(source):
    check_jax(source, x=X)


INTEGERS = rows("""
    n.ravel_multi_index((x, x), (6, 3), mode="clip")
    n.ravel_multi_index((x, x), (6, 3), mode="wrap", order="F")
    n.unravel_index(x, (2, 3))
    n.choose(x, [x, x * 10], mode="wrap")
    n.choose(x, [x, x * 1.5], mode="clip")
    n.packbits(x)
    n.packbits(x, bitorder="little")
    n.packbits(x[:, None] > 1, axis=0)
    n.unpackbits(x.astype("uint8"), bitorder="little", count=11)
    n.unpackbits(x.astype("uint8")[:, None], axis=1, count=10)
    n.unpackbits(x.astype("uint8")[:, None], axis=1, count=-2)
""")


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.one_in(3)
def test_integers(source):
    check_numpy(source, x=COUNTS)


def test_positions_are_checked_where_they_are_known():
    check_numpy("n.ravel_multi_index((x, x % 3), (6, 3))", jitted=False, x=COUNTS)
    check_numpy("n.choose(x % 2, [x, x * 10])", jitted=False, x=COUNTS)
    # Positions from the end count as such.
    np.testing.assert_array_equal(OURS.numpy.unravel_index(np.array([-1, 99, -99]), (2, 3)), [[1, 1, 0], [2, 2, 0]])
    traced = OURS.jit(OURS.numpy.unravel_index)(np.array([-1, 99, -99]), (2, 3))
    np.testing.assert_array_equal(traced, [[1, 1, 0], [2, 2, 0]])


ERRORS = rows("""
    n.r_["bad", x]
    n.r_[x, "r"]
    n.ix_(x[None])
    n.ix_(x > 0)
    n.delete(x, 9)
    n.delete(x, [0])
    n.delete(x, n.array([1.0]))
    n.delete(x, n.arange(3) > 3)
    J.jit(n.delete)(x, x)
    n.insert(x, n.array([[1]]), 9.0)
    n.insert(x, 1.5, 9.0)
    n.put(x, 1, 2)
    n.put(x, 1, 2, mode="raise", inplace=False)
    n.put(x, 1, 2, mode="a", inplace=False)
    n.place(x, x > 0, 1)
    n.place(x, x[:2] > 0, 1, inplace=False)
    n.place(x, x > 0, x[:0], inplace=False)
    n.fill_diagonal(x, 5.0)
    n.fill_diagonal(x, 5.0, inplace=False)
    n.fill_diagonal(x[None, :, None], 5.0, inplace=False)
    n.ravel_multi_index((x, x), (6, 3))
    n.ravel_multi_index((x, x * 1.0), (6, 3), mode="clip")
    n.ravel_multi_index((x, x), (6, 3), mode="bad")
    n.ravel_multi_index((x, x), (6, 3), order="K", mode="clip")
    n.ravel_multi_index((x,), (6, 3))
    n.ravel_multi_index((x, x % 3), (60, 300), dtype="int8")
    J.jit(lambda y: n.ravel_multi_index((y,), (6,)))(x)
    n.unravel_index(x, ((2, 3),))
    n.choose(x, [x, x])
    n.choose(x * 1.0, [x])
    n.choose(x, [x], mode="a")
    n.compress(x > 2, x[:3])
    n.compress(x > 2, x, size=9)
    n.compress(x[None] > 2, x)
    n.piecewise(x, [x < 1, x > 2], [1])
    n.packbits(x * 1.0)
    n.packbits(x, bitorder="a")
    n.unpackbits(x)
    n.apply_over_axes(lambda a, i: a[0, 0], n.ones((2, 3, 4)), [0, 2])
""")


@pytest.mark.parametrize("source", ERRORS)
@pytest.mark.one_in(4)
def test_errors(source):
    check_error(source, x=COUNTS)
