"""The Python Array API standard, 2024.12: its names, dtypes and special values, eagerly and with 64 bits."""

import inspect

import numpy as np
import pytest
from oracle import OURS
from quickly import one_in

xp = OURS.numpy
SIGNED, UNSIGNED = ("int8", "int16", "int32", "int64"), ("uint8", "uint16", "uint32", "uint64")
INTEGERS, FLOATS, COMPLEXES = SIGNED + UNSIGNED, ("float32", "float64"), ("complex64", "complex128")
REALS, NUMBERS, INEXACT = INTEGERS + FLOATS, INTEGERS + FLOATS + COMPLEXES, FLOATS + COMPLEXES
BITS = (*INTEGERS, "bool")
DTYPES = ("bool", *NUMBERS)

# Elementwise functions of one and of two operands, with the dtypes that they take.
UNARY = {
    NUMBERS: "abs isfinite isinf isnan negative positive round sign square",
    REALS: "ceil floor trunc",
    FLOATS: "signbit",
    COMPLEXES: "conj imag real",
    BITS: "bitwise_invert",
    ("bool",): "logical_not",
    INEXACT: """
        acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p log2 reciprocal sin sinh sqrt tan tanh""",
}
BINARY = {
    NUMBERS: "add equal multiply not_equal subtract",
    REALS: "floor_divide greater greater_equal less less_equal maximum minimum pow remainder",
    INEXACT: "divide",
    FLOATS: "atan2 copysign hypot logaddexp nextafter",
    BITS: "bitwise_and bitwise_or bitwise_xor",
    INTEGERS: "bitwise_left_shift bitwise_right_shift",
    ("bool",): "logical_and logical_or logical_xor",
}
OTHERS = """
    all any arange argmax argmin argsort asarray astype broadcast_arrays broadcast_to can_cast clip concat count_nonzero
    cumulative_prod cumulative_sum diff empty empty_like expand_dims eye finfo flip from_dlpack full full_like iinfo
    isdtype linspace matmul matrix_transpose max mean meshgrid min moveaxis nonzero ones ones_like permute_dims prod
    repeat reshape result_type roll searchsorted sort squeeze stack std sum take take_along_axis tensordot tile tril triu
    unique_all unique_counts unique_inverse unique_values unstack var vecdot where zeros zeros_like""".split()
LINALG = """
    cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank matrix_transpose outer pinv
    qr slogdet solve svd svdvals tensordot trace vecdot vector_norm""".split()
FFT = "fft fftfreq fftn fftshift hfft ifft ifftn ifftshift ihfft irfft irfftn rfft rfftfreq rfftn".split()
CONSTANTS = "e inf nan newaxis pi __array_api_version__ __array_namespace_info__".split()
METHODS = """
    __abs__ __add__ __and__ __array_namespace__ __bool__ __complex__ __dlpack__ __dlpack_device__ __eq__ __float__
    __floordiv__ __ge__ __getitem__ __gt__ __index__ __int__ __invert__ __le__ __lshift__ __lt__ __matmul__ __mod__
    __mul__ __ne__ __neg__ __or__ __pos__ __pow__ __rshift__ __setitem__ __sub__ __truediv__ __xor__ to_device __radd__
    __rmatmul__ T dtype device mT ndim shape size""".split()
ELEMENTWISE = [name for table in (UNARY, BINARY) for names in table.values() for name in names.split()]


@pytest.fixture(autouse=True)
def double():
    with OURS.enable_x64(True), np.errstate(all="ignore"):
        yield


