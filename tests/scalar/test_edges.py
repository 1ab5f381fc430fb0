"""Zeros, infinities, NaN, denormals: values and signs as NumPy's."""

import numpy as np
import pytest
from scalar.harness import run

SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -0.5, 2, -2, 3, -3, 1e-45, -1e-45, 1e30])

UNARY = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log1p": np.log1p,
    "sqrt": np.sqrt, "cbrt": np.cbrt, "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh,
    "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "neg": np.negative, "abs": np.abs,
    "sign": lambda x: np.where(x == 0, x, np.sign(x)), "floor": np.floor,
    "ceil": np.ceil, "is_finite": np.isfinite,
    "square": np.square,
}  # fmt: skip
BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "rem": np.fmod,
    "pow": np.power, "atan2": np.arctan2, "max": np.maximum, "min": np.minimum, "nextafter": np.nextafter,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}  # fmt: skip


def check(got, expected, signs=True):
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    known = ~np.isnan(expected)
    if signs:
        np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(expected[known]))


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", UNARY)
@pytest.mark.one_in(4)
def test_unary(name, dtype, lanes):
    x = SPECIAL.astype(dtype)
    with np.errstate(all="ignore"):
        check(run(name, x, lanes=lanes), UNARY[name](x), signs=name != "is_finite")


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", BINARY)
@pytest.mark.one_in(4)
def test_binary(name, dtype, lanes):
    x, y = (v.ravel() for v in np.meshgrid(SPECIAL.astype(dtype), SPECIAL.astype(dtype)))
    with np.errstate(all="ignore"):
        expected = BINARY[name](x, y)
        # The sign of max(0, -0) is anyone's.
        check(
            run(name, x, y, lanes=lanes),
            expected,
            signs=expected.dtype != bool and name not in ("max", "min"),
        )


@pytest.mark.parametrize("lanes", [1, 8])
def test_exponentials_that_vanish_beside_others(lanes):
    """Rare lanes of one vector: all of them zero, or some."""
    kinds = np.array([-np.inf, -1e30, -105.0, -100.0, -88.0, -3.0, 1.0, 88.5, 90.0, np.inf, np.nan], np.float32)
    rng = np.random.default_rng(0)
    rows = [rng.choice(kinds[[0, 1, 2, 5, 6]], 8 * 40), rng.choice(kinds, 8 * 400)]
    for x in rows:
        with np.errstate(all="ignore"):
            expected = np.exp(x.astype(np.float64)).astype(np.float32)
        got = run("exp", x, lanes=lanes)
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=2e-45)
        assert not np.signbit(got[~np.isnan(got)]).any()


def test_rounding_methods():
    x = np.array([0.5, 1.5, 2.5, -0.5, -2.5, 0.49999997, 8388609.0, np.inf], np.float32)
    np.testing.assert_array_equal(run("round", x, rounding_method=0), [1, 2, 3, -1, -3, 0, 8388609, np.inf])
    np.testing.assert_array_equal(run("round", x, rounding_method=1), [0, 2, 2, 0, -2, 0, 8388609, np.inf])


def test_exact_powers():
    np.testing.assert_array_equal(
        run("exp2", np.arange(-149.0, 128, dtype="f")), 2.0 ** np.arange(-149.0, 128)
    )
    np.testing.assert_array_equal(run("log2", 2.0 ** np.arange(-149.0, 128)), np.arange(-149.0, 128))


def test_integer_exponents():
    x = np.array([2.0, -3.0, 0.5, 0.0, -0.0], np.float32)
    np.testing.assert_array_equal(
        run("pow", x, np.array([10, 3, -2, -1, -3], np.int32)), [1024, -27, 4, np.inf, -np.inf]
    )
    np.testing.assert_allclose(run("integer_pow", x[:3], y=-3), x[:3] ** -3.0)
    np.testing.assert_array_equal(run("integer_pow", np.array([3, -2], np.int32), y=5), [243, -32])


def test_total_order():
    x = np.array([-np.nan, -np.inf, -1, -0.0, 0.0, 1, np.inf, np.nan], np.float32)
    x[0], x[-1] = np.array([0xFFC00000, 0x7FC00000], np.uint32).view(np.float32)
    a, b = (v.ravel() for v in np.meshgrid(np.arange(8), np.arange(8)))
    np.testing.assert_array_equal(run("lt_to", x[a], x[b]), a < b)
    np.testing.assert_array_equal(run("le_to", x[a], x[b]), a <= b)
    np.testing.assert_array_equal(run("eq_to", x[a], x[b]), a == b)


def test_select_and_clamp():
    x, y, z = (np.arange(3.0, dtype="f") + k for k in (0, 10, 20))
    np.testing.assert_array_equal(run("select_n", np.array([True, False, True]), x, y), [10, 1, 12])
    np.testing.assert_array_equal(run("select_n", np.array([2, 0, 1], np.int32), x, y, z), [20, 1, 12])
    np.testing.assert_array_equal(
        run("clamp", x * 0 + 1, np.array([0, np.nan, 9], "f"), x * 0 + 5), [1, np.nan, 5]
    )


def test_reduce_precision_is_bfloat16():
    import ml_dtypes

    x = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    got = run("reduce_precision", x, exponent_bits=8, mantissa_bits=7)
    np.testing.assert_array_equal(got, x.astype(ml_dtypes.bfloat16).astype(np.float32))
    assert run(
        "reduce_precision", np.array([1e5, -1e-8], "f"), exponent_bits=5, mantissa_bits=10
    ).tolist() == [np.inf, 0]
