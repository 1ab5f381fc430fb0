"""Spectra of signals over time: segments are multiplied by a window and transformed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.base.warn import warn_user
from mpijax.numpy import fft as jnp_fft
from mpijax.numpy.util import (
    canonical_axis,
    check_arraylike,
    ensure_arraylike,
    promote_dtypes_complex,
    promote_dtypes_inexact,
)

# ---------------------------------------------------------------- trends


def detrend(
    data: Any, axis: int = -1, type: str = "linear", bp: int | Sequence[int] = 0, overwrite_data: None = None
) -> Any:
    """Subtract the mean, or the least-squares line, along an axis.

    Args:
      type: "linear" or "constant".
      bp: positions at which a new line begins; the pieces are detrended separately.

    Raises:
      ValueError: an unknown type, or breakpoints outside of the data. NotImplementedError: `overwrite_data` is given.

    >>> mpijax.scipy.signal.detrend(jnp.array([1.0, 2.0, 3.0, 2.0]), type="constant")
    Array([-1.,  0.,  1.,  0.], dtype=float32)
    """
    if overwrite_data is not None:
        raise NotImplementedError("overwrite_data argument not implemented: arrays are immutable.")
    if type not in ("constant", "linear"):
        raise ValueError(f"Trend type must be 'linear' or 'constant', got {type!r}.")
    (x,) = promote_dtypes_inexact(jnp.asarray(data))
    if type == "constant":
        return x - x.mean(axis, keepdims=True)
    size = x.shape[axis]
    breaks = np.unique(np.r_[0, bp, size])
    if breaks[0] < 0 or breaks[-1] > size:
        raise ValueError(
            f"Breakpoints must be non-negative and less than length of data along given axis, got {bp} for {size}."
        )
    x = jnp.moveaxis(x, axis, 0)
    pieces = [_without_line(x[begin:end]) for begin, end in zip(breaks[:-1], breaks[1:], strict=True)]
    return jnp.moveaxis(jnp.concatenate(pieces, 0), 0, axis)


def _without_line(x: Any) -> Any:
    """x without its least-squares line along the first axis. Mean and slope are its products with a basis."""
    n = x.shape[0]
    position = np.arange(n) - (n - 1) / 2
    basis = [np.full(n, n**-0.5)]
    if n > 1:
        basis.append(position / np.sqrt((position**2).sum()))
    real = np.zeros((), x.dtype).real.dtype
    rows = jnp.array(np.stack(basis).astype(real))
    parts = jnp.tensordot(rows.astype(x.dtype), x, 1, precision=lax.Precision.HIGHEST)
    return x - jnp.tensordot(rows.T.astype(x.dtype), parts, 1, precision=lax.Precision.HIGHEST)


# ---------------------------------------------------------------- windows, ends


def _hann(size: int) -> Any:
    return jnp.array([1.0]) if size == 1 else jnp.sin(jnp.linspace(0, np.pi, size, endpoint=False)) ** 2


def _named_window(window: Any, size: int) -> Any:
    if isinstance(window, str) and window == "hann":
        return _hann(size)
    from scipy.signal import get_window  # half a second to load

    return get_window(window, size)


def _window(window: Any, nperseg: int | None, length: int, dtype: Any) -> tuple[Any, int]:
    """The window, and the number of elements of a segment."""
    if isinstance(window, (str, tuple)):
        size = length if nperseg is None else int(nperseg)
        if size > length:
            warn_user(
                f"nperseg={size} is greater than input_length={length}, using nperseg={length}"
            )
            size = length
        return jnp.array(_named_window(window, size), dtype=dtype), size
    win = jnp.asarray(window, dtype=dtype)
    if win.ndim != 1:
        raise ValueError(f"window must be 1-D, got shape {win.shape}")
    if length < win.size:
        raise ValueError(f"window is longer than input signal: {win.size} > {length}")
    if nperseg is not None and nperseg != win.size:
        raise ValueError(f"value specified for nperseg is different from length of window: {nperseg}, {win.size}")
    return win, win.size


def _odd(x: Any, n: int) -> Any:
    """x extended beyond each end by its point reflection at that end."""
    if n < 1:
        return x
    if n > x.shape[-1] - 1:
        raise ValueError(
            f"The extension length n ({n}) is too big. It must not exceed x.shape[axis]-1, which is {x.shape[-1] - 1}."
        )
    left = 2 * x[..., :1] - jnp.flip(x[..., 1 : n + 1], -1)
    right = 2 * x[..., -1:] - jnp.flip(x[..., -(n + 1) : -1], -1)
    return jnp.concatenate((left, x, right), axis=-1)


def _by_pad(mode: str) -> Callable[[Any, int], Any]:
    return lambda x, n: jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(n, n)], mode)


_BOUNDARIES: dict[Any, Callable[[Any, int], Any]] = {
    "even": _by_pad("reflect"), "odd": _odd, "constant": _by_pad("edge"), "zeros": _by_pad("constant"),
    None: lambda x, n: x,
}  # fmt: skip


# ---------------------------------------------------------------- spectra


def _segments(x: Any, win: Any, trend: Callable, size: int, overlap: int, nfft: int, onesided: bool) -> Any:
    """[..., segment, frequency]: transforms of the windowed segments of x [..., time]."""
    if dtypes.issubdtype(x.dtype, np.integer):
        x = x.astype(win.dtype)
    starts = np.arange(0, x.shape[-1] - size + 1, size - overlap)
    parts = trend(x[..., starts[:, None] + np.arange(size)])
    if jnp.iscomplexobj(win):
        (parts,) = promote_dtypes_complex(parts)
    parts = lax.expand_dims(win, range(parts.ndim - 1)) * parts
    return jnp_fft.rfft(parts.real, n=nfft) if onesided else jnp_fft.fft(parts, n=nfft)


def _trend_function(kind: Any, axis: int) -> Callable[[Any], Any]:
    if isinstance(kind, str):
        return lambda x: detrend(x, type=kind, axis=-1)
    if callable(kind):
        return lambda x: jnp.moveaxis(kind(jnp.moveaxis(x, axis, -1)), -1, axis)
    if kind:
        raise ValueError(f"Unsupported detrend type: {kind}")
    return lambda x: x


def _joined(x: Any, zeros: int) -> Any:
    return jnp.concatenate((x, jnp.zeros((*x.shape[:-1], zeros), x.dtype)), axis=-1)


def _scale(scaling: str, win: Any, fs: Any) -> Any:
    if scaling == "density":
        return 1.0 / (fs * (win * win).sum())
    if scaling == "spectrum":
        return 1.0 / win.sum() ** 2
    raise ValueError(f"Unknown scaling: {scaling}; known are 'density' and 'spectrum'.")


def _operands(x: Any, y: Any, axis: int) -> tuple[Any, Any]:
    """x and y with time as the last axis and of the same size; y is None if it is not given."""
    if y is None:
        check_arraylike("spectral_helper", x)
        (x,) = promote_dtypes_inexact(x)
        return jnp.moveaxis(x, axis, -1), None
    check_arraylike("spectral_helper", x, y)
    x, y = promote_dtypes_inexact(x, y)
    if x.ndim != y.ndim:
        raise ValueError(f"two-arguments must have the same rank ({x.ndim} vs {y.ndim}).")
    x, y = jnp.moveaxis(x, axis, -1), jnp.moveaxis(y, axis, -1)
    try:
        jnp.broadcast_shapes(x.shape[:-1], y.shape[:-1])
    except ValueError as error:
        raise ValueError(f"x and y cannot be broadcast together: {x.shape} and {y.shape} (time last).") from error
    longer = max(x.shape[-1], y.shape[-1])
    return tuple(z if z.shape[-1] == longer else _joined(z, longer - z.shape[-1]) for z in (x, y))  # type: ignore


def _nothing(x: Any, y: Any, axis: int) -> tuple[Any, Any, Any]:
    shape = x.shape[:-1] if y is None else jnp.broadcast_shapes(x.shape[:-1], y.shape[:-1])
    shape = list(shape)
    shape.insert(axis, x.shape[-1] if y is None else 0)
    result = dtypes.to_complex_dtype(x.dtype)
    real = dtypes.finfo(result).dtype
    return jnp.zeros(shape, real), jnp.zeros(shape, real), jnp.zeros(shape, result)


def _spectra(
    x: Any, y: Any, fs: Any, window: Any, nperseg: int | None, noverlap: int | None, nfft: int | None, trend: Any,
    onesided: bool, scaling: str, axis: int, mode: str, boundary: str | None = None, padded: bool = False,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Frequencies, times of the middles of segments, and their spectra or (`psd`) powers, or powers with y."""
    if boundary not in _BOUNDARIES:
        raise ValueError(f"Unknown boundary option '{boundary}', must be one of: {list(_BOUNDARIES)}")
    axis = canonical_axis(axis, x.ndim)
    if nperseg is not None and int(nperseg) < 1:
        raise ValueError(f"nperseg must be a positive integer, got {nperseg}")
    length = x.shape[axis]
    empty = x.size == 0 or (y is not None and jnp.size(y) == 0)
    x, other = _operands(x, y, axis)
    result_dtype = dtypes.to_complex_dtype(x.dtype)
    real_dtype = dtypes.finfo(result_dtype).dtype
    win, size = _window(window, nperseg, length, x.dtype)
    if empty:
        return _nothing(x, other, axis)
    overlap = size // 2 if noverlap is None else int(noverlap)
    nfft = size if nfft is None else int(nfft)
    if nfft < size:
        raise ValueError(f"nfft must be greater than or equal to nperseg, got {nfft} and {size}.")
    if overlap >= size:
        raise ValueError(f"noverlap must be less than nperseg, got {overlap} and {size}.")
    step = size - overlap
    arrays = [z for z in (x, other) if z is not None]
    if boundary is not None:
        arrays = [_BOUNDARIES[boundary](z, size // 2) for z in arrays]
    if padded:
        arrays = [_joined(z, -(z.shape[-1] - size) % step % size) for z in arrays]
    scale = _scale(scaling, win, fs)
    (scale,) = promote_dtypes_complex(jnp.sqrt(scale) if mode == "stft" else scale)
    if onesided and any(map(jnp.iscomplexobj, arrays)):
        warn_user("Input data is complex, switching to return_onesided=False")
        onesided = False
    freqs = (jnp_fft.rfftfreq if onesided else jnp_fft.fftfreq)(nfft, 1 / fs, dtype=real_dtype)
    spectra = [_segments(z, win, _trend_function(trend, axis), size, overlap, nfft, onesided) for z in arrays]
    out = spectra[0]
    if mode == "psd":
        out = jnp.conjugate(out) * spectra[-1]
    out = out * scale
    if onesided and mode == "psd":
        out = out.at[..., 1 : None if nfft % 2 else -1].mul(2)
    time = jnp.arange(size / 2, arrays[0].shape[-1] - size / 2 + 1, step, dtype=real_dtype) / fs
    if boundary is not None:
        time = time - size / 2 / fs
    out = jnp.moveaxis(out.astype(result_dtype), -1, axis)
    out = out.real if other is None and mode == "psd" else out
    return freqs, time, out


def stft(
    x: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int = 256, noverlap: int | None = None,
    nfft: int | None = None, detrend: Any = False, return_onesided: bool = True, boundary: str | None = "zeros",
    padded: bool = True, axis: int = -1,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Spectra of overlapping segments.

    Args:
      x: array of shape [..., time]. fs: samples per unit of time.
      window: an array, or an argument of `scipy.signal.get_window`.
      nperseg, noverlap: size of segments and of their overlap (default half a segment). nfft: size of the transform
        (default nperseg).
      detrend: False, "constant", "linear" or a function. boundary: how to extend the ends by half a segment.

    Returns:
      (frequencies, times, complex array of shape [..., frequency, time]).

    >>> frequencies, times, spectra = mpijax.scipy.signal.stft(jnp.sin(jnp.arange(64.0)), nperseg=16)
    >>> frequencies.shape, times.shape, spectra.shape
    ((9,), (9,), (9, 9))
    """
    return _spectra(
        x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, "spectrum", axis, "stft", boundary,
        padded,
    )  # fmt: skip


def csd(
    x: Any, y: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
    nfft: int | None = None, detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density",
    axis: int = -1, average: str = "mean",
) -> tuple[Any, Any]:  # fmt: skip
    """The cross power spectrum of two signals, averaged over segments; the power spectrum of x if y is None.

    Args:
      scaling: "density" (per unit of frequency) or "spectrum". average: "mean" or "median". Others as for `stft`.

    Returns:
      (frequencies, array of shape [..., frequency]).

    >>> x = jnp.sin(2 * np.pi * jnp.arange(64) / 8)
    >>> frequencies, power = mpijax.scipy.signal.csd(x, x, nperseg=16)
    >>> frequencies[jnp.argmax(jnp.abs(power))]
    Array(0.125, dtype=float32)
    """
    freqs, _, power = _spectra(
        x, y, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, "psd"
    )
    if y is not None:
        power = power + 0j
    if power.ndim < 2 or power.size == 0:
        return freqs, power
    if power.shape[-1] == 1:
        return freqs, jnp.reshape(power, power.shape[:-1])
    if average == "mean":
        return freqs, power.mean(axis=-1)
    if average != "median":
        raise ValueError(f'average must be "median" or "mean", got {average}')
    even = jnp.arange(2.0, power.shape[-1], 2)
    bias = (1 + jnp.sum(1.0 / (even + 1) - 1.0 / even)).astype(power.dtype)
    if jnp.iscomplexobj(power):
        power = jnp.median(jnp.real(power), axis=-1) + 1j * jnp.median(jnp.imag(power), axis=-1)
    else:
        power = jnp.median(power, axis=-1)
    return freqs, power / bias


def welch(
    x: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
    nfft: int | None = None, detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density",
    axis: int = -1, average: str = "mean",
) -> tuple[Any, Any]:  # fmt: skip
    """The power spectrum of a signal, averaged over segments. Arguments are those of `csd`.

    >>> x = jnp.sin(2 * np.pi * jnp.arange(64) / 8)
    >>> frequencies, power = mpijax.scipy.signal.welch(x, nperseg=16)
    >>> frequencies[jnp.argmax(power)]
    Array(0.125, dtype=float32)
    """
    freqs, power = csd(
        x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average
    )
    return freqs, power.real


# ---------------------------------------------------------------- back to signals


def _overlap_and_add(x: Any, step: int) -> Any:
    """Signals [..., time] from segments [..., segment, element] at a distance of `step`."""
    *batch, count, size = x.shape
    length = step * (count - 1) + size
    pieces = -(-size // step)
    x = jnp.pad(x.reshape(math.prod(batch), count, size), ((0, 0), (0, 0), (0, pieces * step - size)))
    x = x.reshape(-1, count, pieces, step)
    total = sum(
        (jnp.pad(x[:, :, p], ((0, 0), (p, pieces - 1 - p), (0, 0))) for p in range(1, pieces)),
        jnp.pad(x[:, :, 0], ((0, 0), (0, pieces - 1), (0, 0))),
    )
    return total.reshape(total.shape[0], -1)[:, :length].reshape(*batch, length)


def istft(
    Zxx: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
    nfft: int | None = None, input_onesided: bool = True, boundary: bool = True, time_axis: int = -1,
    freq_axis: int = -2,
) -> tuple[Any, Any]:  # fmt: skip
    """The inverse of `stft`: the signal of `Zxx`, with the same window and sizes.

    Returns:
      (times, array of shape [..., time]).

    >>> x = jnp.sin(jnp.arange(64.0))
    >>> times, same = mpijax.scipy.signal.istft(mpijax.scipy.signal.stft(x, nperseg=16)[2], nperseg=16)
    >>> jnp.allclose(same, x, atol=1e-5)
    Array(True, dtype=bool)
    """
    z = ensure_arraylike("istft", Zxx)
    if z.ndim < 2:
        raise ValueError(f"Input stft must be at least 2d, got shape {z.shape}!")
    freq_axis, time_axis = canonical_axis(freq_axis, z.ndim), canonical_axis(time_axis, z.ndim)
    if freq_axis == time_axis:
        raise ValueError("Must specify differing time and frequency axes!")
    z = jnp.asarray(z, dtype=dtypes.to_complex_dtype(z.dtype))
    default = 2 * (z.shape[freq_axis] - 1) if input_onesided else z.shape[freq_axis]
    size = int(nperseg or default)
    if size < 1:
        raise ValueError(f"nperseg must be a positive integer, got {size}")
    length = int(nfft) if nfft is not None else default + (input_onesided and size == default + 1)
    if length < size:
        raise ValueError(f"FFT length ({length}) must be longer than nperseg ({size}).")
    overlap = int(noverlap or size // 2)
    if overlap >= size:
        raise ValueError(f"noverlap must be less than nperseg, got {overlap} and {size}.")
    step = size - overlap
    others = tuple(a for a in range(z.ndim) if a not in (time_axis, freq_axis))
    z = jnp.transpose(z, (*others, freq_axis, time_axis))
    inverse = jnp_fft.irfft if input_onesided else jnp_fft.ifft
    parts = inverse(z, axis=-2, n=nfft)[..., :size, :]
    win = _inverse_window(window, size, parts.dtype)
    parts = parts * win.sum()
    win = lax.expand_dims(win, (*range(parts.ndim - 2), -1))
    x = _overlap_and_add((parts * win).swapaxes(-2, -1), step)
    norm = _overlap_and_add(jnp.repeat(win * win, parts.shape[-1], axis=-1).swapaxes(-2, -1), step)
    if boundary:
        half = size // 2
        x, norm = x[..., half:-half], norm[..., half:-half]
    x = x / jnp.where(norm > 1e-10, norm, 1.0)
    if x.ndim > 1 and time_axis != z.ndim - 1:
        x = jnp.moveaxis(x, -1, time_axis - (freq_axis < time_axis))
    return jnp.arange(x.shape[0], dtype=dtypes.finfo(x.dtype).dtype) / fs, x


def _inverse_window(window: Any, size: int, dtype: Any) -> Any:
    if isinstance(window, (str, tuple)):
        return jnp.array(_named_window(window, size), dtype=dtype)
    win = jnp.asarray(window)
    if win.ndim != 1:
        raise ValueError(f"window must be 1-D, got shape {win.shape}")
    if win.shape[0] != size:
        raise ValueError(f"window must have length of {size}, got {win.shape[0]}")
    return win
