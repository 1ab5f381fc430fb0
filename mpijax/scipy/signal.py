"""Signals: convolutions, detrending, spectra over time, by SciPy's names."""

# ruff: noqa: F401
from mpijax.scipy.signal_convolve import convolve, convolve2d, correlate, correlate2d, fftconvolve
from mpijax.scipy.signal_spectra import csd, detrend, istft, stft, welch
