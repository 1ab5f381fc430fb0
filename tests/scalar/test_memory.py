"""Loads and stores in all patterns and for all kinds of storage."""

import ctypes

import ml_dtypes
import numpy as np
import pytest
from scalar.harness import SIGNATURE, build, call

from mpijax import scalar
from mpijax.compiler.backend import llvm

KINDS = [np.dtype(t) for t in ("?", "i1", "i4", "i8", "f2", ml_dtypes.bfloat16, "f4", "f8", "c8", "c16")]


def numbers(dtype, n):
    return (np.arange(n) % 7 - 3).astype(dtype)


@pytest.mark.parametrize("lanes", [1, 4, 8])
@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.one_in(4)
def test_loads(dtype, lanes):
    x = numbers(dtype, 64)
    index = np.arange(32)[::-1].copy() * 2 % 64

    def gathered(b, first, index):
        return b.load_gather("%p0", index, dtype)

    kernel = build(gathered, (dtype, np.int64), lanes)
    padded = x[:32].copy()
    result = call(*kernel, lanes, [padded, index % 32])
    np.testing.assert_array_equal(result, padded[index % 32])

    strided = build(lambda b, first: b.load_strided("%p0", "3", dtype), (dtype,), lanes)
    np.testing.assert_array_equal(call(*strided, lanes, [x])[:lanes], x[: 3 * lanes : 3])


@pytest.mark.sweep
@pytest.mark.parametrize("step", [-4, -3, -2, -1, 2, 3, 4])
@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_loads_of_few_steps(dtype, step):
    lanes = 32
    x = numbers(dtype, 64)[: abs(step) * (lanes - 1) + 1] if abs(step) < 3 else np.resize(numbers(dtype, 64), 125)
    first = 0 if step > 0 else -step * (lanes - 1)

    def picked(b, _):
        start = b.emit(f"getelementptr {b._element(dtype)}, ptr %p0, i64 {first}")
        return b.load_steps(start, step, dtype)

    result = call(*build(picked, (dtype,), lanes), lanes, [x])[:lanes]
    np.testing.assert_array_equal(result, x[first::step][:lanes])


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.one_in(3)
def test_masked_gather_touches_nothing_outside(dtype, lanes):
    x = numbers(dtype, 16)
    index = np.where(np.arange(16) % 3 == 0, 2**60, np.arange(16))  # an address far outside memory
    mask = index < 16
    kernel = build(lambda b, first, i, m: b.load_gather("%p0", i, dtype, m), (dtype, np.int64, bool), lanes)
    np.testing.assert_array_equal(call(*kernel, lanes, [x, index, mask]), np.where(mask, x, np.zeros_like(x)))


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.one_in(3)
def test_stores(dtype, lanes):
    function = scalar.FunctionText()
    b = scalar.Builder(lanes, function)
    x, index, mask = b.load("%x", dtype), b.load("%i", np.dtype("i8")), b.load("%m", np.dtype("?"))
    b.store_scatter("%scattered", index, x)
    b.store_scatter("%masked", index, x, mask)
    b.store_strided("%strided", "2", x)
    names = ["x", "i", "m", "scattered", "masked", "strided"]
    lines = [
        f"  %{n}.at = getelementptr ptr, ptr %ptrs, i64 {k}\n  %{n} = load ptr, ptr %{n}.at"
        for k, n in enumerate(names)
    ]
    text = "\n".join(
        [
            "define void @k(ptr %ptrs, ptr %params, i64 %begin, i64 %end) {",
            *lines,
            *b.lines,
            "  ret void",
            "}",
            function.module_text(),
        ]
    )
    code = llvm.load_object(llvm.compile_object(text))
    kernel = SIGNATURE(code["k"])
    x = numbers(dtype, lanes) + numbers(dtype, lanes)[:1]
    index = (np.arange(lanes) * 5 + 3) % 16
    mask = np.arange(lanes) % 2 == 0
    scattered, masked, strided = (np.zeros(16, dtype) for _ in range(3))
    arrays = [x, index, mask, scattered, masked, strided]
    kernel((ctypes.c_void_p * 6)(*[a.ctypes.data for a in arrays]), None, 0, 1)
    np.testing.assert_array_equal(scattered[index], x)
    np.testing.assert_array_equal(masked[index[mask]], x[mask])
    assert not masked[index[~mask]].any()
    np.testing.assert_array_equal(strided[: 2 * lanes : 2], x)


@pytest.mark.parametrize("dtype", ["i4", "f4", "f8", "c8"])
def test_reduce_across_lanes(dtype):
    x = numbers(dtype, 8)
    for name, function in {"add": np.sum, "mul": np.prod, "max": np.max, "min": np.min}.items():
        kernel = build(lambda b, v, name=name: b.splat(b.reduce(name, v)), (np.dtype(dtype),), 8)
        np.testing.assert_array_equal(call(*kernel, 8, [x]), np.repeat(function(x), 8))
