"""Arrays of integers of 1 to 4 bits and floats of 4 and 6 bits: programs on them give what wider types give, cut down.

JAX runs few of these on the CPU, so that NumPy and ml_dtypes are compared with, and JAX where it does.
"""

import ml_dtypes
import numpy as np
import pytest
from oracle import OURS, THEIRS

from mpijax.core import dtypes
from mpijax.core.dtypes import promotion

jnp, lax = OURS.numpy, OURS.lax
INTEGERS = promotion.NARROW_INT
FLOATS = [np.dtype(t) for t in (ml_dtypes.float4_e2m1fn, ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn)]
GIVEN = np.array([1.2, -1.9, 0, 100, -100, 3], np.float32)


def wide(x):
    return np.asarray(x).astype(np.float32)


@pytest.mark.parametrize("dtype", ["int4", "uint4", "float4_e2m1fn"])
def test_conversions_and_arithmetic_are_jaxs(dtype):
    def compute(J):
        x = J.numpy.array(GIVEN).astype(dtype)
        y = J.numpy.flip(x)
        return [wide(v) for v in (x, x + y, x * y, x - y, x > y, J.numpy.where(x > y, x, y))]

    for ours, theirs in zip(compute(OURS), compute(THEIRS), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS], ids=str)
@pytest.mark.one_in(3)
def test_moves_and_choices(dtype):
    x = jnp.array(GIVEN).astype(dtype)
    as_float = wide(x)
    np.testing.assert_array_equal(wide(jnp.concatenate([x, x[::-1]])), [*as_float, *as_float[::-1]])
    np.testing.assert_array_equal(wide(jnp.sort(x)), np.sort(as_float))
    np.testing.assert_array_equal(wide(jnp.pad(x, 1)), np.pad(as_float, 1))
    np.testing.assert_array_equal(wide(x.at[1].set(x[3])[:2]), [as_float[0], as_float[3]])
    np.testing.assert_array_equal(wide(x.reshape(2, 3).T), as_float.reshape(2, 3).T)
    assert wide(x.max()) == as_float.max() and wide(x.min()) == as_float.min()
    assert int(jnp.argmax(x)) == as_float.argmax()


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_loops_and_sums_wrap_around(dtype):
    x = jnp.array(GIVEN).astype(dtype)

    @OURS.jit
    def program(x):
        return lax.fori_loop(0, 5, lambda i, c: c + x, x), jnp.cumsum(x), x @ x

    whole = np.asarray(x).astype(np.int64)
    limits = dtypes.iinfo(dtype)
    for got, exact in zip(program(x), (whole * 6, np.cumsum(whole), whole @ whole), strict=True):
        wrapped = (exact - limits.min) % (limits.max - limits.min + 1) + limits.min
        np.testing.assert_array_equal(np.asarray(got).astype(np.int64), wrapped)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_what_lies_outside_reads_as_the_extreme(dtype):
    limits = dtypes.iinfo(dtype)
    read = jnp.array(GIVEN).astype(dtype).at[jnp.array([9])].get(mode="fill")
    assert int(read[0]) == (limits.max if dtype in promotion.NARROW_UNSIGNED else limits.min)


@pytest.mark.sweep
@pytest.mark.parametrize("name,bits", [("int4", 4), ("uint4", 4), ("int2", 2), ("uint2", 2), ("float4_e2m1fn", 4)])
@pytest.mark.parametrize("other", ["uint8", "int16", "uint32", "int2", "uint4"])
@pytest.mark.one_in(3)
def test_views_of_elements_of_less_than_a_byte(name, bits, other):
    """The first element has the lowest bits of the other type's, and back."""
    packed = np.random.default_rng(0).integers(0, 256, 16).astype(np.uint8)
    unpacked = (packed[:, None] >> np.arange(0, 8, bits, dtype=np.uint8)).reshape(-1) & ((1 << bits) - 1)
    x = OURS.numpy.asarray(packed).view(getattr(ml_dtypes, name))
    np.testing.assert_array_equal(np.asarray(x.view(f"uint{bits}")).astype(np.uint8), unpacked)
    for y in (x.view(other), OURS.jit(lambda x: x.view(other))(x)):
        assert y.dtype == other
        np.testing.assert_array_equal(y.view(np.uint8), packed)


def test_numpy_arrays_of_narrow_types_beside_python_numbers():
    """In a function of one array, what NumPy would promote stays of the array's type."""
    x = np.linspace(-2, 2, 6).astype(ml_dtypes.bfloat16)
    for f in (OURS.nn.gelu, lambda x: OURS.nn.gelu(x, approximate=False), OURS.numpy.sinc, OURS.numpy.deg2rad):
        with OURS.numpy_dtype_promotion("strict"):
            ours = f(x)
        assert ours.dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(ours, np.float32), np.asarray(f(OURS.numpy.asarray(x)), np.float32))
