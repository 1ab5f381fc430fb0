"""Transforms as machine code of a program, against SciPy's."""

import numpy as np
import pytest
import scipy.fft

import mpijax as jax
from mpijax.ops.fourier import lowering as fft_lowering

SHAPES = [((1,), 1), ((2,), 1), ((7,), 1), ((257,), 1), ((3, 8), 1), ((3, 8), 2), ((2, 5, 7, 6), 3), ((4, 1, 3), 2)]
# Lines together and alone, with rests, of all radices, along axes before others, and beyond the cache.
SHAPES += [((16,), 1), ((1000,), 1), ((2, 416), 1), ((13, 40), 1), ((19, 22), 2), ((2, 24, 9), 2), ((30, 16), 2), ((6000,), 1), ((5004,), 1)]


def numbers(shape, dtype):
    rng = np.random.default_rng(0)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


def assert_close(x, y):
    assert x.dtype == y.dtype and x.shape == y.shape
    eps = np.finfo(x.dtype).eps
    np.testing.assert_allclose(x, y, rtol=0, atol=20 * eps * np.abs(y).max(initial=0))


@pytest.mark.parametrize("dtype", ("complex64", "complex128"))
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
@pytest.mark.one_in(4)
def test_transforms_are_those_of_scipy(dtype, shape, axes):
    x, sizes, last = numbers(shape, dtype), shape[-axes:], tuple(range(-axes, 0))
    with jax.enable_x64(True):
        assert_close(np.asarray(jax.lax.fft(x, "FFT", sizes)), scipy.fft.fftn(x, axes=last))
        assert_close(np.asarray(jax.lax.fft(x, "IFFT", sizes)), scipy.fft.ifftn(x, axes=last))
        real = np.ascontiguousarray(x.real)
        assert_close(np.asarray(jax.lax.fft(real, "RFFT", sizes)), scipy.fft.rfftn(real, axes=last))
        for size in (2 * sizes[-1] - 2, 2 * sizes[-1] - 1):
            if size:
                whole = (*sizes[:-1], size)
                assert_close(np.asarray(jax.lax.fft(x, "IRFFT", whole)), scipy.fft.irfftn(x, s=whole, axes=last))


@pytest.mark.parametrize("dtype", ("float32", "float64"))
@pytest.mark.parametrize(("shape", "axes"), [*SHAPES, ((70, 64), 1), ((0, 4), 1)])
@pytest.mark.one_in(4)
def test_reals_are_transformed_without_a_complex_copy(dtype, shape, axes):
    x, sizes, last = np.random.default_rng(1).normal(size=shape).astype(dtype), shape[-axes:], tuple(range(-axes, 0))
    with jax.enable_x64(True):
        for kind, expected in (("FFT", scipy.fft.fftn), ("IFFT", scipy.fft.ifftn)):
            compiled = jax.jit(lambda x, kind=kind: jax.lax.fft(x, kind, sizes)).lower(x).compile()
            assert_close(np.asarray(compiled(x)), expected(x, axes=last))
            assert "kernel" not in compiled.as_text() or 0 in shape
            both = jax.jit(lambda x, kind=kind: (jax.lax.fft(x + 0j, kind, sizes), jax.lax.fft(x * 2, kind, sizes)))
            for k, found in enumerate(both(x)):
                assert_close(np.asarray(found), (k + 1) * expected(x, axes=last))


def test_reals_as_half_a_spectrum():
    x = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)
    for sizes, last in (((8,), (1,)), ((3, 9), (0, 1))):
        found = np.asarray(jax.jit(lambda x, sizes=sizes: jax.lax.fft(x, "IRFFT", sizes))(x))
        assert_close(found, scipy.fft.irfftn(x, s=sizes, axes=last))


@pytest.mark.parametrize("kind", ("FFT", "IFFT"))
def test_transforms_of_reals_have_no_negative_zeros(kind):
    found = np.asarray(jax.jit(lambda x: jax.lax.fft(x, kind, (6,)))(np.ones((2, 6), np.float32)))
    assert not np.signbit(found.imag).any()


def test_loops_that_transform_call_no_python():
    """As a spectral solver does: a field is smoothed in each step."""
    keep = np.arange(9) < 4

    def turn(i, u):
        return jax.numpy.fft.irfft(jax.numpy.fft.rfft(u) * keep, 16)

    u = np.random.default_rng(0).normal(size=(3, 16)).astype(np.float32)
    compiled = jax.jit(lambda u: jax.lax.fori_loop(0, 3, turn, u)).lower(u).compile()
    assert " host " not in compiled.as_text() and "native fft" in compiled.as_text()
    np.testing.assert_allclose(compiled(u), np.fft.irfft(np.fft.rfft(u) * keep), atol=1e-5)


@pytest.mark.parametrize("dtype", ("complex64", "complex128"))
@pytest.mark.parametrize("n", (2, 3, 4, 5, 6, 7, 8, 11, 13, 26, 64, 105, 4096, 8192, 32768))
@pytest.mark.one_in(4)
def test_a_number_has_the_waves_of_its_place(dtype, n):
    with jax.enable_x64(True):
        k = np.arange(n)
        for place in {0, 1, n // 3, n - 1}:
            for shape in ((n,), (9, n)):
                x = np.zeros(shape, dtype)
                x[..., place] = 1 - 2j
                wave = (1 - 2j) * np.exp(-2j * np.pi * (place * k % n) / n)
                assert_close(np.asarray(jax.lax.fft(x, "FFT", (n,))), np.broadcast_to(wave, shape).astype(dtype))


def test_a_line_has_the_same_bits_beside_others_if_asked_for():
    x = numbers((11, 96), "complex64")
    with jax.enable_x64(False):
        jax.config.update("mpijax_same_bits", True)
        try:
            whole = np.asarray(jax.jit(lambda x: jax.lax.fft(x, "IFFT", (96,)))(x))
            down = np.asarray(jax.jit(lambda x: jax.numpy.fft.ifft(x, axis=0))(x.T))
            assert np.array_equal(down.T, whole)
            for rows in (1, 3, 8):
                some = jax.jit(lambda x: jax.lax.fft(x, "IFFT", (96,)))(x[2 : 2 + rows])
                assert np.array_equal(np.asarray(some), whole[2 : 2 + rows])
        finally:
            jax.config.update("mpijax_same_bits", False)


def test_without_numpys_loops_scipy_is_called(monkeypatch):
    monkeypatch.setattr(fft_lowering, "_ufuncs", lambda: None)
    x = numbers((2, 11), "complex64")
    compiled = jax.jit(lambda x: jax.numpy.fft.fft(x) + 3).lower(x).compile()
    assert " host fft" in compiled.as_text()
    assert_close(np.asarray(compiled(x)), scipy.fft.fft(x) + np.complex64(3))


def test_what_numpy_no_longer_offers_is_an_error():
    from mpijax._ext import fft

    with pytest.raises(ValueError, match="has loops for types .*, but not for"):
        fft.install([np.add] * 5)