def numbers(dtype, seed=0, count=24):
    """Random numbers, small and large ones, and the limits of integers."""
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, count).astype(bool)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = rng.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)
        values[: count // 2] = rng.integers(0, 9, count // 2)
        values[-2:] = limits.min, limits.max
        return rng.permutation(values)
    values = rng.normal(size=(2, count)) * 4
    return (values[0] + 1j * values[1]).astype(dtype) if dtype.kind == "c" else values[0].astype(dtype)


def same(got, expected, rounding=16):
    got = np.asarray(got)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    if got.dtype.kind in "fc":
        np.testing.assert_allclose(got, expected, rtol=rounding * np.finfo(got.dtype).eps)
    else:
        np.testing.assert_array_equal(got, expected)


def test_names():
    for module, names in ((xp, [*ELEMENTWISE, *OTHERS, *CONSTANTS, *DTYPES]), (xp.linalg, LINALG), (xp.fft, FFT)):
        assert [n for n in names if not hasattr(module, n)] == []
    x = xp.ones((2, 2))
    assert [n for n in METHODS if not hasattr(x, n)] == []
    assert x.__array_namespace__(api_version="2024.12") is xp and xp.__array_api_version__ == "2024.12"


@pytest.mark.parametrize("names", one_in(2, UNARY.values()))
@pytest.mark.one_in(2)
def test_unary(names):
    dtypes = next(d for d, n in UNARY.items() if n == names)
    for name in names.split():
        for dtype in dtypes:
            x = numbers(dtype)
            same(getattr(xp, name)(xp.asarray(x)), getattr(np, name)(x))


@pytest.mark.parametrize("names", BINARY.values())
@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.one_in(2)
def test_binary_and_with_python_numbers(names, every):
    dtypes = next(d for d, n in BINARY.items() if n == names)
    for name in names.split():
        for dtype in [*dtypes][::every]:
            x, y = operands(name, dtype)
            same(getattr(xp, name)(xp.asarray(x), xp.asarray(y)), expected(name, x, y))
            number = True if dtype == "bool" else 2
            same(getattr(xp, name)(xp.asarray(x), number), expected(name, x, np.asarray(number, dtype)))
            if name != "pow":
                same(getattr(xp, name)(number, xp.asarray(y)), expected(name, np.asarray(number, dtype), y))


def operands(name, dtype):
    x, y = numbers(dtype), numbers(dtype, seed=1)
    if name in ("floor_divide", "remainder"):
        y = np.where(y == 0, np.ones((), dtype), y)
    if np.dtype(dtype).kind in "iu" and (name == "pow" or "shift" in name):
        y = np.abs(y.astype(np.int64) % 7).astype(dtype)
    return (abs(x), y) if name == "pow" and dtype in FLOATS else (x, y)


def expected(name, x, y):
    return getattr(np, name)(x, y)


def test_shifts_by_all_bits_and_more():
    for dtype in INTEGERS:
        bits = np.iinfo(dtype).bits
        x, by = xp.asarray(numbers(dtype)), xp.asarray(np.array(bits, dtype))
        np.testing.assert_array_equal(xp.bitwise_left_shift(x, by), 0)
        np.testing.assert_array_equal(xp.bitwise_right_shift(x, by), np.where(np.asarray(x) < 0, -1, 0).astype(dtype))


# ---------------------------------------------------------------- special values

EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, np.inf, -np.inf, np.nan]
# What the standard leaves open, or says otherwise than NumPy: the real and imaginary parts of results.
OPEN = {"reciprocal", "sign", "log2", "log10", "square", "expm1", "round"}


@pytest.mark.parametrize("name", [n for n in UNARY[INEXACT].split() if n not in OPEN])
@pytest.mark.one_in(3)
def test_complex_functions_at_the_edges(name):
    z = np.array([complex(a, b) for a in EDGES for b in EDGES])
    got, wanted = np.asarray(getattr(xp, name)(xp.asarray(z))), getattr(np, name)(z)
    for part in ("real", "imag"):
        ours, theirs = getattr(got, part), getattr(wanted, part)
        if name in ("exp", "sqrt", "tan", "tanh", "sin", "cos", "sinh", "cosh", "acosh", "atanh", "atan", "log1p", "log"):
            # Signs of zeros and infinities that the standard does not specify.
            loose = ~np.isfinite(z.real) | ~np.isfinite(z.imag)
            ours, theirs = np.where(loose, abs(ours), ours), np.where(loose, abs(theirs), theirs)
        np.testing.assert_allclose(ours, theirs, rtol=1e-14, atol=1e-16, err_msg=f"{name}, {part}")


