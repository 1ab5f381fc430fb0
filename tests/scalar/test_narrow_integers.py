"""Integers of 1, 2 and 4 bits: they wrap around at their own width, and are stored in the low bits of a byte."""

import ml_dtypes
import numpy as np
import pytest
from scalar.harness import run

from mpijax.core import dtypes
from mpijax.core.dtypes import promotion

NARROW = promotion.NARROW_INT
WIDE = np.dtype(np.int64)


def every_pair(dtype):
    limits = dtypes.iinfo(dtype)
    values = np.arange(limits.min, limits.max + 1)
    x, y = np.meshgrid(values, values)
    return x.ravel(), y.ravel()


def wrapped(x, dtype):
    limits = dtypes.iinfo(dtype)
    return ((x - limits.min) % (limits.max - limits.min + 1) + limits.min).astype(dtype)


def same(got, expected):
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got.astype(WIDE), expected.astype(WIDE))
    np.testing.assert_array_equal(got.view(np.uint8), expected.view(np.uint8))


@pytest.mark.sweep
@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.one_in(2)
def test_arithmetic_wraps(dtype, lanes):
    x, y = every_pair(dtype)
    operations = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "and": np.bitwise_and, "or": np.bitwise_or,
        "xor": np.bitwise_xor, "max": np.maximum, "min": np.minimum,
    }  # fmt: skip
    for name, function in operations.items():
        same(run(name, x.astype(dtype), y.astype(dtype), lanes=lanes), wrapped(function(x, y), dtype))
    for name, function in {"neg": np.negative, "not": np.invert}.items():
        same(run(name, x.astype(dtype), lanes=lanes), wrapped(function(x), dtype))
    apart = y != 0
    for name, function in {"div": lambda a, b: np.trunc(a / b), "rem": np.fmod}.items():
        expected = wrapped(function(x[apart], y[apart]).astype(WIDE), dtype)
        same(run(name, x[apart].astype(dtype), y[apart].astype(dtype), lanes=lanes), expected)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_comparisons(dtype):
    x, y = every_pair(dtype)
    for name, function in {"lt": np.less, "ge": np.greater_equal, "eq": np.equal}.items():
        np.testing.assert_array_equal(run(name, x.astype(dtype), y.astype(dtype)), function(x, y))


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.one_in(3)
def test_conversions(dtype, lanes):
    limits, integers = dtypes.iinfo(dtype), np.arange(-128, 128)
    same(run("convert_element_type", integers.astype("i1"), lanes=lanes, new_dtype=dtype), wrapped(integers, dtype))
    floats = np.array([0.4, -0.6, 1.9, -1.9, 7.99, 300, -300, np.inf, -np.inf, np.nan], np.float32)
    expected = np.clip(np.trunc(np.nan_to_num(floats)), limits.min, limits.max).astype(WIDE)
    same(run("convert_element_type", floats, lanes=lanes, new_dtype=dtype), expected.astype(dtype))
    x = np.unique(every_pair(dtype)[0])
    for wide in (np.int8, np.int32, np.float32, ml_dtypes.bfloat16):
        got = run("convert_element_type", x.astype(dtype), lanes=lanes, new_dtype=np.dtype(wide))
        np.testing.assert_array_equal(got.astype(np.float32), x.astype(np.float32))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_upper_bits_of_the_byte_do_not_count(dtype):
    bits = np.arange(256, dtype=np.uint8)
    got = run("convert_element_type", bits.view(dtype), new_dtype=np.dtype(np.int32))
    np.testing.assert_array_equal(got, bits.view(dtype).astype(np.int32))
