"""Complex functions against extended precision, and at the edges against NumPy."""

import numpy as np
import pytest
from scalar.harness import run

FUNCTIONS = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt,
    "rsqrt": lambda z: 1 / np.sqrt(z), "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh,
    "cosh": np.cosh, "tanh": np.tanh, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "logistic": lambda z: 1 / (1 + np.exp(-z)),
    "square": np.square, "sign": lambda z: z / abs(z), "neg": np.negative, "abs": np.abs,
}  # fmt: skip
# |error| / |value| in units of the dtype's eps
BOUNDS = {"logistic": 8, "exp2": 4, "tan": 4, "tanh": 4, "expm1": 4}


def plane(dtype):
    rng = np.random.default_rng(0)
    z = rng.normal(0, 2, 2000) + 1j * rng.normal(0, 2, 2000)
    return np.concatenate([z, z * 1e-3, 1 + z * 1e-3]).astype(dtype)


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.one_in(4)
def test_accuracy(name, dtype):
    z = plane(dtype)
    exact = FUNCTIONS[name](z.astype(np.clongdouble))
    for lanes in (1, 8):
        error = np.abs(run(name, z, lanes=lanes) - exact) / np.abs(exact) / np.finfo(dtype).eps
        assert error.max() <= BOUNDS.get(name, 3), z[error.argmax()]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_arithmetic(dtype):
    x, y = plane(dtype)[:2000], plane(dtype)[1000:3000]
    for name, function in {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "div": np.divide,
        "pow": np.power,
    }.items():
        with np.errstate(all="ignore"):
            exact = function(x.astype(np.clongdouble), y.astype(np.clongdouble))
            size = np.maximum(np.abs(exact), np.finfo(dtype).tiny)
            error = np.abs(run(name, x, y) - exact) / size / np.finfo(dtype).eps
        bounded = np.abs(exact) < np.finfo(dtype).max / 2
        assert error[bounded].max() <= (60 if name == "pow" else 3), name


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "acos", "atanh", "sinh", "cosh"])
def test_finite_edges(name):
    points = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0]
    z = np.array([complex(a, b) for a in points for b in points])
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[name](z)
    got = run(name, z)
    np.testing.assert_allclose(got, expected, rtol=1e-14)
    # On a branch cut the sign of a zero decides.
    np.testing.assert_array_equal(np.signbit(got.imag), np.signbit(expected.imag))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", ["log", "log1p", "asin", "acos", "asinh", "acosh"])
