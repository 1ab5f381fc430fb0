"""numpy.fft, convolve and correlate: values, Jaxprs, derivatives, errors as JAX's; values as NumPy's."""

import numpy as np
import pytest
from oracle import OURS, THEIRS, check, jaxpr_text, same_text, sample
from quickly import one_in

import mpijax
from mpijax.test_util import check_grads

REAL, MATRIX, BLOCK = sample(6), sample(3, 4, dtype=np.complex64), sample(2, 3, 4, 5, 6)
CLOSE = {"rtol": 2e-5, "atol": 2e-5}


def call(name, *args, **how):
    """A function of numpy.fft, by its name."""
    return lambda J: lambda x: getattr(J.numpy.fft, name)(x, *args, **how)


CASES = {
    "fft": (call("fft"), REAL), "ints": (call("fft"), np.arange(5)), "rfft": (call("rfft"), REAL),
    "irfft": (call("irfft"), REAL), "irfft odd": (call("irfft", n=7), MATRIX), "hfft": (call("hfft"), MATRIX),
    "ihfft": (call("ihfft"), REAL), "longer": (call("ifft", n=9, axis=0), MATRIX), "shorter": (call("rfft", n=3), REAL),
    "ortho": (call("fftn", (4, 3), (0, 1), "ortho"), MATRIX), "forward": (call("irfft2", norm="forward"), MATRIX),
    "backward": (call("ifft2", norm="backward"), MATRIX), "rfft2": (call("rfft2", axes=(0, 2)), BLOCK[0, 0]),
    "last axes": (call("ifftn", (2, 2)), MATRIX), "five axes": (call("rfftn"), BLOCK),
    "four axes": (call("irfftn", axes=(3, 1, 0, 4)), BLOCK), "fft2": (call("fft2"), MATRIX),
    "shift": (call("fftshift"), MATRIX), "shift back": (call("ifftshift", 1), MATRIX),
    "shift axes": (call("ifftshift", (0, -1)), MATRIX),
    "frequencies": (lambda J: lambda x: J.numpy.fft.fftfreq(5) + J.numpy.fft.fftfreq(5, 0.1), REAL),
    "real frequencies": (lambda J: lambda x: (J.numpy.fft.rfftfreq(7, 0.1), J.numpy.fft.rfftfreq(6)), REAL),
    "whole": (lambda J: lambda x: J.lax.fft(x, "irfft", ()), MATRIX),
    "vmap": (lambda J: J.vmap(J.numpy.fft.rfft, in_axes=1), sample(5, 3)),
    "rfft gradient": (lambda J: J.grad(lambda x: J.numpy.abs(J.numpy.fft.rfft(x)).sum()), REAL),
    "irfft gradient": (lambda J: J.grad(lambda x: J.numpy.fft.irfft(x * (1 + 2j)).sum()), REAL),
    "convolve": (lambda J: lambda x: J.numpy.convolve(x, x[:3]), REAL),
    "convolve same": (lambda J: lambda x: J.numpy.convolve(x[:3], x, "same"), REAL),
    "correlate": (lambda J: lambda x: J.numpy.correlate(x[:3], x, "full"), REAL),
    "correlate complex": (lambda J: lambda x: J.numpy.correlate(x, x[:4]), MATRIX[0]),
    "convolve ints": (lambda J: lambda x: J.numpy.convolve(x, x, preferred_element_type=np.int32), np.arange(5)),
}  # fmt: skip


@pytest.mark.parametrize("name", one_in(3, CASES))
@pytest.mark.one_in(3)
def test_values_and_jaxprs_are_jaxs(name):
    make, x = CASES[name]
    check(make, x, eager=False, **CLOSE)


ERRORS = {
    "complex": (call("rfft"), MATRIX), "length": (call("fft", n=0), REAL), "norm": (call("fft2", norm="x"), MATRIX),
    "axes": (call("fft", axis=(0, 1)), MATRIX), "lengths": (call("fftn", (2,), (0, 1)), MATRIX),
    "twice": (call("fftn", axes=(1, 1)), MATRIX), "three": (call("fft2", axes=(0, 1, 2)), BLOCK),
    "narrow": (call("rfft"), REAL.astype(np.float16)), "empty": (call("fft"), sample(0)),
    "count": (lambda J: lambda x: J.numpy.fft.fftfreq([3]), REAL),
    "kind": (lambda J: lambda x: J.lax.fft(x, "dft", (6,)), REAL),
    "no kind": (lambda J: lambda x: J.lax.fft(x, 7, (6,)), REAL),
    "sizes": (lambda J: lambda x: J.lax.fft(x, "FFT", (5,)), REAL),
    "many sizes": (lambda J: lambda x: J.lax.fft(x, "FFT", (1, 6)), REAL),
    "convolve": (lambda J: lambda x: J.numpy.convolve(x, x), MATRIX),
    "mode": (lambda J: lambda x: J.numpy.convolve(x, x, "all"), REAL),
    "nothing": (lambda J: lambda x: J.numpy.convolve(x, x[:0]), REAL),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_jaxs(name):
    make, x = ERRORS[name]
    check(make, x, jaxpr=False, jitted=False, **CLOSE)


@pytest.mark.parametrize("kind", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
@pytest.mark.parametrize("n", [1, 5, 8])
@pytest.mark.one_in(3)
def test_double_precision_is_numpys(kind, n):
    x = np.random.default_rng(n).standard_normal((2, n)) * (1 if kind in ("rfft", "ihfft") else 1 + 2j)
    with mpijax.enable_x64(True):
        for how in ({}, {"n": 6, "axis": 0}):
            if n == 1 and kind in ("irfft", "hfft") and not how:
                continue  # of no elements, which NumPy refuses
            got, want = getattr(OURS.numpy.fft, kind)(x, **how), getattr(np.fft, kind)(x, **how)
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)


def test_names_are_jaxs():
    names = {n for n in dir(THEIRS.numpy.fft) if not n.startswith("_")}
    assert names <= set(dir(OURS.numpy.fft))


@pytest.mark.parametrize("kind", ["RFFT", "IRFFT", "IFFT"])
def test_second_derivatives(kind):
    x = np.random.default_rng(0).standard_normal((3, 4))
    with mpijax.enable_x64(True):
        check_grads(lambda x: OURS.lax.fft(x, kind, (3, 6 if kind == "IRFFT" else 4)) ** 2, (x,), order=2)


@pytest.mark.parametrize("kind", ["rfftn", "irfftn", "fftn"])
def test_jaxprs_of_derivatives_over_several_axes(kind):
    def gradient(J):
        return J.grad(lambda x: J.numpy.abs(getattr(J.numpy.fft, kind)(x)).sum())

    theirs, ours = (jaxpr_text(J, gradient, (BLOCK[0, 0],)) for J in (THEIRS, OURS))
    assert same_text(theirs[1], ours[1]), f"{theirs[1]}\n{ours[1]}"
