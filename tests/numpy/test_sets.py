"""Distinct elements and set operations, partial sorts, sorting by keys."""

import numpy as np
import pytest
from numpy_oracle import check_error, check_jax, check_numpy, rows
from oracle import OURS, check, sample
from quickly import one_in

X = sample(3, 7)
TABLE = np.array([[3, 1, 2, 1], [3, 1, 2, 1], [0, 1, 5, 1]], np.int32)
A = np.array([3, 1, 4, 1, 5, 9, 2, 6], np.int32)
B = np.array([5, 8, 9, 7, 9, 3], np.int32)
GAPS = np.array([1, np.nan, 3, 2, np.nan, -1, 0.5], np.float32)

UNIQUES = rows("""
    n.unique(x)
    n.unique(x, True, True, True)
    n.unique(x, axis=0)
    n.unique(x, True, axis=0)
    n.unique(x, True, axis=1)
    n.unique(x[:0])
    n.unique(x[:0], True, True, True)
    n.unique(x > 1, return_counts=True)
    n.unique_all(x)
    n.unique_counts(x)
    n.unique_inverse(x)
    n.sort(n.unique_values(x))
""")


@pytest.mark.parametrize("source", UNIQUES)
@pytest.mark.one_in(3)
def test_unique(source):
    # How many there are depends on values, which jit does not know.
    check_numpy(source, jitted=False, x=TABLE)


@pytest.mark.parametrize("source", ["n.unique(x, True, True, True)", "n.unique_all(x)"])
def test_unique_nan(source):
    check_numpy(source, jitted=False, x=GAPS)


SIZED = rows("""
    n.unique(x, size=3)
    n.unique(x, True, True, True, size=7, fill_value=-1)
    n.unique(x, True, True, True, size=7)
    n.unique(x, axis=0, size=3, fill_value=9)
    n.unique_all(x, size=6, fill_value=0)
    n.unique(x[:0], size=2, fill_value=1)
    n.union1d(x, y, size=4)
    n.union1d(x, y, size=14, fill_value=-1)
    n.setdiff1d(x, y, size=8, fill_value=-1)
    n.setdiff1d(x[0], y, True, size=4)
    n.setxor1d(x, y, size=4)
    n.setxor1d(x, y, size=12)
    n.setxor1d(n.arange(4), n.arange(3), True, size=5, fill_value=9)
    n.intersect1d(x, y, size=2)
    n.intersect1d(x, y, size=5, return_indices=True)
    n.intersect1d(n.arange(5), n.arange(3, 7), True, True, size=4, fill_value=-1)
    n.intersect1d(x[:0], y[:0], size=2)
""")


@pytest.mark.parametrize("source", one_in(2, SIZED))
@pytest.mark.one_in(3)
def test_given_sizes(source):
    check_jax(source, x=TABLE, y=B)


SETS = rows("""
    n.union1d(x, y)
    n.union1d(x, y * 1.0)
    n.setdiff1d(x, y)
    n.setxor1d(x, y)
    n.setxor1d(x[:0], y[:0])
    n.intersect1d(x, y)
    n.intersect1d(x, y, return_indices=True)
    n.intersect1d(n.unique(x), n.unique(y), True, True)
    n.intersect1d(x[:0], y)
""")


@pytest.mark.parametrize("source", SETS)
def test_sets(source):
    check_numpy(source, jitted=False, x=A, y=B)


@pytest.mark.parametrize("method", ["auto", "compare_all", "binary_search", "sort"])
@pytest.mark.parametrize("invert", [False, True])
def test_isin(method, invert):
    expected = np.isin(A.reshape(2, 4), B, invert=invert)
    np.testing.assert_array_equal(OURS.numpy.isin(A.reshape(2, 4), B, invert=invert, method=method), expected)
    assert not np.any(OURS.numpy.isin(A, B[:0], method=method))


ERRORS = rows("""
    n.unique([1, 2])
    n.unique(x, axis=3)
    n.unique(x[:0], size=2)
    n.isin(x, x, method="bogus")
    J.jit(n.unique)(x)
    J.jit(n.union1d)(x, x)
    J.jit(n.setdiff1d)(x, x)
    J.jit(n.setxor1d)(x, x)
    J.jit(n.intersect1d)(x, x)
    n.partition(x, 9)
    n.partition(x + 1j, 1)
    n.argpartition(x + 1j, 1)
    n.lexsort(())
    n.lexsort((x, x[0]))
""")


@pytest.mark.parametrize("source", ERRORS)
def test_errors(source):
    check_error(source, x=TABLE)


def test_lengths_that_depend_on_values_are_explained():
    with pytest.raises(OURS.errors.ConcretizationTypeError, match=r"you can specify a concrete value for the size"):
        OURS.jit(OURS.numpy.unique)(A)


SORTS = rows("""
    n.sort_complex(x)
    n.sort_complex(x + 1j * x[::-1])
    n.lexsort((x[0], x[1]))
    n.lexsort(x, axis=0)
    n.lexsort((x, x[::-1]), axis=0)
""")


@pytest.mark.parametrize("source", SORTS)
def test_sorts(source):
    check_numpy(source, x=X)


PARTITIONS = rows("""
    n.partition(x, 3)
    n.partition(x, 1, axis=0)
    n.partition(x.astype("int8").astype("uint8"), 2)
    n.argpartition(x, -2, axis=0)
""")


@pytest.mark.parametrize("source", PARTITIONS)
def test_partitions(source):
    make = eval(f"lambda J: lambda x: J.numpy.{source[2:]}")
    check(make, X, jaxpr=False, jitted=False)
