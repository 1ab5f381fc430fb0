"""Sorting and searching against JAX."""

# ruff: noqa: B023 (functions of loop variables are called before the next iteration)
import numpy as np
import pytest
from oracle import OURS, check, sample
from quickly import one_in

from mpijax.ops.sorting.searchsorted import searchsorted_p

X = sample(3, 7)
ODD = np.array([1.0, np.nan, -0.0, 0.0, np.inf, -np.inf, 1.0, -2.0], np.float32)


@pytest.mark.sweep
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


@pytest.mark.sweep
@pytest.mark.parametrize("side", ["left", "right", "middle"])
@pytest.mark.parametrize("method", ["scan", "scan_unrolled", "sort", "compare_all", "bogus"])
@pytest.mark.one_in(2)
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


def odd_values(dtype, size, seed):
    """Values of a dtype, its extremes, zeros of both signs, infinities and NaN among them, some of them equal."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, size).astype(bool)
    dtype = OURS.numpy.dtype(getattr(OURS.numpy, dtype))
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        values = rng.integers(ends.min, ends.max, size, endpoint=True, dtype=dtype)
        return np.where(rng.random(size) < 0.3, rng.choice(np.array([ends.min, ends.max, 0, 1], dtype), size), values)
    values = np.round(rng.standard_normal(size) * 3, 1)
    special = rng.choice(np.array([np.nan, np.inf, -np.inf, 0.0, -0.0]), size)
    return np.where(rng.random(size) < 0.3, special, values).astype(dtype)


SEARCHED = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64".split()


@pytest.mark.parametrize("dtype", one_in(3, SEARCHED))
@pytest.mark.one_in(2)
def test_searches_are_numpys_in_rows_of_any_length(dtype):
    with OURS.enable_x64():
        for n in (0, 1, 8, 24, 25, 64, 65, 71, 72, 511, 513, 3000):
            row = odd_values(dtype, n, n)
            row = np.sort(row.astype(np.float32)).astype(row.dtype) if row.dtype.name == "bfloat16" else np.sort(row)
            for m in (0, 1, 7, 400):
                values = odd_values(dtype, m, m + 1)
                for side in ("left", "right"):
                    got = OURS.numpy.searchsorted(row, values, side=side)
                    assert got.dtype == np.int32
                    expected = searchsorted_p.reference(row, values, side=side, dtype=np.dtype(np.int32))
                    np.testing.assert_array_equal(got, expected, err_msg=f"{n} {m} {side}")


def test_searches_in_rows_that_are_not_sorted_stay_inside():
    for n, m in ((10, 5), (100, 5), (100, 200)):
        for side in ("left", "right"):
            found = np.asarray(OURS.numpy.searchsorted(odd_values("float32", n, 1), odd_values("float32", m, 2), side))
            assert ((found >= 0) & (found <= n)).all()


def test_searches_in_batches():
    search = OURS.numpy.searchsorted
    rows = np.sort(sample(4, 3, 30), axis=-1)
    values = sample(4, 3, 5, 2, seed=1)
    both = OURS.vmap(OURS.vmap(search))(rows, values)
    np.testing.assert_array_equal(both, [[search(r, v) for r, v in zip(*p, strict=True)] for p in zip(rows, values)])
    one_row = OURS.jit(OURS.vmap(search, in_axes=(None, 2), out_axes=1))(rows[0, 0], values[0])
    np.testing.assert_array_equal(one_row, np.moveaxis(search(rows[0, 0], values[0]), 2, 1))
    rows_alone = OURS.vmap(search, in_axes=(0, None))(rows[0], values[0, 0])
    np.testing.assert_array_equal(rows_alone, [search(r, values[0, 0]) for r in rows[0]])
    more_values = OURS.vmap(OURS.vmap(search), in_axes=(None, 0))(rows[0], values)
    np.testing.assert_array_equal(more_values, [[search(r, v) for r, v in zip(rows[0], vs, strict=True)] for vs in values])


def test_searches_are_constant_for_derivatives():
    row, values = np.sort(X[0]), X[1]
    f = lambda r, v: (OURS.numpy.searchsorted(r, v) * v).sum() + r.sum()
    np.testing.assert_array_equal(OURS.grad(f, argnums=1)(row, values), OURS.numpy.searchsorted(row, values))
    with pytest.raises(TypeError, match="sorted rows"):
        searchsorted_p.bind(row, values.astype(np.int32), side="left", dtype=np.dtype(np.int32))


def test_digitize():
    for bins in (np.array([-1.0, 0, 1]), np.array([1.0, 0, -1]), np.zeros(0)):
        for right in (False, True):
            check(lambda J: lambda x, b: J.numpy.digitize(x, b, right), X, bins.astype(np.float32), jaxpr=False)
