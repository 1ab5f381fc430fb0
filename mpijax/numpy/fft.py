"""Discrete Fourier transforms, with NumPy's names.

`norm`: "backward" (the default) divides inverse transforms by the number of elements, "forward" divides forward
transforms by it, and "ortho" divides both by its square root. Transforms keep the precision of the input: float32
gives complex64.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.core import dtypes
from mpijax.numpy.util import ensure_arraylike, promote_dtypes_inexact
from mpijax.ops.fourier.fft import FftType
from mpijax.ops.fourier.fft import fft as transform

Axes = Sequence[int] | None

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "irfft",
    "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

# ---------------------------------------------------------------- any number of axes


def _transform(name: str, kind: FftType, a: Any, s: Sequence[int] | None, axes: Axes, norm: str | None) -> Any:
    """The transform over `axes`, which are moved to the end meanwhile. Axes are cut, or filled with zeros, to the sizes
    `s`."""
    full_name = f"jax.numpy.fft.{name}"
    x = ensure_arraylike(full_name, a)
    if s is not None:
        s = tuple(map(operator.index, s))
        if any(n <= 0 for n in s):
            raise ValueError(f"{full_name}: Shape should be positive, got {s}.")
    if s is not None and axes is not None and len(s) != len(axes):
        raise ValueError(f"{full_name}: Shape and axes have different lengths, got {s} and {axes}.")
    count = len(axes) if axes is not None else x.ndim if s is None else len(s)
    last = tuple(range(x.ndim - count, x.ndim))
    if axes is not None:
        if len(axes) != len(set(axes)):
            raise ValueError(f"{full_name} does not support repeated axes. Got axes {axes}.")
        x = jnp.moveaxis(x, axes, last)
    if s is None:
        s = [x.shape[d] for d in last]
        if kind == FftType.IRFFT and s:
            s[-1] = max(0, 2 * (s[-1] - 1))
    else:
        x = _resized(x, last, s, kind)
    out = _by_threes(x, kind, tuple(s))
    if norm is not None:
        out = out * _factor(jnp.array(s, dtype=out.dtype), name, norm)
    return out if axes is None else jnp.moveaxis(out, last, axes)


def _resized(x: Any, axes: Sequence[int], s: Sequence[int], kind: FftType) -> Any:
    sizes = list(x.shape)
    for d, n in zip(axes, s, strict=True):
        sizes[d] = n
    if kind == FftType.IRFFT:
        sizes[-1] = sizes[-1] // 2 + 1
    x = x[tuple(slice(n) for n in sizes)]
    return jnp.pad(x, [(0, n - own) for n, own in zip(sizes, x.shape, strict=True)])


def _by_threes(x: Any, kind: FftType, s: tuple[int, ...]) -> Any:
    """The primitive transforms up to three axes at once; four axes are transformed two at a time."""
    if len(s) <= 3:
        return transform(x, kind, s)
    n = 2 if len(s) == 4 else 3
    first = tuple(range(x.ndim - len(s), x.ndim - n))
    later = tuple(range(x.ndim - len(s) + n, x.ndim))
    if kind in (FftType.RFFT, FftType.FFT):
        x = jnp.moveaxis(transform(x, kind, s[-n:]), first, later)
        return jnp.moveaxis(_by_threes(x, FftType.FFT, s[:-n]), later, first)
    x = _by_threes(jnp.moveaxis(x, first, later), FftType.IFFT, s[:-n])
    return transform(jnp.moveaxis(x, later, first), kind, s[-n:])


def _factor(s: Any, name: str, norm: str) -> Any:
    if norm == "backward":
        return jnp.array(1)
    (s,) = promote_dtypes_inexact(s)
    if norm not in ("ortho", "forward"):
        raise ValueError(f'Invalid norm value {norm}; should be "backward","ortho" or "forward".')
    total = jnp.prod(s)
    total = jnp.sqrt(total) if norm == "ortho" else total
    return total if name.startswith("i") else 1 / total


def fftn(a: Any, s: Sequence[int] | None = None, axes: Axes = None, norm: str | None = None) -> Any:
    """Fourier transform over several axes.

    Args:
      a: array of any dtype.
      s: sizes of the transformed axes. `a` is cut, or filled with zeros, to these sizes. Default: the sizes of `a`.
      axes: axes to transform. Default: all axes, or the last `len(s)` axes if `s` is given.
      norm: "backward" (also None), "ortho" or "forward".

    Returns:
      Complex array: complex64, or complex128 for inputs of double precision.

    Raises:
      ValueError: a size is not positive, `s` and `axes` differ in number, an axis is repeated, or the norm is unknown.

    >>> jnp.fft.fftn(jnp.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[(10+0j), (-2+0j)], [(-4+0j), 0j]]
    """
    return _transform("fftn", FftType.FFT, a, s, axes, norm)


def ifftn(a: Any, s: Sequence[int] | None = None, axes: Axes = None, norm: str | None = None) -> Any:
    """The inverse of `fftn`, with its arguments, result and errors.

    >>> jnp.fft.ifftn(jnp.array([[10.0, -2.0], [-4.0, 0.0]])).tolist()
    [[(1+0j), (2+0j)], [(3+0j), (4+0j)]]
    """
    return _transform("ifftn", FftType.IFFT, a, s, axes, norm)


def rfftn(a: Any, s: Sequence[int] | None = None, axes: Axes = None, norm: str | None = None) -> Any:
    """`fftn` of real numbers. The last axis of the result has the first n // 2 + 1 of n elements.

    Raises:
      ValueError: `a` is complex, or as for `fftn`.

    >>> jnp.fft.rfftn(jnp.ones((4, 6))).shape
    (4, 4)
    """
    return _transform("rfftn", FftType.RFFT, a, s, axes, norm)


def irfftn(a: Any, s: Sequence[int] | None = None, axes: Axes = None, norm: str | None = None) -> Any:
    """The inverse of `rfftn`: real. The last axis has the size 2 * (n - 1) unless `s` gives another. Errors as for
    `fftn`.

    >>> jnp.fft.irfftn(jnp.fft.rfftn(jnp.eye(2))).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return _transform("irfftn", FftType.IRFFT, a, s, axes, norm)