def test_exponentials_where_the_angle_is_no_number():
    inf, nan = np.inf, np.nan
    table = [
        ("exp", -inf, inf, 0, 0), ("exp", -inf, nan, 0, 0), ("exp", inf, inf, inf, nan), ("exp", inf, nan, inf, nan),
        ("expm1", -inf, inf, -1, 0), ("expm1", -inf, nan, -1, 0), ("expm1", inf, nan, inf, nan),
        ("cosh", 0.0, inf, nan, 0), ("cosh", inf, nan, inf, nan), ("sinh", 0.0, nan, 0, nan), ("sinh", inf, inf, inf, nan),
        ("tanh", 0.0, inf, 0, nan), ("tanh", inf, nan, 1, 0), ("acosh", 0.0, nan, nan, np.pi / 2), ("atanh", inf, nan, 0, nan),
        ("acos", 0.0, nan, np.pi / 2, nan), ("sqrt", inf, nan, inf, nan), ("asinh", nan, 0.0, nan, 0),
    ]  # fmt: skip
    for name, a, b, real, imag in table:
        got = complex(getattr(xp, name)(xp.asarray(complex(a, b))))
        np.testing.assert_allclose([abs(got.real), abs(got.imag)], [abs(real), abs(imag)], err_msg=f"{name}({a}, {b})")


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_expm1_of_a_complex_zero_has_a_positive_real_part(zero):
    for imag in (0.0, -0.0):
        got = complex(xp.expm1(xp.asarray(complex(zero, imag))))
        assert str(got) == str(complex(0.0, imag))


@pytest.mark.parametrize("dtype", FLOATS)
def test_real_functions_at_the_edges(dtype):
    x, y = (v.ravel() for v in np.meshgrid(np.array(EDGES, dtype), np.array(EDGES, dtype)))
    edges = np.array(EDGES, dtype)
    for name in [n for d, names in UNARY.items() if "float32" in d for n in names.split()]:
        got, wanted = np.asarray(getattr(xp, name)(xp.asarray(edges))), getattr(np, name)(edges)
        same(got, wanted)
        if name != "sign":
            np.testing.assert_array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(wanted[~np.isnan(got)]), name)
    for name in "add atan2 copysign divide equal hypot less logaddexp multiply nextafter pow subtract".split():
        got, wanted = np.asarray(getattr(xp, name)(xp.asarray(x), xp.asarray(y))), getattr(np, name)(x, y)
        same(got, wanted)
        there = ~np.isnan(got)
        np.testing.assert_array_equal(np.signbit(got[there]), np.signbit(wanted[there]), name)


# ---------------------------------------------------------------- the rest


def test_dtypes_of_reductions():
    for dtype in NUMBERS:
        kind = np.dtype(dtype).kind
        wide = {"i": "int64", "u": "uint64"}.get(kind, dtype)
        x = xp.ones((2, 3), dtype=dtype)
        for name in ("sum", "prod", "cumulative_sum"):
            kwargs = {"axis": 0} if name == "cumulative_sum" else {}
            assert getattr(xp, name)(x, **kwargs).dtype == wide, (name, dtype)
            assert getattr(xp, name)(x, dtype="float64" if kind != "c" else "complex128", **kwargs).dtype.itemsize >= 8
        for name in ("argmax", "argmin", "count_nonzero") if kind != "c" else ("count_nonzero",):
            assert getattr(xp, name)(x).dtype == "int64"
    for imaginary in (1j, complex(0, np.nan)):
        assert bool(xp.any(xp.asarray([0, imaginary]))) and bool(xp.all(xp.asarray([1, imaginary])))


def test_promotion_of_arrays_and_numbers():
    for a in DTYPES:
        for b in DTYPES:
            kinds = {np.dtype(a).kind, np.dtype(b).kind}
            if len(kinds) == 1 or kinds == {"f", "c"} or (kinds == {"i", "u"} and "uint64" not in (a, b)):
                assert xp.result_type(getattr(xp, a), getattr(xp, b)) == np.result_type(a, b)
        x = xp.zeros(2, dtype=a)
        assert (x + (True if a == "bool" else 1)).dtype == a
        assert isinstance(xp.can_cast(a, "float64"), bool) and isinstance(xp.isdtype(x.dtype, "numeric"), bool)
    assert (xp.zeros(2, dtype="float32") * 2j).dtype == "complex64"


