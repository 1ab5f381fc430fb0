"""Machine code whose work threads share: the same bits on any number of threads, and NumPy's results."""

import ctypes
import threading

import numpy as np
import pytest
import scipy.linalg
from thread_counts import THREADS, on_threads, threads

import mpijax as jax
import mpijax.numpy as jnp
from mpijax.runtime.machine import blas

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True, scope="module")
def wide():
    """All dtypes."""
    with jax.enable_x64(True):
        yield


def normal(*shape, dtype=np.float32):
    x = RNG.normal(size=shape) * 50
    if np.dtype(dtype).kind == "c":
        x = x + 1j * RNG.normal(size=shape)
    return x.astype(dtype)


def special(*shape, dtype=np.float32):
    """Numbers with many equal ones, zeros of both signs, infinities and NaN."""
    x = np.round(normal(*shape, dtype=np.float64), 1).astype(dtype)
    if np.dtype(dtype).kind == "f":
        flat = x.reshape(-1)
        flat[::97], flat[5::53], flat[7::31], flat[3::1000], flat[4::1000] = np.nan, 0.0, -0.0, np.inf, -np.inf
    return x


# ---- sorts: short rows and long ones, many and few

SORTED = [(100,), (4096,), (70_001,), (3, 20_000), (200, 300), (40, 5000)]
TYPES = (np.float32, np.float64, np.float16, np.int32, np.int64, np.uint32, np.uint64, np.int8)


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: t.__name__)
@pytest.mark.parametrize("shape", SORTED)
@pytest.mark.one_in(3)
def test_sort(shape, dtype):
    x = special(*shape, dtype=dtype)
    order = np.argsort(x, axis=-1, kind="stable")
    wanted = np.take_along_axis(x, order, -1)
    [found] = on_threads(jnp.sort, x)
    np.testing.assert_array_equal(found, wanted)
    if x.dtype.kind == "f":  # equal zeros stay in order
        np.testing.assert_array_equal(np.signbit(found[~np.isnan(found)]), np.signbit(wanted[~np.isnan(wanted)]))
    np.testing.assert_array_equal(on_threads(jnp.argsort, x)[0], order)
    values = normal(*shape)
    keys, moved = on_threads(lambda k, v: jax.lax.sort_key_val(k, v, dimension=-1), x, values)
    np.testing.assert_array_equal(keys, wanted)
    np.testing.assert_array_equal(moved, np.take_along_axis(values, order, -1))


@pytest.mark.parametrize("dtype", (np.float32, np.int64, np.uint64))
def test_sort_of_extreme_numbers(dtype):
    """Every byte of the keys counts, and those that all have in common do not."""
    n = 10_000
    if np.dtype(dtype).kind == "f":
        x = RNG.integers(0, 1 << 32, n, dtype=np.uint32).view(np.float32)
        x = x[~np.isnan(x)]
    else:
        info = np.iinfo(dtype)
        x = RNG.integers(info.min, info.max, n, dtype=dtype, endpoint=True)
        x[:2] = info.min, info.max
    for y in (x, x[:5000].repeat(2), np.sort(x), np.sort(x)[::-1].copy(), np.full_like(x, x[0])):
        np.testing.assert_array_equal(on_threads(jnp.sort, y)[0], np.sort(y))
        np.testing.assert_array_equal(on_threads(jnp.argsort, y)[0], np.argsort(y, kind="stable"))


def test_sort_by_several_keys():
    first, second = RNG.integers(0, 50, 50_000), normal(50_000, dtype=np.float64)
    third = np.arange(50_000, dtype=np.int32)
    found = on_threads(lambda *xs: jax.lax.sort(xs, num_keys=2), first, second, third)
    order = np.lexsort((second, first))
    for got, x in zip(found, (first, second, third), strict=True):
        np.testing.assert_array_equal(got, x[order])


# ---- searches and largest elements