# ---------------------------------------------------------------- one axis


def _single(name: str, kind: FftType, a: Any, n: int | None, axis: int | None, norm: str | None) -> Any:
    _check_axis(name, axis)
    return _transform(name, kind, a, None if n is None else [n], None if axis is None else [axis], norm)


def _check_axis(name: str, axis: Any) -> None:
    if isinstance(axis, (list, tuple)):
        full_name = f"jax.numpy.fft.{name}"
        raise ValueError(f"{full_name} does not support multiple axes. Please use {full_name}n. Got axis = {axis!r}.")


def fft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Fourier transform along an axis.

    Args:
      a: array of any dtype.
      n: the size of the axis. `a` is cut, or filled with zeros, to this size. Default: the size of `a`.
      axis: axis to transform, an integer.
      norm: "backward" (also None), "ortho" or "forward".

    Returns:
      Complex array: complex64, or complex128 for inputs of double precision.

    Raises:
      ValueError: `axis` is not one integer, n is not positive, or the norm is unknown.

    >>> jnp.fft.fft(jnp.array([1.0, 2.0, 3.0, 4.0]))
    Array([10.+0.j, -2.+2.j, -2.+0.j, -2.-2.j], dtype=complex64)
    """
    return _single("fft", FftType.FFT, a, n, axis, norm)


def ifft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of `fft`, with its arguments, result and errors.

    >>> jnp.fft.ifft(jnp.array([10, -2 + 2j, -2, -2 - 2j]))
    Array([1.+0.j, 2.+0.j, 3.+0.j, 4.+0.j], dtype=complex64)
    """
    return _single("ifft", FftType.IFFT, a, n, axis, norm)


def rfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """`fft` of real numbers: the first n // 2 + 1 of n elements. The others are conjugates of these.

    Raises:
      ValueError: `a` is complex, or as for `fft`.

    >>> jnp.fft.rfft(jnp.array([1.0, 2.0, 3.0, 4.0]))
    Array([10.+0.j, -2.+2.j, -2.+0.j], dtype=complex64)
    """
    return _single("rfft", FftType.RFFT, a, n, axis, norm)


def irfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of `rfft`: real. m elements give 2 * (m - 1) unless `n` gives another number. Errors as for `fft`.

    >>> jnp.fft.irfft(jnp.array([10, -2 + 2j, -2]))
    Array([1., 2., 3., 4.], dtype=float32)
    """
    return _single("irfft", FftType.IRFFT, a, n, axis, norm)


def hfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The real spectrum of a Hermitian signal. `a` is its first half; the second half has the conjugates.

    Args:
      a: array of any dtype, with m elements along `axis`.
      n: the size of the axis in the result. Default: 2 * (m - 1).

    Returns:
      Real array. Errors as for `fft`.

    >>> jnp.fft.hfft(jnp.array([1.0, 2.0, 3.0]))
    Array([ 8., -2.,  0., -2.], dtype=float32)
    """
    conjugates = jnp.conj(a)
    _check_axis("hfft", axis)
    count = (conjugates.shape[axis] - 1) * 2 if n is None else n
    return _single("hfft", FftType.IRFFT, conjugates, n, axis, norm) * count