def test_indices_and_masks():
    x = np.arange(24).reshape(2, 3, 4)
    y = xp.asarray(x)
    for key in (1, -1, ..., None, slice(None, None, -2), (..., 1, None), (1, slice(0, 2), -1), (), (0, [1, 2], 3)):
        key_ours = tuple(xp.asarray(k) if isinstance(k, list) else k for k in key) if isinstance(key, tuple) else key
        same(y[key_ours], np.asarray(x[key]))
    mask = x % 3 == 0
    same(y[xp.asarray(mask)], x[mask])
    same(y[xp.asarray(mask[0, :, 0])[None, :].repeat(2, 0)], x[np.repeat(mask[0, :, 0][None], 2, 0)])
    same(y[xp.asarray(True)], x[True])
    for axis in (2, -3):
        with pytest.raises(IndexError, match="out of bounds"):
            xp.expand_dims(xp.arange(3), axis=axis)
    with pytest.raises(IndexError):
        y[xp.ones((2, 2), dtype=bool)]


def test_conversions_to_python_numbers():
    assert [type(f(xp.asarray(v))) for f, v in ((bool, True), (int, 3), (float, 2.5), (complex, 1j))] == [
        bool, int, float, complex,
    ]  # fmt: skip
    assert int(xp.asarray(2**64 - 1, dtype="uint64")) == 2**64 - 1 and range(5)[xp.asarray(3)] == 3
    for convert, value in ((int, 1j), (float, 1j), (int, np.nan), (int, np.inf)):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            convert(xp.asarray(value))


def test_arrays_go_by_dlpack():
    x = xp.arange(3)
    for kwargs in ({}, {"max_version": (0, 5)}, {"max_version": (1, 0)}, {"copy": True}, {"dl_device": (1, 0)}):
        assert type(x.__dlpack__(**kwargs)).__name__ == "PyCapsule"
    kind, number = x.__dlpack_device__()
    assert int(kind) == 1 and number == 0
    for device in xp.__array_namespace_info__().devices():
        y = xp.from_dlpack(x, device=device, copy=True)
        assert y.device == (device or x.device) and bool(xp.all(x == y))


def test_inspection():
    info = xp.__array_namespace_info__()
    assert info.capabilities() == {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}
    assert info.default_device() in info.devices()
    assert {k: str(v) for k, v in info.default_dtypes(device=info.devices()[-1]).items()} == {
        "real floating": "float64", "complex floating": "complex128", "integral": "int64", "indexing": "int64",
    }  # fmt: skip
    assert set(info.dtypes()) == set(DTYPES) and set(info.dtypes(kind=("bool", "real floating"))) == {"bool", *FLOATS}


def test_keywords_of_functions():
    for function, names in (
        (xp.sort, "axis descending stable"), (xp.argsort, "axis descending stable"), (xp.std, "axis correction keepdims"),
        (xp.sum, "axis dtype keepdims"), (xp.searchsorted, "side sorter"), (xp.asarray, "dtype device copy"),
        (xp.eye, "k dtype device"), (xp.linspace, "dtype device endpoint"), (xp.meshgrid, "indexing"),
        (xp.cumulative_sum, "axis dtype include_initial"), (xp.diff, "axis n prepend append"), (xp.reshape, "copy"),
        (xp.take_along_axis, "axis"), (xp.count_nonzero, "axis keepdims"), (xp.from_dlpack, "device copy"),
        (xp.linalg.pinv, "rtol"), (xp.linalg.matrix_rank, "rtol"), (xp.linalg.vector_norm, "axis keepdims ord"),
        (xp.fft.fftfreq, "d dtype device"), (xp.fft.rfftn, "s axes norm"), (xp.astype, "copy device"),
        (xp.zeros(2).__dlpack__, "stream max_version dl_device copy"), (xp.zeros(2).__array_namespace__, "api_version"),
    ):  # fmt: skip
        have = inspect.signature(function).parameters
        assert [n for n in names.split() if n not in have] == [], function
