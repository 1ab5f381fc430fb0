"""Signals: convolutions, detrending, and spectra over time, with SciPy's names."""

from mpijax.scipy.signal_convolve import convolve, convolve2d, correlate, correlate2d, fftconvolve
from mpijax.scipy.signal_spectra import csd, detrend, istft, stft, welch

__all__ = [
    "convolve", "convolve2d", "correlate", "correlate2d", "csd", "detrend", "fftconvolve", "istft", "stft",
    "welch",
]  # fmt: skip