@pytest.mark.one_in(3)
def test_logarithms_of_what_is_almost_too_large(name, dtype):
    sizes = [float(np.finfo(dtype).max) * f for f in (1, 0.5, 1e-3, 1e-10, 1e-18, 1e-25)]
    points = [s * x for s in sizes for x in (1, -1)] + [0.0, 3.0]
    z = np.array([complex(a, b) for a in points for b in points if a and b], dtype)
    exact = FUNCTIONS[name](z.astype(np.clongdouble))
    for lanes in (1, 8):
        got = run(name, z, lanes=lanes)
        np.testing.assert_allclose(got.real, exact.real.astype(got.real.dtype), rtol=4 * np.finfo(dtype).eps)
        np.testing.assert_allclose(got.imag, exact.imag.astype(got.imag.dtype), rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_exponentials_are_finite_where_that_of_the_real_part_is_not(dtype):
    largest = np.log(np.finfo(dtype).max)
    angle = np.array([1.3, -1.5, 1.57, 1e-3, np.pi / 2])
    z = (largest + [[0.1], [1.0], [5.0], [13.0]] + 1j * angle).astype(dtype)
    exact = np.exp(z.astype(np.clongdouble))
    got = run("exp", z.ravel()).reshape(z.shape)
    with np.errstate(over="ignore"):
        rounded = exact.astype(dtype)
    np.testing.assert_allclose(got.real, rounded.real, rtol=4 * np.finfo(dtype).eps)
    np.testing.assert_allclose(got.imag, rounded.imag, rtol=4 * np.finfo(dtype).eps)
    assert np.isfinite(rounded.real).sum() >= 5 and np.isinf(rounded.real).any()


def test_size_neither_overflows_nor_vanishes():
    z = np.array([3e38 + 1e38j, 1e-40 + 1e-41j, np.inf + np.nan * 1j, 0, 3 + 4j], np.complex64)
    z[2] = complex(np.inf, np.nan)
    np.testing.assert_allclose(
        run("abs", z), [np.hypot(3e38, 1e38), np.hypot(1e-40, 1e-41), np.inf, 0, 5], rtol=1e-5
    )


def test_zeros_stay_zero_where_factors_overflow():
    big, inf = 1e200, np.inf
    got = run("square", np.array([big + 1j * big, complex(inf, big), complex(big, -inf)]))
    np.testing.assert_array_equal(got.real, [0, inf, -inf])
    largest = float(np.finfo(np.float64).max)
    got = run("square", np.array([complex(largest, largest), complex(-largest, largest), complex(0, -inf)]))
    np.testing.assert_array_equal(got.real, [0, 0, -inf])
    got = run("cos", 1j * np.array([1e30, -1e30])), run("cosh", np.array([1e30, -1e30]) + 0j)
    np.testing.assert_array_equal(got, np.full((2, 2), complex(inf, 0)))


def test_division_needs_no_squares():
    x = np.array([1e300 + 1e300j, 1 + 1j, 1 + 0j])
    y = np.array([1e300 + 1e300j, 1e-300 + 1e-300j, 0])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(run("div", x, y), [1, 1e300, complex(np.inf, np.nan)])


def test_division_knows_infinities():
    """As C99 and XLA: an infinite number stays one whatever it is divided by, and divides to nothing."""
    inf, nan = np.inf, np.nan
    x = [1 + 0j, 2 - 3j, complex(inf, -inf), complex(-inf, nan), complex(inf, 1), complex(1, nan)]
    y = [complex(inf, nan), complex(-inf, inf), 1 + 0j, complex(0, 2), complex(nan, 1), complex(inf, 1)]
    got = run("div", np.array(x), np.array(y))
    np.testing.assert_array_equal(got.real, [0, 0, inf, nan, nan, nan])
    np.testing.assert_array_equal(got.imag, [0, 0, -inf, inf, nan, nan])


def test_order_and_equality():
    x = np.array([1 + 2j, 1 + 2j, 2 + 0j], np.complex64)
    y = np.array([1 + 3j, 1 + 2j, 1 + 9j], np.complex64)
    np.testing.assert_array_equal(run("eq", x, y), [False, True, False])
    np.testing.assert_array_equal(run("ne", x, y), [True, False, True])
    np.testing.assert_array_equal(run("max", x, y), [1 + 3j, 1 + 2j, 2])
    np.testing.assert_array_equal(run("conj", x), x.conj())
    np.testing.assert_array_equal(run("convert_element_type", x, new_dtype=np.dtype("f8")), x.real)
    np.testing.assert_array_equal(run("convert_element_type", x * 1j, new_dtype=np.dtype(bool)), [True] * 3)
    np.testing.assert_array_equal(run("complex", x.real.copy(), x.imag.copy()), x)
    np.testing.assert_array_equal(run("imag", x), x.imag)
    np.testing.assert_array_equal(run("real", x), x.real)


def test_angle_of_a_pair():
    rng = np.random.default_rng(5)
    y, x = (rng.normal(size=40) + 1j * rng.normal(size=40) for _ in range(2))
    want = -1j * np.log((x + 1j * y) / np.sqrt(x * x + y * y))
    np.testing.assert_allclose(run("atan2", y, x), want, rtol=1e-12)
    flat = run("atan2", y.real + 0j, x.real + 0j)
    np.testing.assert_allclose(flat.real, np.arctan2(y.real, x.real), rtol=1e-12)
