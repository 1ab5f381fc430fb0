"""Sorting and searching against JAX."""

# ruff: noqa: B023 (functions of loop variables are called before the next turn)
import numpy as np
import pytest
from oracle import OURS, check, sample

X = sample(3, 7)
ODD = np.array([1.0, np.nan, -0.0, 0.0, np.inf, -np.inf, 1.0, -2.0], np.float32)


@pytest.mark.parametrize("function", ["sort", "argsort"])
@pytest.mark.parametrize("axis", [-1, 0, None, 2])
def test_sort(function, axis):
    for how in ({}, {"descending": True}, {"stable": False}, {"kind": "quicksort"}):
        # Which of two equal elements comes first is nobody's promise without stability.
        jitted = how.get("stable", True) or function == "sort"
        check(lambda J: lambda x: getattr(J.numpy, function)(x, axis, **how), X, eager=False, jitted=jitted)


@pytest.mark.parametrize("function", ["sort", "argsort"])
def test_sort_dtypes(function):
    for x in (ODD, X.astype(np.int8), X > 0, ODD.astype(np.float16), ODD.astype(np.complex64)):
        check(lambda J: lambda x: getattr(J.numpy, function)(x), x)


@pytest.mark.parametrize("side", ["left", "right", "middle"])
@pytest.mark.parametrize("method", ["scan", "sort", "compare_all", "bogus"])
def test_searchsorted(side, method):
    for size in (0, 1, 2, 3, 7, 8, 9):
        a = np.sort(sample(size, seed=size))
        check(lambda J: lambda a, v: J.numpy.searchsorted(a, v, side=side, method=method), a, X, jaxpr=False)


def test_searchsorted_where_ranks_are_not_promoted():
    with OURS.numpy_rank_promotion("raise"):
        ours = OURS.numpy.searchsorted(np.sort(X[0]), X, method="compare_all")
    np.testing.assert_array_equal(ours, np.searchsorted(np.sort(X[0]), X))


def test_searchsorted_odd_values():
    a = np.sort(ODD)
    for side in ("left", "right"):
        check(lambda J: lambda a, v: J.numpy.searchsorted(a, v, side=side), a, ODD, jaxpr=False)
    check(lambda J: lambda a, v: J.numpy.searchsorted(a, v), np.arange(5), 2.5, jaxpr=False)
    check(lambda J: lambda a, v: J.numpy.searchsorted(a, v, sorter=np.argsort(X[0])), X[0], X[1], jaxpr=False)


def test_digitize():
    for bins in (np.array([-1.0, 0, 1]), np.array([1.0, 0, -1]), np.zeros(0)):
        for right in (False, True):
            check(lambda J: lambda x, b: J.numpy.digitize(x, b, right), X, bins.astype(np.float32), jaxpr=False)
