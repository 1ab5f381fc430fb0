"""Discrete cosine transforms of type 2, with SciPy's names. Each is a real FFT of reordered elements, times phases."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes
from mpijax.numpy import fft as jnp_fft
from mpijax.numpy.util import canonical_axis, ensure_arraylike, promote_dtypes_complex, promote_dtypes_inexact

__all__ = ["dct", "dctn", "idct", "idctn"]


def _checked(name: str, x: Any, type: int, norm: str | None) -> Any:
    x = ensure_arraylike(name, x)
    if type != 2:
        raise NotImplementedError(f"jax.scipy.fft.{name}: Only DCT type 2 is implemented, got type={type}.")
    if norm is not None and norm not in ("backward", "ortho"):
        raise ValueError(f"jax.scipy.fft.{name}: norm={norm!r} is not implemented")
    return x


def _quarter_turns(size: int, k: Any) -> Any:
    """exp(-i pi k / (2 size))"""
    count, k = promote_dtypes_complex(size, k)
    return jnp.exp(-0.5j * np.pi * k / count)


def _frequencies(x: Any, axis: int, dtype: Any) -> Any:
    """0, 1 ... along an axis of x."""
    return lax.expand_dims(jnp.arange(x.shape[axis], dtype=dtype), [a for a in range(x.ndim) if a != axis])


def _interleaved(x: Any, axis: int) -> Any:
    """The elements at even positions, then those at odd positions in reverse order."""
    even = lax.slice_in_dim(x, None, None, 2, axis)
    odd = lax.rev(lax.slice_in_dim(x, 1, None, 2, axis), (axis,))
    return lax.concatenate([even, odd], axis)


def _deinterleaved(x: Any, axis: int) -> Any:
    """The inverse of `_interleaved`."""
    x = jnp.moveaxis(x, axis, -1)
    n = x.shape[-1]
    order = np.empty(n, np.int32)
    order[::2] = np.arange((n + 1) // 2)
    order[1::2] = np.arange((n + 1) // 2, n)[::-1]
    return jnp.moveaxis(x[..., order], -1, axis)


def _orthonormal(x: Any, axis: int) -> Any:
    factor = lax.concatenate([lax.full((1,), 4, x.dtype), lax.full((x.shape[axis] - 1,), 2, x.dtype)], 0)
    factor = lax.expand_dims(factor, [a for a in range(x.ndim) if a != axis])
    return x / lax.sqrt(factor * x.shape[axis])


def _padded(x: Any, sizes: dict[int, int]) -> Any:
    """x cut, or filled with zeros, to sizes along axes."""
    config = [(0, sizes.get(a, n) - n, 0) for a, n in enumerate(x.shape)]
    return lax.pad(x, jnp.array(0, x.dtype), config)


def _by_parts(fun: Callable[[Any], Any], x: Any) -> Any:
    return lax.complex(fun(x.real), fun(x.imag))


def dct(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Discrete cosine transform along an axis; for complex arrays, of the real and of the imaginary part.

    Args:
      type: must be 2. n: size of the axis, to which x is cut or filled with zeros; default its size.
      norm: None or "backward": sums are doubled; "ortho": the transform is orthonormal.

    Raises:
      NotImplementedError: another type. ValueError: an unknown norm.

    >>> mpijax.scipy.fft.dct(jnp.array([1.0, 1.0, 1.0, 1.0]), norm="ortho").round(4)
    Array([2., 0., 0., 0.], dtype=float32)
    """
    x = _checked("dct", x, type, norm)
    if dtypes.issubdtype(x.dtype, np.complexfloating):
        return _by_parts(lambda part: dct(part, type, n, axis, norm), x)
    axis = canonical_axis(axis, x.ndim)
    if n is not None:
        x = _padded(x, {axis: n})
    spectrum = jnp_fft.fft(_interleaved(x, axis), axis=axis)
    k = _frequencies(x, axis, spectrum.real.dtype)
    out = 2 * (spectrum * _quarter_turns(x.shape[axis], k)).real
    return _orthonormal(out, axis) if norm == "ortho" else out


