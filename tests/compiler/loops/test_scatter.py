"""Scatters as loops: large arrays, whose places are fetched ahead, and windows, which are written as vectors."""

from __future__ import annotations

import numpy as np
import pytest

import mpijax
from mpijax import lax
from mpijax.compiler.loops.stores import PREFETCH_ABOVE
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.ops.indexing.scatter import scatter_max_p

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("n", (1, 23, 5000))
@pytest.mark.parametrize("size", (100, PREFETCH_ABOVE // 4 + 1))
def test_elements(size, n):
    """Repeated, negative and missing places; the last of several values stays."""
    x = RNG.normal(size=size).astype(np.float32)
    index = RNG.integers(-size, size + size // 8, n)
    values = RNG.integers(-8, 8, n).astype(np.float32)
    inside = index < size
    added, replaced = x.copy(), x.copy()
    np.add.at(added, index[inside], values[inside])
    for i, v in zip(index[inside], values[inside], strict=True):
        replaced[i] = v
    f = mpijax.jit(lambda x, i, v: (x.at[i].add(v), x.at[i].set(v)))
    got = f(x, index.astype(np.int32), values)
    np.testing.assert_allclose(got[0], added, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(got[1], replaced)


@pytest.mark.parametrize("width", (1, 3, 8, 37, 256))
def test_rows(width):
    x = RNG.normal(size=(50, width)).astype(np.float32)
    index = RNG.integers(0, 60, 200)
    values = RNG.integers(-8, 8, (200, width)).astype(np.float32)
    inside = index < 50
    wanted = x.copy()
    np.add.at(wanted, index[inside], values[inside])
    got = mpijax.jit(lambda x, i, v: x.at[i].add(v))(x, index.astype(np.int32), values)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-4)
    columns = mpijax.jit(lambda x, i, v: x.at[:, i].add(v))(x.T.copy(), index.astype(np.int32), values.T.copy())
    np.testing.assert_allclose(columns, wanted.T, rtol=1e-5, atol=1e-4)


def test_overlapping_windows_are_written_in_order():
    """Windows that share elements: each is written whole before the next one."""
    starts = np.array([[0], [3], [1], [30]], np.int32)
    windows = np.arange(40, dtype=np.float32).reshape(4, 10)
    wanted = np.zeros(32, np.float32)
    for [s], w in zip(starts[:3], windows, strict=False):
        wanted[s : s + 10] = w
    numbers = mpijax.lax.ScatterDimensionNumbers((1,), (), (0,))
    got = mpijax.jit(lambda x: mpijax.lax.scatter(x, starts, windows, numbers))(np.zeros(32, np.float32))
    np.testing.assert_array_equal(got, wanted)


def test_extrema_of_special_values():
    """NaN stays, and 0 is larger than -0, as in `maximum` and `minimum`."""
    values = np.array([0.0, -0.0, 1, -1, np.nan, np.inf, -np.inf, 2e-38], np.float32)
    old, new = (x.ravel() for x in np.meshgrid(values, values))
    places = np.arange(old.size)
    for scattered, whole in (("max", mpijax.numpy.maximum), ("min", mpijax.numpy.minimum)):
        got = mpijax.jit(lambda a, b, name=scattered: getattr(a.at[places], name)(b))(mpijax.numpy.asarray(old), new)
        want = np.asarray(mpijax.jit(whole)(old, new))
        np.testing.assert_array_equal(got, want)
        numbers = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(want)[numbers])


@pytest.fixture
def keep_largest():
    """`scatter_max` by another name: the compiler must learn from the record of its lowering what it does."""
    rules = {name: getattr(scatter_max_p, name) for name in ("type_rule", "reference", "jvp", "batch", "sharding")}
    yield Primitive("keep_largest", lower=scatter_max_p.lower, transpose=scatter_max_p.transpose, **rules)
    del registry["keep_largest"]


@pytest.mark.parametrize("at", ([1, 1, 3], [0]))
def test_a_scatter_of_another_name(keep_largest, at):
    """The second has one place, known when compiling."""
    x, index = np.arange(4, dtype=np.float32), np.array(at)[:, None]
    values = np.array([7.0, 5.0, -1.0], np.float32)[: len(at)]
    points = lax.ScatterDimensionNumbers((), (0,), (0,))
    eqn = mpijax.make_jaxpr(lambda x, i, v: lax.scatter_max(x, i, v, points))(x, index, values).eqns[-1]
    wanted = x.copy()
    np.maximum.at(wanted, at, values)
    np.testing.assert_array_equal(mpijax.jit(lambda x, v: keep_largest.bind(x, index, v, **eqn.params))(x, values), wanted)
