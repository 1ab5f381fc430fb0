"""scipy.signal, scipy.fft, scipy.ndimage, image and ops: values and errors as JAX's."""

import numpy as np
import pytest
import scipy.fft
import scipy.signal
from oracle import OURS, THEIRS, check, sample
from quickly import one_in

import mpijax
from mpijax.test_util import check_grads

PLANE, COMPLEX, SMALL = sample(5, 6), sample(3, 4, dtype=np.complex64), sample(2, 3)
SIGNAL = np.random.default_rng(0).standard_normal((2, 60)).astype(np.float32)
IMAGE = sample(5, 7, 3)
IDS = np.array([0, 2, 1, 2, 7, -1])
CLOSE = {"rtol": 3e-4, "atol": 3e-5, "jaxpr": False, "jitted": False, "compiled": True}
MODES = ("full", "same", "valid")


def each(names, options, make):
    return {f"{n} {o}": make(n, o) for n in names for o in options}


DCT = each(("dct", "idct", "dctn", "idctn"), (None, "ortho"), lambda f, norm: (
    lambda J: lambda x: getattr(J.scipy.fft, f)(x, norm=norm), PLANE)) | {
    "cut": (lambda J: lambda x: J.scipy.fft.dct(x, n=4, axis=0), COMPLEX),
    "filled": (lambda J: lambda x: J.scipy.fft.idct(x, n=9), PLANE),
    "three axes": (lambda J: lambda x: J.scipy.fft.dctn(x, s=(3, 4, 2)), sample(2, 4, 4, 2)),
    "type": (lambda J: lambda x: J.scipy.fft.dct(x, type=3), PLANE),
    "norm": (lambda J: lambda x: J.scipy.fft.idctn(x, norm="x"), PLANE),
}  # fmt: skip

CONVOLVE = each(("convolve", "correlate", "convolve2d", "correlate2d", "fftconvolve"), MODES, lambda f, mode: (
    lambda J: lambda x: (getattr(J.scipy.signal, f)(x, SMALL * 1j, mode),
                         getattr(J.scipy.signal, f)(J.numpy.asarray(SMALL), x, mode)), PLANE)) | {
    "along an axis": (lambda J: lambda x: J.scipy.signal.fftconvolve(x, x * 1j, "same", axes=1), PLANE),
    "by fft": (lambda J: lambda x: J.scipy.signal.convolve(x, SMALL, method="fft"), PLANE),
    "method": (lambda J: lambda x: J.scipy.signal.convolve(x, SMALL, method="x"), PLANE),
    "mode": (lambda J: lambda x: J.scipy.signal.fftconvolve(x, SMALL, "x"), PLANE),
    "neither": (lambda J: lambda x: J.scipy.signal.convolve(x, J.numpy.ones((7, 2))), PLANE),
    "boundary": (lambda J: lambda x: J.scipy.signal.convolve2d(x, SMALL, boundary="wrap"), PLANE),
}  # fmt: skip