def _dct2(x: Any, axes: Sequence[int], norm: str | None) -> Any:
    """Over two axes at once, by one FFT."""
    first, second = axes
    n1, n2 = x.shape[first], x.shape[second]
    spectrum = jnp_fft.fftn(_interleaved(_interleaved(x, first), second), axes=axes)
    k1, k2 = _frequencies(x, first, spectrum.dtype), _frequencies(x, second, spectrum.dtype)
    mirrored = jnp.roll(jnp.flip(spectrum, axis=second), shift=1, axis=second)
    out = _quarter_turns(n1, k1) * (_quarter_turns(n2, k2) * spectrum + _quarter_turns(n2, -k2) * mirrored)
    out = 2 * out.real
    return _orthonormal(_orthonormal(out, first), second) if norm == "ortho" else out


def _axes_and_sizes(x: Any, s: Any, axes: Sequence[int] | None) -> tuple[tuple[int, ...], list[int] | None]:
    if s is not None:
        s = list(s) if isinstance(s, Sequence) or hasattr(s, "__iter__") else [operator.index(s)]
        if len(s) > x.ndim:
            raise ValueError(f"s must have at most x.ndim ({x.ndim}) elements, got {len(s)}")
    if axes is not None:
        return tuple(canonical_axis(a, x.ndim) for a in axes), s
    return tuple(range(0 if s is None else x.ndim - len(s), x.ndim)), s


def dctn(
    x: Any, type: int = 2, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Any:
    """`dct` along several axes. Default: all axes, or the last `len(s)` axes.

    >>> mpijax.scipy.fft.dctn(jnp.ones((2, 2)), norm="ortho").round(4)
    Array([[2., 0.],
           [0., 0.]], dtype=float32)
    """
    x = _checked("dctn", x, type, norm)
    if dtypes.issubdtype(x.dtype, np.complexfloating):
        return _by_parts(lambda part: dctn(part, type, s, axes, norm), x)
    axes, s = _axes_and_sizes(x, s, axes)
    if len(axes) == 1:
        return dct(x, n=None if s is None else s[0], axis=axes[0], norm=norm)
    if s is not None:
        x = _padded(x, dict(zip(axes, s, strict=False)))
    if len(axes) == 2:
        return _dct2(x, axes, norm)
    for i in range(0, len(axes), 2):
        x = dctn(x, axes=axes[i : i + 2], norm=norm)
    return x


def idct(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of `dct`.

    >>> mpijax.scipy.fft.idct(mpijax.scipy.fft.dct(jnp.array([1.0, 2.0, 3.0]))).round(4)
    Array([1., 2., 3.], dtype=float32)
    """
    x = _checked("idct", x, type, norm)
    if dtypes.issubdtype(x.dtype, np.complexfloating):
        return _by_parts(lambda part: idct(part, type, n, axis, norm), x)
    axis = canonical_axis(axis, x.ndim)
    if n is not None:
        x = _padded(x, {axis: n})
    size = x.shape[axis]
    (x,) = promote_dtypes_inexact(x)
    if norm is None or norm == "backward":
        x = _orthonormal(x, axis)
    x = _orthonormal(x, axis)
    turns = _quarter_turns(size, _frequencies(x, axis, x.dtype))
    x = x.astype(turns.dtype) / turns * 2 * size
    return _deinterleaved(jnp_fft.ifft(x, axis=axis).real, axis)


def idctn(
    x: Any, type: int = 2, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Any:
    """The inverse of `dctn`.

    >>> mpijax.scipy.fft.idctn(mpijax.scipy.fft.dctn(jnp.array([[1.0, 2.0]]))).round(4)
    Array([[1., 2.]], dtype=float32)
    """
    x = _checked("idctn", x, type, norm)
    if dtypes.issubdtype(x.dtype, np.complexfloating):
        return _by_parts(lambda part: idctn(part, type, s, axes, norm), x)
    axes, s = _axes_and_sizes(x, s, axes)
    if len(axes) == 1:
        return idct(x, n=None if s is None else s[0], axis=axes[0], norm=norm)
    if s is not None:
        x = _padded(x, dict(zip(axes, s, strict=False)))
    for axis in axes:
        x = idct(x, axis=axis, norm=norm)
    return x