@pytest.mark.parametrize("side", ("left", "right"))
@pytest.mark.parametrize("dtype", (np.float32, np.float64, np.int32, np.int8), ids=lambda t: t.__name__)
@pytest.mark.parametrize("rows, queries", [(10, 50_000), (60_001, 50_001), (100_000, 900)])
@pytest.mark.one_in(4)
def test_searchsorted(rows, queries, dtype, side):
    row, values = np.sort(special(rows, dtype=dtype)), special(queries, dtype=dtype)
    [found] = on_threads(lambda a, v: jnp.searchsorted(a, v, side=side), row, values)
    np.testing.assert_array_equal(found, np.searchsorted(row, values, side))


def test_searchsorted_in_many_rows():
    rows, values = np.sort(normal(300, 200)), normal(300, 100)
    [found] = on_threads(jax.vmap(jnp.searchsorted), rows, values)
    np.testing.assert_array_equal(found, [np.searchsorted(r, v) for r, v in zip(rows, values, strict=True)])


@pytest.mark.parametrize("k", (1, 5, 300))
@pytest.mark.parametrize("shape, axis", [((100, 2000), 1), ((2000, 30), 0)])
def test_top_k(shape, axis, k):
    x = np.round(normal(*shape), 0)
    values, places = on_threads(lambda x: jax.lax.top_k(x, k, axis=axis), x)
    order = np.argsort(-x, axis=axis, kind="stable").take(range(k), axis)
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis))


# ---- Fourier transforms

