"""Narrow floats: every operation equals ml_dtypes' own (compute in float32, round once)."""

import ml_dtypes
import numpy as np
import pytest
from quickly import one_in
from scalar.harness import run

NARROW = [
    np.dtype(t)
    for t in (
        np.float16,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e4m3fnuz,
        ml_dtypes.float8_e5m2fnuz,
        ml_dtypes.float8_e4m3b11fnuz,
        ml_dtypes.float8_e4m3,
        ml_dtypes.float8_e3m4,
        ml_dtypes.float8_e8m0fnu,
        ml_dtypes.float6_e3m2fn,
        ml_dtypes.float6_e2m3fn,
        ml_dtypes.float4_e2m1fn,
    )
]


def every_value(dtype):
    return np.arange(2 ** ml_dtypes.finfo(dtype).bits, dtype=f"u{dtype.itemsize}").view(dtype)


def same(got, expected):
    assert got.dtype == expected.dtype
    known = ~np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), ~known)
    raw = f"u{got.itemsize}"
    np.testing.assert_array_equal(got.view(raw)[known], expected.view(raw)[known])


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.one_in(4)
def test_every_value_survives(dtype, lanes):
    x = every_value(dtype)
    same(run("copy", x, lanes=lanes), x)
    with np.errstate(invalid="ignore"):
        same(run("convert_element_type", x, lanes=lanes, new_dtype=np.dtype("f4")), x.astype(np.float32))


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.one_in(4)
def test_rounding_of_floats(dtype, lanes):
    x = every_value(dtype).astype(np.float32)
    x = x[np.isfinite(x)]
    ties = x[:-1] / 2 + x[1:] / 2
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [
            x,
            ties,
            np.nextafter(ties, np.float32(9)),
            rng.normal(0, 1, 5000).astype("f") ** 9,
            [np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-40, -0.0],
        ]
    ).astype(np.float32)
    with np.errstate(all="ignore"):
        same(run("convert_element_type", x, lanes=lanes, new_dtype=dtype), x.astype(dtype))


@pytest.mark.parametrize("dtype", one_in(3, NARROW), ids=str)
def test_arithmetic(dtype):
    rng = np.random.default_rng(1)
    values = every_value(dtype)
    x, y = (values[rng.integers(0, len(values), 20_000)] for _ in range(2))
    for name, function in {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}.items():
        with np.errstate(all="ignore"):
            expected = function(x.astype(np.float32), y.astype(np.float32)).astype(dtype)
        same(run(name, x, y), expected)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_sign_changes(dtype):
    x = every_value(dtype)
    with np.errstate(invalid="ignore"):
        same(run("neg", x), (-x.astype(np.float32)).astype(dtype))


@pytest.mark.parametrize("name, function", [("exp", np.exp), ("tanh", np.tanh), ("log", np.log)])
@pytest.mark.parametrize("dtype", NARROW[:2], ids=str)
def test_functions_are_rounded_once(dtype, name, function):
    x = every_value(dtype)
    with np.errstate(all="ignore"):
        exact = function(x.astype(np.float64))
        got = run(name, x).astype(np.float64)
        expected = exact.astype(np.float32).astype(dtype).astype(np.float64)
        # float32's own error may tip a tie: never more than to the neighbour
        near = np.isclose(got, expected, rtol=float(ml_dtypes.finfo(dtype).eps), equal_nan=True)
    assert near.all()
    assert np.mean((got == expected) | np.isnan(expected)) > 0.9999
