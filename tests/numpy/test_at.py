"""`x.at[index]` updates against JAX: Jaxprs, values, warnings, errors."""

# ruff: noqa: B023 (functions of loop variables are called before the next iteration)
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from oracle import OURS, THEIRS, check
from quickly import one_in

import mpijax
from mpijax import numpy as jnp

s_ = np.s_
X = (np.arange(60, dtype=np.float32).reshape(3, 4, 5) - 20) / 8
n = np.array([0, -1, 1])
mask = np.array([True, False, True])
OPERATIONS = ["set", "add", "subtract", "multiply", "mul", "divide", "power", "min", "max"]
INDICES = [
    s_[0], s_[-1], s_[1:], s_[::-1], s_[...], s_[None, ..., 2], s_[1:3, ::-1], s_[n], s_[n, n], s_[n, :, n],
    s_[:, n, 0], s_[mask], s_[np.ones((3, 4), bool)], s_[True], s_[False], s_[5], s_[n[:, None], n], s_[0:0],
    s_[[0, 1],], s_[()], s_[:, ::2, n],
]  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("index", INDICES, ids=repr)
@pytest.mark.parametrize("operation", ["set", "add"])
@pytest.mark.one_in(3)
def test_index(index, operation):
    check(lambda J: lambda x: getattr(J.numpy.asarray(x).at[index], operation)(1.5), X)


@pytest.mark.sweep
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("dtype", ["float32", "int32", "bfloat16"])
@pytest.mark.one_in(3)
def test_operation(operation, dtype):
    import ml_dtypes  # noqa: F401 (registers bfloat16)

    x = X.astype(dtype)
    for index in (s_[0], s_[n], s_[1:3, ::-1]):
        for value in (2, np.array(2, x.dtype)):
            check(lambda J: lambda x: getattr(J.numpy.asarray(x).at[index], operation)(value), x, rtol=1e-6)


@pytest.mark.parametrize(
    "how",
    [
        {"mode": "clip"},
        {"mode": "drop"},
        {"mode": "fill"},
        {"mode": "promise_in_bounds"},
        {"wrap_negative_indices": False},
        {"unique_indices": True, "indices_are_sorted": True},
        {"mode": "bogus"},
    ],
    ids=repr,
)
@pytest.mark.one_in(2)
def test_mode(how):
    for index in (s_[np.array([0, 7, -1])], s_[1], s_[9]):
        check(lambda J: lambda x: J.numpy.asarray(x).at[index].set(1.0, **how), X)


def test_updates_of_repeated_positions_add_up():
    index = np.array([1, 1, 1, 2])
    check(lambda J: lambda x: J.numpy.asarray(x).at[index].add(1.0), X[0])
    check(lambda J: lambda x: J.numpy.asarray(x).at[index].multiply(2.0), X[0])
    check(lambda J: lambda x: J.numpy.asarray(x).at[index].max(0.5), X[0])


def test_apply():
    check(lambda J: lambda x: J.numpy.asarray(x).at[1].apply(lambda v: v * v + 1), X)
    check(lambda J: lambda x: J.numpy.asarray(x).at[n].apply(J.numpy.negative), X)


def test_values_that_do_not_broadcast():
    check(lambda J: lambda x: J.numpy.asarray(x).at[n].set(np.ones(7, np.float32)), X)


def test_unsafe_cast_warns():
    for J in (THEIRS, OURS):
        with pytest.warns(FutureWarning, match="scatter inputs have incompatible types"):
            out = J.numpy.arange(3).at[0].set(J.numpy.float32(1.5))
        assert_array_equal(np.asarray(out), [1, 1, 2])


def test_assignment_says_what_to_do():
    with pytest.raises(TypeError, match=r"immutable.*x\.at\[idx\]\.set\(y\)"):
        OURS.numpy.zeros(3)[0] = 1


def test_representation():
    x = OURS.numpy.arange(2)
    assert repr(x.at) == "_IndexUpdateHelper(Array([0, 1], dtype=int32))"
    assert repr(x.at[0]) == "_IndexUpdateRef(Array([0, 1], dtype=int32), 0)"


@pytest.mark.parametrize("axis", one_in(2, [0, 1, -1, None]))
def test_put_along_axis(axis):
    for shape in ((2, 3), (1, 3), (2, 1), (4,)):
        indices = np.zeros(shape, int)
        check(lambda J: lambda x, i: J.numpy.put_along_axis(x, i, 9, axis, inplace=False), X[:2, :3, 0], indices)
    check(lambda J: lambda x: J.numpy.put_along_axis(x, np.zeros((2, 3), int), 9, axis), X[:2, :3, 0])


def test_gradients():
    for operation in ("set", "add", "multiply"):
        check(
            lambda J: J.grad(lambda x, y: (getattr(x.at[n[:2]], operation)(y) ** 2).sum(), argnums=(0, 1)),
            X[:, 0, 0],
            np.array([2.0, 3.0], np.float32),
            jaxpr=False,
            rtol=1e-6,
        )


CONDITIONS = [X[0], X[0] > 0, X[0, 0], np.float32(1), True]


@pytest.mark.parametrize("condition", one_in(2, CONDITIONS), ids=lambda c: str(np.shape(c)))
def test_where(condition):
    for x, y in ((X[0], 1.0), (1, 2.0), (X[0], X[0, 0]), (np.int32(1), X[0]), (1, 2), (X[0, :, :1], X[0, 0])):
        check(lambda J: lambda c, x, y: J.numpy.where(c, x, y), condition, x, y)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "how",
    [{}, {"size": 3}, {"size": 3, "fill_value": -1}, {"size": 2, "fill_value": (1, 2)}, {"size": 0},
     {"size": 30, "fill_value": -1}, {"size": 30}, {"size": 8, "fill_value": [1]}],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("function", ["nonzero", "where", "flatnonzero", "argwhere"])
@pytest.mark.one_in(3)
def test_nonzero(function, how):
    for x in (X[0], X[0] > 0, X[0, 0], np.float32(1), np.zeros((0, 2), np.float32)):
        check(lambda J: lambda x: getattr(J.numpy, function)(x, **how), x)


def test_axes_too_long_for_int32():
    """Indices have 64 bits then, without jax_enable_x64, too. Only types are computed: the array would have 3 GB."""
    x = mpijax.ShapeDtypeStruct((3_300_000_000,), np.int8)
    text = str(mpijax.make_jaxpr(lambda x: x.at[-1].set(5))(x))
    assert "3299999999:i64[]" in text
    assert "3000000000:i64[]" in str(mpijax.make_jaxpr(lambda x: x.at[3_000_000_000:].add(1))(x))
    some = np.array([-1, 3], np.int32)
    for f in (lambda x, i: x[i], lambda x, i: x.at[i].get(mode="clip"), lambda x, i: x.at[i].set(1)):
        assert "i64[2,1]" in str(mpijax.make_jaxpr(f)(x, some))
    floats = mpijax.ShapeDtypeStruct((3_300_000_000,), np.float32)
    assert mpijax.eval_shape(lambda x: x.at[-1].add(np.float64(1)), floats).dtype == np.float32


@pytest.mark.slow
def test_the_last_of_three_billion_elements():
    x = jnp.zeros(3_300_000_000, jnp.int8).at[-1].set(5)
    assert x[-1] == 5 and mpijax.jit(lambda x: x.at[3_000_000_000:].add(1)[3_299_999_999])(x) == 6
