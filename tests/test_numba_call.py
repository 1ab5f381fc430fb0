"""Numba kernels in programs: how they take arrays, batches, loops, derivatives, and kernels that do not fit."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from oracle import OURS, sample
from quickly import one_in

X, XS = sample(3), sample(2, 3)
S = OURS.ShapeDtypeStruct
F3, SCALAR = S((3,), np.float32), S((), np.float32)


def like_first(*types):
    return types[0]


@numba.njit
def scale(x, factor, out):
    for i in range(x.shape[0]):
        out[i] = x[i] * factor


@numba.njit
def first_differences(x):
    return x[1:] - x[:-1]


@numba.njit
def moments(x, mean, squares):
    mean[()] = x.mean()
    for i in range(x.size):
        squares[i] = x[i] ** 2


@numba.njit
def largest(x):
    return x.max()


@numba.njit
def total_and_double(x):
    return x.sum(), x + x


@numba.njit
def shifted(x, by=1.0):
    return x + by


@numba.njit(parallel=True)
def parallel_double(x, out):
    for i in numba.prange(x.shape[0]):
        out[i] = 2 * x[i]


@numba.njit
def add_whatever(x, y):
    return x + y


@numba.vectorize
def hypotenuse(x, y):
    return (x * x + y * y) ** 0.5


@numba.guvectorize(["void(float32[:], float32[:])"], "(n)->(n)")
def running_sum(x, out):
    total = np.float32(0)
    for i in range(x.shape[0]):
        total += x[i]
        out[i] = total


FLOATS = numba.types.CPointer(numba.types.float32)


@numba.cfunc(numba.types.void(FLOATS, FLOATS, numba.types.int64, numba.types.int64))
def negate_c(x, out, n, m):
    for i in range(n):
        out[i] = -x[i]


@numba.cfunc(numba.types.void(FLOATS, FLOATS))
def first_c(x, out):
    out[0] = x[0]


@numba.njit
def outer_product(x, y, out):
    for i in range(x.shape[0]):
        for j in range(y.shape[0]):
            out[i, j] = x[i] * y[j]


CASES = [
    (scale, like_first, (X, np.float32(3)), X * 3),
    (scale, F3, (X, 3), X * 3),
    (first_differences, lambda x: S((x.shape[0] - 1,), x.dtype), (X,), np.diff(X)),
    (moments, (SCALAR, F3), (X,), (X.mean(), X**2)),
    (largest, SCALAR, (X,), X.max()),
    (total_and_double, {"a": SCALAR, "b": F3}, (X,), {"a": X.sum(), "b": 2 * X}),
    (shifted, F3, (X,), X + 1),
    (shifted, F3, (X, np.float32(2)), X + 2),
    (parallel_double, F3, (X,), X * 2),
    (hypotenuse, F3, (X, X), np.hypot(X, X)),
    (running_sum, F3, (X,), np.cumsum(X)),
    (negate_c, F3, (X,), -X),
    (first_c, SCALAR, (X,), X[0]),
    (outer_product, lambda x, y: S(x.shape + y.shape, x.dtype), (X, X[:2]), np.outer(X, X[:2])),
]


def assert_close(got, want):
    got, want = OURS.tree.leaves(got), OURS.tree.leaves(want)
    for g, w in zip(got, want, strict=True):
        assert g.shape == np.shape(w) and g.dtype == np.float32
        np.testing.assert_allclose(g, w, rtol=1e-6)


# By default: a function that writes, one that returns, two results, threads, a ufunc, a generalized ufunc, a C function.
OFTEN = (0, 2, 5, 8, 10, 11)


@pytest.mark.parametrize(
    "kernel, types, args, expected", [pytest.param(*c, marks=() if i in OFTEN else pytest.mark.slow) for i, c in enumerate(CASES)]
)
@pytest.mark.one_in(2)
def test_values(kernel, types, args, expected):
    f = OURS.numba_call(kernel, types)
    assert_close(f(*args), expected)
    assert_close(OURS.jit(lambda *xs: OURS.tree.map(lambda y: 2 * y, f(*xs)))(*args), OURS.tree.map(lambda y: 2 * y, expected))


@pytest.mark.parametrize("dtype", ["bool", "int8", "complex64"])
@pytest.mark.one_in(3)
def test_dtypes(dtype):
    @numba.njit
    def copy(x, out):
        for i in range(x.size):
            out[i] = x[i]

    x = np.array([0, 1, 1], dtype)
    out = OURS.jit(OURS.numba_call(copy, like_first))(x)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, x)


def test_one_compilation_serves_all_sizes():
    @numba.njit
    def double(x, out):
        for i in range(x.size):
            out[i] = 2 * x[i]

    f = OURS.jit(OURS.numba_call(double, like_first))
    for n in (0, 1, 5):
        np.testing.assert_array_equal(f(np.ones(n, np.float32)), np.full(n, 2))
    assert len(double.signatures) == 1


def test_views_are_made_contiguous():
    f = OURS.jit(lambda x: OURS.numba_call(outer_product, S((2, 3), np.float32))(x[:, 0], x.T[:, 1]))
    np.testing.assert_array_equal(f(XS), np.outer(XS[:, 0], XS.T[:, 1]))


def test_the_program_calls_it_without_python():
    text = OURS.jit(lambda x: OURS.numba_call(scale, like_first)(x + 1, 2.0) * 2).lower(X).compile().as_text()
    assert "native scale (" in text and "host" not in text
    jaxpr = str(OURS.make_jaxpr(OURS.numba_call(scale, F3))(X, 2.0))
    assert "numba_call[" in jaxpr and "kernel=scale" in jaxpr


# ---------------------------------------------------------------- batches, loops, derivatives


@pytest.mark.parametrize("method", ["sequential", "sequential_unrolled"])
def test_vmap_one_by_one(method):
    f = OURS.numba_call(scale, like_first, vmap_method=method)
    expected = XS * np.array([[2], [3]], np.float32)
    np.testing.assert_array_equal(OURS.jit(OURS.vmap(f, in_axes=(0, 0)))(XS, np.array([2, 3], np.float32)), expected)
    np.testing.assert_array_equal(OURS.vmap(f, in_axes=(1, None))(XS.T, np.float32(2)), XS * 2)


@pytest.mark.parametrize("method", [pytest.param("broadcast_all", marks=pytest.mark.slow), "expand_dims"])
@pytest.mark.slow  # by default tests above have vmap
def test_vmap_of_kernels_that_broadcast(method):
    f = OURS.vmap(OURS.numba_call(add_whatever, F3, vmap_method=method), in_axes=(0, None))
    np.testing.assert_array_equal(OURS.jit(f)(XS, X), XS + X)


@pytest.mark.parametrize(
    "f, expected",
    one_in(2, [
        (lambda x: OURS.lax.fori_loop(0, 5, lambda i, c: OURS.numba_call(scale, F3)(c, 2.0), x), X * 32),
        (lambda x: OURS.lax.scan(lambda c, v: (c + OURS.numba_call(largest, SCALAR)(v), c), np.float32(0), XS)[0] + x, XS.max(1).sum() + X),
        (lambda x: OURS.lax.cond(OURS.numba_call(largest, SCALAR)(x) > 99, lambda v: v, lambda v: OURS.numba_call(negate_c, F3)(v), x), -X),
        (lambda x: OURS.lax.while_loop(lambda c: OURS.numba_call(largest, SCALAR)(abs(c)) < 20, lambda c: OURS.numba_call(scale, F3)(c, 2.0), x), X * 16),
    ], rows=True),
)
@pytest.mark.one_in(2)
def test_in_loops_and_branches(f, expected):
    np.testing.assert_array_equal(OURS.jit(f)(X), expected)


def test_derivatives_given_by_the_user():
    @OURS.custom_jvp
    def scaled(x, factor):
        return OURS.numba_call(scale, like_first, vmap_method="sequential")(x, factor)

    @scaled.defjvp
    def _(primals, tangents):
        (x, factor), (t, t_factor) = primals, tangents
        return scaled(x, factor), t * factor + x * t_factor

    gradient = OURS.grad(lambda x, factor: (scaled(x, factor) ** 2).sum(), argnums=(0, 1))
    for form in (gradient, OURS.jit(gradient)):
        by_x, by_factor = form(X, np.float32(3))
        np.testing.assert_array_equal(by_x, 18 * X)
        np.testing.assert_array_equal(by_factor, 6 * (X**2).sum())
    np.testing.assert_array_equal(OURS.vmap(gradient, in_axes=(0, None))(XS, np.float32(3))[0], 18 * XS)


def test_side_effects_are_neither_merged_nor_dropped():
    def calls(**options):
        f = OURS.numba_call(largest, SCALAR, **options)
        text = OURS.jit(lambda x: (f(x), f(x), f(x) + f(x))[2]).lower(X).compile().as_text()
        return text.count("native largest")

    assert calls() == 1 and calls(has_side_effect=True) == 4


# ---------------------------------------------------------------- kernels that do not fit


@numba.njit
def unknown_method(x, out):
    out[0] = x.no_such_method()


@numba.njit
def fails_above(x, limit, out):
    if x.max() > limit:
        raise ValueError("above the limit")


@numba.njit
def checked_scale(x, factor, out):
    for i in range(x.shape[0]):
        out[i] = x[i] * factor


@numba.njit
def to_float(x):
    return x * 0.5


NAME_AND_PLACE = r"the kernel {} at .*test_numba_call\.py:\d+"


@pytest.mark.parametrize(
    "kernel, types, args, message",
    [
        (scale, (F3, F3), (X, 2.0), NAME_AND_PLACE.format("scale") + " takes 3 arguments. It was called with 2 arguments and 2 "),
        (scale, F3, (X,), "takes 3 arguments. It was called with 1 arguments and 1 declared result"),
        (hypotenuse, F3, (X,), "takes 2 arguments"),
        (unknown_method, F3, (X,), NAME_AND_PLACE.format("unknown_method") + r" does not compile for arguments float32\[:\] and for results to fill float32\[:\]. numba says:(.|\n)*no_such_method"),
        (outer_product, S((9,), np.float32), (X, X), r"does not compile .*float32\[:\], float32\[:\] and for results to fill float32\[:\]"),
        (to_float, S((3,), np.int32), (np.arange(3, dtype=np.int32),), NAME_AND_PLACE.format("to_float") + r" returns array\(float64, 1d, C\) for arguments int32\[:\], but the declared results are int32\[:\]"),
        (first_differences, S((2, 2), np.float32), (X,), r"returns array\(float32, 1d, C\).*declared results are float32\[:,:\]"),
        (total_and_double, F3, (X,), r"returns Tuple\(float32, array\(float32, 1d, C\)\)"),
        (largest, (SCALAR, SCALAR), (X,), "returns float32 for arguments|takes 1 arguments"),
        (negate_c, S((3,), np.int32), (X,), r"cfunc negate_c at .* must take \(float32\*, int32\*\)"),
        (scale.py_func, F3, (X, 2.0), r"is not compiled by numba. Decorate it with @numba.njit"),
        (3, F3, (X,), "3 of type int is not compiled by numba"),
        (largest, SCALAR, (OURS.numpy.ones(3, "bfloat16"),), "argument 0 .* has dtype bfloat16, which numba does not support"),
        (scale, 3.0, (X, 2.0), "Got 3.0 at position 0"),
    ],
)
@pytest.mark.one_in(3)
def test_kernels_that_do_not_fit_are_explained_while_tracing(kernel, types, args, message):
    with pytest.raises(TypeError, match=message):
        OURS.make_jaxpr(OURS.numba_call(kernel, types))(*args)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda t: t(OURS.numba_call(fails_above, like_first))(X, -5.0), OURS.errors.JaxRuntimeError, r"kernel fails_above at .*:\d+ raised ValueError: above the limit"),
        (lambda t: t(OURS.numba_call(first_differences, F3))(X), OURS.errors.JaxRuntimeError, r"first_differences at .* returned an array of shape \(2,\) for result #0, but declared is f32\[3\]"),
        (lambda t: t(OURS.numba_call(checked_scale, S((2,), np.float32), check_bounds=True))(X, 2.0), OURS.errors.JaxRuntimeError, "checked_scale at .* raised IndexError: index is out of bounds"),
        (lambda t: t(OURS.grad(lambda x: OURS.numba_call(largest, SCALAR)(x)))(X), ValueError, "largest at .* cannot be differentiated.*custom_jvp"),
        (lambda t: t(OURS.vmap(OURS.numba_call(largest, SCALAR)))(XS), NotImplementedError, "vmap is only supported for the numba_call primitive when vmap_method"),
        (lambda t: OURS.numba_call(scale, F3, vmap_method="all"), ValueError, "vmap_method must be one of"),
        (lambda t: OURS.numba_call(negate_c, F3, check_bounds=True)(X), ValueError, "check_bounds"),
        (lambda t: OURS.numba_call(scale, S((3,), np.float64))(X, 2.0), ValueError, "64-bit"),
    ],
)
@pytest.mark.parametrize("transform", [lambda f: f, OURS.jit])
@pytest.mark.one_in(3)
def test_what_goes_wrong_later_is_explained_too(call, error, message, transform):
    with pytest.raises(error, match=message):
        call(transform)


def test_checks_of_bounds_leave_results_as_they_are():
    assert_close(OURS.numba_call(checked_scale, F3, check_bounds=True)(X, np.float32(2)), X * 2)


def test_an_exported_program_cannot_hold_a_kernel():
    with pytest.raises(NotImplementedError, match="numba_call"):
        OURS.export.export(OURS.jit(OURS.numba_call(largest, SCALAR)))(F3).serialize()