SPECTRA = {
    "line": (lambda J: lambda x: J.scipy.signal.detrend(x), SIGNAL),
    "lines": (lambda J: lambda x: J.scipy.signal.detrend(x, axis=0, bp=[20, 50]), SIGNAL.T),
    "mean": (lambda J: lambda x: J.scipy.signal.detrend(x, type="constant"), SIGNAL),
    "trend": (lambda J: lambda x: J.scipy.signal.detrend(x, type="x"), SIGNAL),
    "break": (lambda J: lambda x: J.scipy.signal.detrend(x, bp=61), SIGNAL),
    "stft": (lambda J: lambda x: J.scipy.signal.stft(x, nperseg=16), SIGNAL),
    "stft everything": (lambda J: lambda x: J.scipy.signal.stft(
        x, fs=2.0, nperseg=15, noverlap=10, nfft=20, boundary="odd", detrend="linear", window="hamming"), SIGNAL),
    "stft axis": (lambda J: lambda x: J.scipy.signal.stft(x, nperseg=16, boundary="even", axis=0, padded=False),
                  SIGNAL.T.copy()),
    "istft": (lambda J: lambda x: J.scipy.signal.istft(
        J.scipy.signal.stft(x, nperseg=16, noverlap=11)[2], nperseg=16, noverlap=11), SIGNAL),
    "istft window": (lambda J: lambda x: J.scipy.signal.istft(
        J.scipy.signal.stft(x, nperseg=16)[2], nperseg=16, window=("tukey", 0.3)), SIGNAL),
    "welch": (lambda J: lambda x: J.scipy.signal.welch(x, nperseg=16), SIGNAL),
    "welch spectrum": (lambda J: lambda x: J.scipy.signal.welch(x, nperseg=16, scaling="spectrum", fs=3.0), SIGNAL),
    "csd": (lambda J: lambda x: J.scipy.signal.csd(x, x[:, ::-1], nperseg=15), SIGNAL),
    "csd of two lengths": (lambda J: lambda x: J.scipy.signal.csd(x, x[:, :50], nperseg=15, return_onesided=False),
                           SIGNAL),
    "overlap": (lambda J: lambda x: J.scipy.signal.stft(x, nperseg=16, noverlap=16), SIGNAL),
    "ends": (lambda J: lambda x: J.scipy.signal.stft(x, nperseg=16, boundary="x"), SIGNAL),
}  # fmt: skip

METHODS = ("linear", "cubic", "cubic-pytorch", "lanczos3", "lanczos5", "area")
IMAGES = each(("nearest", *METHODS), (True, False), lambda method, smooth: (
    lambda J: lambda x: J.image.resize(x, (9, 3, 3), method, antialias=smooth), IMAGE)) | {
    f"moved {method}": (lambda J, method=method: lambda x: J.image.scale_and_translate(
        x, (6, 9, 3), (0, -2), J.numpy.array([1.5, 0.6]), J.numpy.array([0.2, 1.0]), method), IMAGE)
    for method in METHODS[::2]} | {
    "bytes": (lambda J: lambda x: J.image.resize(x, (4, 4, 3), "bilinear"),
              np.arange(105, dtype=np.uint8).reshape(5, 7, 3)),
    "axes": (lambda J: lambda x: J.image.resize(x, (4, 4), "linear"), IMAGE),
    "method": (lambda J: lambda x: J.image.resize(x, (4, 4, 3), "x"), IMAGE),
    "no nearest": (lambda J: lambda x: J.image.scale_and_translate(
        x, (6, 9, 3), (0,), J.numpy.ones(1), J.numpy.ones(1), "nearest"), IMAGE),
    "gradient": (lambda J: J.grad(lambda x: (J.image.resize(x, (9, 3, 3), "cubic") ** 2).sum()), IMAGE),
}  # fmt: skip

# Large axes are resized by windows.
LARGE = sample(97, 131, 2)
LARGE_IMAGES = each(METHODS, (True, False), lambda method, smooth: (
    lambda J: lambda x: J.image.resize(x, (61, 200, 2), method, antialias=smooth), LARGE)) | {
    f"gradient {method}": (lambda J, method=method: J.grad(
        lambda x: (J.image.resize(x, (200, 61, 2), method, antialias=False) ** 2).sum()), LARGE)
    for method in METHODS[::2]} | {
    "mapped": (lambda J: J.vmap(lambda x: J.image.resize(x, (50, 200), "linear"), 2, 1), LARGE),
    "second derivative": (lambda J: J.grad(lambda x: J.jvp(
        J.grad(lambda x: (J.image.resize(x, (200, 131, 2), "linear") ** 3).mean()), (x,), (x,))[1].sum()), LARGE),
    "bfloat16": (lambda J: lambda x: J.image.resize(x.astype("bfloat16"), (200, 131, 2), "cubic"), LARGE),
}  # fmt: skip


def _sampled(mode, order):
    return lambda J: lambda x: J.scipy.ndimage.map_coordinates(
        x, [J.numpy.array([-1.3, 0.5, 7.2, 3.0, 5.5]), J.numpy.array([0.2, 1.5, 2.5, -4, 9.0])], order, mode, cval=3.0
    )