def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of `hfft`: n real elements give n // 2 + 1 complex elements.

    Raises:
      ValueError: `a` is complex, or as for `fft`.

    >>> jnp.fft.ihfft(jnp.array([8.0, -2.0, 0.0, -2.0])).real
    Array([1., 2., 3.], dtype=float32)
    """
    _check_axis("ihfft", axis)
    x = jnp.asarray(a)
    count = x.shape[axis] if n is None else n
    return jnp.conj(_single("ihfft", FftType.RFFT, x, n, axis, norm)) * (1 / count)


# ---------------------------------------------------------------- two axes


def _double(name: str, kind: FftType, a: Any, s: Sequence[int] | None, axes: Sequence[int], norm: str | None) -> Any:
    if len(axes) != 2:
        raise ValueError(f"jax.numpy.fft.{name} only supports 2 axes. Got axes = {axes!r}.")
    return _transform(name, kind, a, s, axes, norm)


def fft2(a: Any, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Any:
    """`fftn` over two axes, the last ones by default.

    Raises:
      ValueError: not two axes, or as for `fftn`.

    >>> jnp.fft.fft2(jnp.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[(10+0j), (-2+0j)], [(-4+0j), 0j]]
    """
    return _double("fft2", FftType.FFT, a, s, axes, norm)


def ifft2(a: Any, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Any:
    """`ifftn` over two axes, the last ones by default.

    >>> jnp.fft.ifft2(jnp.array([[10.0, -2.0], [-4.0, 0.0]])).tolist()
    [[(1+0j), (2+0j)], [(3+0j), (4+0j)]]
    """
    return _double("ifft2", FftType.IFFT, a, s, axes, norm)


def rfft2(a: Any, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Any:
    """`rfftn` over two axes, the last ones by default.

    >>> jnp.fft.rfft2(jnp.ones((3, 4, 6))).shape
    (3, 4, 4)
    """
    return _double("rfft2", FftType.RFFT, a, s, axes, norm)


def irfft2(a: Any, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Any:
    """`irfftn` over two axes, the last ones by default.

    >>> jnp.fft.irfft2(jnp.array([[10.0, -2.0], [-4.0, 0.0]])).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    return _double("irfft2", FftType.IRFFT, a, s, axes, norm)


# ---------------------------------------------------------------- frequencies


def _check_counts(name: str, n: Any, d: Any) -> None:
    if isinstance(n, (list, tuple)):
        raise ValueError(f"The n argument of jax.numpy.fft.{name} only takes an int. Got n = {list(n)}.")
    if isinstance(d, (list, tuple)):
        raise ValueError(f"The d argument of jax.numpy.fft.{name} only takes a single value. Got d = {list(d)}.")


def fftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of the elements of an FFT of n samples with distance d: 0, 1, ..., and then the negative ones.

    Args:
      n: an integer known while tracing.
      d: the time between samples; the frequencies are in units of 1 / d.
      dtype: the default float if None.

    Returns:
      Array of shape [n].

    Raises:
      ValueError: n or d is a sequence.

    >>> jnp.fft.fftfreq(4)
    Array([ 0.  ,  0.25, -0.5 , -0.25], dtype=float32)
    """
    dtype = dtype or dtypes.default_float_dtype()
    _check_counts("fftfreq", n, d)
    inner = dtypes.finfo(dtypes.to_inexact_dtype(np.dtype(dtype))).dtype
    i = jnp.arange(n, dtype=inner, device=device)
    k = (i + n // 2) % n - n // 2
    return (k.astype(inner) / jnp.array(d * n, dtype=inner, device=device)).astype(dtype)


def rfftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of the elements of an RFFT of n samples with distance d, of shape [n // 2 + 1]. Otherwise as
    `fftfreq`.

    >>> jnp.fft.rfftfreq(4)
    Array([0.  , 0.25, 0.5 ], dtype=float32)
    """
    dtype = dtype or dtypes.default_float_dtype()
    _check_counts("rfftfreq", n, d)
    k = jnp.arange(0, n // 2 + 1, dtype=dtype, device=device)
    return k / jnp.array(d * n, dtype=dtype, device=device)


def fftshift(x: Any, axes: int | Axes = None) -> Any:
    """Roll the axes so that the element of frequency 0 is in the middle.

    Args:
      x: array of any dtype.
      axes: one axis or several; None for all axes.

    Returns:
      Array like x.

    >>> jnp.fft.fftshift(jnp.fft.fftfreq(4))
    Array([-0.5 , -0.25,  0.  ,  0.25], dtype=float32)
    """
    x = ensure_arraylike("fftshift", x)
    shift, axes = _halves(x, axes)
    return jnp.roll(x, shift, axes)


def ifftshift(x: Any, axes: int | Axes = None) -> Any:
    """The inverse of `fftshift`.

    >>> jnp.fft.ifftshift(jnp.array([-2, -1, 0, 1]))
    Array([ 0,  1, -2, -1], dtype=int32)
    """
    x = ensure_arraylike("ifftshift", x)
    shift, axes = _halves(x, axes)
    return jnp.roll(x, -shift if isinstance(shift, int) else [-n for n in shift], axes)


def _halves(x: Any, axes: int | Axes) -> tuple[int | list[int], int | Sequence[int]]:
    if axes is None:
        axes = tuple(range(x.ndim))
    if isinstance(axes, int):
        return x.shape[axes] // 2, axes
    return [x.shape[d] // 2 for d in axes], axes
