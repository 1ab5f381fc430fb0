"""Reductions of short rows, of which several are read at once: whole ones, and never more than there is."""

import ctypes
import mmap

import numpy as np
import pytest

import mpijax
import mpijax.numpy as jnp
from mpijax.core import dtypes

LENGTHS = [5, 7, 10, 16, 19, 33, 100]
FUNCTIONS = {
    "max": (lambda x: x.max(-1), lambda x: x.max(-1)),
    "sum": (lambda x: x.sum(-1), lambda x: x.astype("f8").sum(-1)),
    "argmin": (lambda x: x.argmin(-1), lambda x: x.argmin(-1)),
    "inside": (lambda x: x[:, 1:-1].min(-1), lambda x: x[:, 1:-1].min(-1)),
    "backwards": (lambda x: x[:, ::-1].argmax(-1), lambda x: x[:, ::-1].argmax(-1)),
    "difference": (lambda x: (x - x.min(-1, keepdims=True)).max(-1), lambda x: np.ptp(x, -1)),
}


def numbers(dtype, rows: int, length: int) -> np.ndarray:
    """Small whole numbers, some of them equal, as every dtype has them and their sums."""
    return np.random.default_rng(length).integers(0, 12, (rows, length)).astype(jnp.dtype(dtype))


@pytest.mark.sweep
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16", "float64"])
@pytest.mark.one_in(2)
def test_values(name, dtype):
    function, expected = FUNCTIONS[name]
    with mpijax.enable_x64(dtype == "float64"):
        for length in LENGTHS:
            for rows in (3, 41):
                x = numbers(dtype, rows, length)
                wide = x.astype("f4") if dtypes.issubdtype(x.dtype, np.floating) and x.dtype.itemsize < 4 else x
                got = np.asarray(mpijax.jit(function)(x))
                want = expected(wide).astype(got.dtype)
                np.testing.assert_array_equal(got, want, err_msg=f"{rows} rows of {length}")


@pytest.mark.parametrize("length", [6, 10, 16])
def test_bool(length):
    x = np.random.default_rng(length).random((41, length)) < 0.1
    np.testing.assert_array_equal(mpijax.jit(lambda x: x.any(-1))(x), x.any(-1))
    np.testing.assert_array_equal(mpijax.jit(lambda x: x.argmax(-1))(x), x.argmax(-1))


@pytest.mark.parametrize("length", [16, 40, 100, 512])
def test_nan_and_signs_of_zero(length):
    """Of rows reduced side by side one has a NaN, one zeros of both signs, in any place."""
    x = -np.abs(np.random.default_rng(length).standard_normal((24, length))).astype("f4")
    for row in range(24):
        x[row, row % length] = np.nan if row % 3 == 0 else -0.0
        if row % 3 == 1:
            x[row, (row + length // 2) % length] = 0.0
    got = np.asarray(mpijax.jit(lambda x: x.max(-1))(x))
    np.testing.assert_array_equal(got, x.max(-1))
    zero = np.arange(24) % 3 == 1
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(got)]), ~zero[~np.isnan(got)])


@pytest.mark.parametrize("length", [5, 6, 7, 9, 10, 13])
@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.one_in(3)
def test_reads_stay_inside(length, at_end):
    """Arrays that end, or begin, where a page of memory does beside one that cannot be read."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 3 * page)
    first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for forbidden in (first, first + 2 * page):
        assert protect(forbidden, page, 0) == 0
    rows = 64 // length * 16
    nbytes = 4 * rows * length
    x = np.frombuffer(memory, np.float32, rows * length, 2 * page - nbytes if at_end else page).reshape(rows, length)
    x[:] = numbers("float32", rows, length)
    array = jnp.asarray(x)
    np.testing.assert_array_equal(mpijax.jit(lambda x: x.argmax(-1))(array), x.argmax(-1))


def test_a_repeated_row_that_is_stored_and_read_again():
    """Its element is the same in all lanes, its places are not."""

    def program(x, y, limits):
        rows = jnp.concatenate([x, y])
        repeated = jnp.broadcast_to(limits, rows.shape)
        inside = (rows < repeated).all(-1)
        return inside, repeated, jnp.where(inside[:, None], rows, repeated)

    x, y = np.arange(56, dtype=np.int32).reshape(2, 14, 2)
    limits = np.array([9, 8], np.int32)
    inside, repeated, chosen = mpijax.jit(program)(x, y, limits)
    rows = np.concatenate([x, y])
    np.testing.assert_array_equal(inside, (rows < limits).all(-1))
    np.testing.assert_array_equal(repeated, np.broadcast_to(limits, rows.shape))
    np.testing.assert_array_equal(chosen, np.where((rows < limits).all(-1)[:, None], rows, limits))