TRANSFORMS = {
    "fft": (np.complex64, lambda f, x: f.fft(x)),
    "ifft along columns": (np.complex64, lambda f, x: f.ifft(x, axis=0)),
    "fft2": (np.complex128, lambda f, x: f.fft2(x)),
    "rfft": (np.float32, lambda f, x: f.rfft(x)),
    "rfft2": (np.float32, lambda f, x: f.rfft2(x)),
    "irfft2": (np.complex64, lambda f, x: f.irfft2(x, s=(120, 131))),
    "fft of a stack": (np.complex64, lambda f, x: f.fftn(x.reshape(4, 30, 10, -1), axes=(1, 2, 3))),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_fft(name):
    dtype, transform = TRANSFORMS[name]
    x = normal(120, 130, dtype=dtype)
    [found] = on_threads(lambda x: transform(jnp.fft, x), x)
    wanted = transform(np.fft, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


# ---- stacks of matrices: several at a time in vectors, by LAPACK, and large ones


def positive(count, n, dtype=np.float32):
    a = normal(count, n, n, dtype=dtype) / 50
    return a @ np.conj(a.swapaxes(1, 2)) + n * np.eye(n, dtype=dtype)


STACKS = [(1000, 4), (333, 8), (100, 20), (20, 60), (3, 140)]
DECOMPOSITIONS = {
    "cholesky": (lambda a: jnp.linalg.cholesky(a), lambda a, l: (l @ np.conj(l.swapaxes(1, 2)), a)),
    "eigh": (lambda a: jnp.linalg.eigh(a), lambda a, w, v: (a @ v, v * w[:, None, :])),
    "svd": (lambda a: jnp.linalg.svd(a), lambda a, u, s, vh: (u * s[:, None, :] @ vh, a)),
    "qr": (lambda a: jnp.linalg.qr(a), lambda a, q, r: (q @ r, a)),
    "solve": (lambda a: jnp.linalg.solve(a, a[:, :, :1]), lambda a, x: (a @ x, a[:, :, :1])),
    "inv": (lambda a: jnp.linalg.inv(a), lambda a, x: (a @ x, np.broadcast_to(np.eye(a.shape[1]), a.shape))),
}


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", (np.float32, np.complex128), ids=lambda t: t.__name__)
@pytest.mark.parametrize("count, n", STACKS)
@pytest.mark.parametrize("name", DECOMPOSITIONS)
@pytest.mark.one_in(3)
def test_decompositions(name, count, n, dtype):
    decompose, sides = DECOMPOSITIONS[name]
    a = positive(count, n, dtype)
    found = on_threads(decompose, a)
    left, right = sides(a, *found)
    np.testing.assert_allclose(left, right, atol=(1e-4 if dtype == np.float32 else 1e-11) * n)


def test_other_forms():
    a = normal(200, 12, 12, dtype=np.float64)
    values, vectors = on_threads(jnp.linalg.eig, a)
    np.testing.assert_allclose(a @ vectors, vectors * values[:, None, :], atol=1e-9)
    h, q = on_threads(lambda a: jax.scipy.linalg.hessenberg(a, calc_q=True), a)
    np.testing.assert_allclose(q @ h @ q.swapaxes(1, 2), a, atol=1e-10)
    form, vectors = on_threads(lambda a: jax.lax.linalg.schur(a), a)
    np.testing.assert_allclose(vectors @ form @ vectors.swapaxes(1, 2), a, atol=1e-10)
    d = 10 + np.abs(normal(200, 12, dtype=np.float64))
    off, b = normal(200, 12, dtype=np.float64) / 50, normal(200, 12, 3, dtype=np.float64)
    [x] = on_threads(jax.lax.linalg.tridiagonal_solve, off, d, off, b)
    bands = np.zeros((3, 12))
    for k in range(200):
        bands[0, 1:], bands[1], bands[2, :-1] = off[k, :-1], d[k], off[k, 1:]
        np.testing.assert_allclose(x[k], scipy.linalg.solve_banded((1, 1), bands, b[k]), atol=1e-10)


def test_matrices_that_are_not_positive_definite():
    a = positive(100, 20)
    a[::7] *= -1
    [found] = on_threads(jnp.linalg.cholesky, a)
    assert np.isnan(found[::7][:, 0, 0]).all() and np.isfinite(np.delete(found, np.s_[::7], 0)).all()


def test_threads_of_blas_are_as_before():
    get, set_ = blas.thread_functions()
    if get == 0:
        pytest.skip("this BLAS does not tell how many threads it uses")
    get, set_ = ctypes.CFUNCTYPE(ctypes.c_int)(get), ctypes.CFUNCTYPE(None, ctypes.c_int)(set_)
    before = get()
    factor, a = jax.jit(jnp.linalg.cholesky), positive(50, 40)
    factor(a)  # LAPACK is loaded, which sets the threads of BLAS
    try:
        for threads in (1, 2):
            set_(threads)
            on_threads(jnp.linalg.cholesky, positive(50, 40))
            assert get() == threads
            callers = [threading.Thread(target=lambda: [factor(a) for _ in range(20)]) for _ in range(4)]
            for caller in callers:
                caller.start()
            for caller in callers:
                caller.join()
            assert get() == threads
    finally:
        set_(before)


# ---- matrix products: BLAS may round a part of a matrix otherwise than the whole

PRODUCTS = [
    ((), 300, 200, 100, ""),
    ((), 70, 1500, 65, "ab"),
    ((3,), 90, 150, 333, "a"),
    ((2, 2), 200, 130, 171, "b"),
    ((4, 6), 40, 60, 50, "b"),
    ((20,), 130, 40, 120, "a"),
]


@pytest.mark.parametrize("dtype", (np.float32, np.float64, np.complex64, np.complex128), ids=lambda t: t.__name__)
@pytest.mark.one_in(2)
def test_products(dtype):
    """Parts of rows and of columns, of one matrix and of stacks, transposed and not."""
    for stack, m, k, n, transposed in PRODUCTS:
        a, b = normal(*stack, m, k, dtype=dtype), normal(*stack, k, n, dtype=dtype)
        wanted = a @ b
        if "a" in transposed:
            a = np.ascontiguousarray(a.swapaxes(-1, -2))
        if "b" in transposed:
            b = np.ascontiguousarray(b.swapaxes(-1, -2))
        product = jax.jit(
            lambda a, b, by=transposed: jnp.matmul(
                a.swapaxes(-1, -2) if "a" in by else a, b.swapaxes(-1, -2) if "b" in by else b
            )
        )
        rounding = 5 * np.finfo(dtype).eps * 50 * 50 * k
        for count in THREADS:
            with threads(count):
                found = np.asarray(product(a, b))
            np.testing.assert_allclose(found, wanted, rtol=0, atol=rounding, err_msg=f"{stack} {m} {n} {count}")