SAMPLED = each(("constant", "nearest", "wrap", "mirror", "reflect"), (0, 1), lambda mode, order: (
    _sampled(mode, order), PLANE)) | {"ndimage mode": (_sampled("x", 1), PLANE), "order": (_sampled("wrap", 2), PLANE),
    "integers": (_sampled("constant", 1), np.arange(30).reshape(5, 6))}  # fmt: skip

SEGMENTS = each(("sum", "prod", "min", "max"), ("float32", "int32", "bool"), lambda name, dtype: (
    lambda J: lambda x: [getattr(J.ops, f"segment_{name}")(x, IDS, **how)
                         for how in ({}, {"num_segments": 3}, {"num_segments": 4, "bucket_size": 2})],
    sample(6, 2, dtype=dtype))) | {
    "segment gradient": (lambda J: J.grad(lambda x: (J.ops.segment_max(x, IDS, 3) ** 2).sum()), sample(6)),
    "segment count": (lambda J: lambda x: J.ops.segment_sum(x, IDS, -2), sample(6)),
    "segments unknown": (lambda J: J.jit(lambda i: J.ops.segment_sum(sample(6), i)), IDS),
}  # fmt: skip

CASES = DCT | CONVOLVE | SPECTRA | IMAGES | LARGE_IMAGES | SAMPLED | SEGMENTS


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*one_in(3, DCT | CONVOLVE), *one_in(2, SPECTRA | IMAGES | LARGE_IMAGES | SAMPLED | SEGMENTS)])
@pytest.mark.one_in(4)
def test_values_and_errors_are_jaxs(name):
    make, x = CASES[name]
    check(make, x, **CLOSE)


@pytest.mark.parametrize("fun", ["dct", "idct", "dctn", "idctn"])
def test_cosine_transforms_are_scipys(fun):
    for norm in (None, "ortho"):
        got = getattr(OURS.scipy.fft, fun)(PLANE, norm=norm)
        np.testing.assert_allclose(got, getattr(scipy.fft, fun)(PLANE, norm=norm), rtol=1e-4, atol=1e-4)


def test_signals_are_scipys():
    with mpijax.enable_x64(True):
        x = SIGNAL.astype(np.float64)
        for ours, theirs in zip(OURS.scipy.signal.stft(x, nperseg=16), scipy.signal.stft(x, nperseg=16), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-12)
        _, back = OURS.scipy.signal.istft(OURS.scipy.signal.stft(x, nperseg=16)[2], nperseg=16)
        np.testing.assert_allclose(back[:, :60], x, atol=1e-12)
        np.testing.assert_allclose(
            OURS.scipy.signal.detrend(x, bp=[30]), scipy.signal.detrend(x, bp=[30]), atol=1e-12)


def test_compiled_gives_the_same():
    for name in ("stft", "gradient", "segment gradient", "three axes", "constant 1", "cubic True"):
        make, x = CASES[name]
        eager, jitted = make(OURS)(x), OURS.jit(make(OURS))(x)
        for a, b in zip(OURS.tree.leaves(eager), OURS.tree.leaves(jitted), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_gradient_by_scale_and_translation():
    def moved(scale, translation):
        return OURS.image.scale_and_translate(IMAGE, (6, 7, 3), (0, 1), scale, translation, "cubic")

    with mpijax.enable_x64(True):
        check_grads(moved, (np.array([1.3, 0.7]), np.array([0.2, 0.4])), order=1, modes=["rev"], eps=1e-5)


@pytest.mark.parametrize("module", ["scipy.fft", "scipy.signal", "scipy.ndimage", "image", "ops"])
def test_names_are_jaxs(module):
    theirs, ours = THEIRS, OURS
    for part in module.split("."):
        theirs, ours = getattr(theirs, part), getattr(ours, part)
    for name in dir(theirs):
        if not name.startswith("_"):
            assert getattr(ours, name) is not None
