"""Convolutions and correlations of arrays with any number of axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.numpy.util import canonical_axis, check_arraylike, promote_dtypes_inexact
from mpijax.ops.shapes.moves import index_tuple
from mpijax.transforms.vmap import vmap

ModeString = Literal["full", "same", "valid"]
_MODES = ("full", "same", "valid")


def _check_mode(name: str, mode: Any) -> None:
    if mode not in _MODES:
        raise ValueError(f"jax.scipy.signal.{name}: mode must be one of {list(_MODES)}, got {mode!r}")


def _order(a: Any, b: Any) -> tuple[bool, bool]:
    """(whether a is at least as large as b along every axis, whether b is at least as large as a)."""
    pairs = list(zip(a.shape, b.shape, strict=True))
    return all(x >= y for x, y in pairs), all(x <= y for x, y in pairs)


def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Sequence[int] | None = None) -> Any:
    """Convolution by a product of Fourier transforms: fewer operations for large arrays, but less accurate.

    Args:
      in1, in2: arrays with the same number of axes, and the same sizes along axes that are not in `axes`.
      mode: "full": all offsets at which they overlap; "same": the size of in1; "valid": offsets at which one array lies
        inside the other.
      axes: axes of the convolution; default all.

    Raises:
      ValueError: the shapes do not match, or the mode is unknown.

    >>> mpijax.scipy.signal.fftconvolve(jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0, 1.0])).round(4)
    Array([1., 3., 5., 3.], dtype=float32)
    """
    check_arraylike("fftconvolve", in1, in2)
    in1, in2 = promote_dtypes_inexact(in1, in2)
    if in1.ndim != in2.ndim:
        raise ValueError(f"in1 and in2 should have the same dimensionality, got {in1.ndim} and {in2.ndim} axes")
    _check_mode("fftconvolve", mode)
    if axes is None:
        return _by_transforms(in1, in2, mode)
    chosen = {canonical_axis(a, in1.ndim) for a in index_tuple(axes)}
    others = [a for a in range(in1.ndim) if a not in chosen]
    if any(in1.shape[a] != in2.shape[a] for a in others):
        raise ValueError(f"mapped axes must have same shape; got in1.shape={in1.shape} in2.shape={in2.shape} {axes=}")
    call = lambda x, y: _by_transforms(x, y, mode)
    for a in others:
        call = vmap(call, in_axes=a, out_axes=a)
    return call(in1, in2)


def _by_transforms(in1: Any, in2: Any, mode: str) -> Any:
    full = tuple(a + b - 1 for a, b in zip(in1.shape, in2.shape, strict=True))
    if mode == "valid":
        larger, smaller = _order(in1, in2)
        if not (larger or smaller):
            raise ValueError(
                "For 'valid' mode, One input must be at least as large as the other in every dimension, got shapes "
                f"{in1.shape} and {in2.shape}."
            )
        if smaller:
            in1, in2 = in2, in1
    if all(1 in pair for pair in zip(in1.shape, in2.shape, strict=True)):
        out = in1 * in2
    elif jnp.iscomplexobj(in1):
        out = jnp.fft.ifftn(jnp.fft.fftn(in1, full) * jnp.fft.fftn(in2, full), full)
    else:
        out = jnp.fft.irfftn(jnp.fft.rfftn(in1, full) * jnp.fft.rfftn(in2, full), full)
    shape = full if mode == "full" else in1.shape
    if mode == "valid":
        shape = tuple(a - b + 1 for a, b in zip(in1.shape, in2.shape, strict=True))
    starts = tuple((whole - n) // 2 for whole, n in zip(full, shape, strict=True))
    return lax.dynamic_slice(out, starts, shape)


def _direct(in1: Any, in2: Any, mode: str, precision: Any) -> Any:
    _check_mode("convolve", mode)
    if in1.ndim != in2.ndim:
        raise ValueError(f"in1 and in2 must have the same number of dimensions, got {in1.ndim} and {in2.ndim}")
    if in1.size == 0 or in2.size == 0:
        raise ValueError(f"zero-size arrays not supported in convolutions, got shapes {in1.shape} and {in2.shape}.")
    in1, in2 = promote_dtypes_inexact(in1, in2)
    larger, smaller = _order(in1, in2)
    if not (larger or smaller):
        raise ValueError(
            f"One input must be smaller than the other in every dimension, got shapes {in1.shape} and {in2.shape}."
        )
    given = in2.shape
    if smaller:
        in1, in2 = in2, in1
    kernel = in2.shape
    padding = {
        "valid": [(0, 0) for _ in kernel],
        "same": [(n - 1 - (k - 1) // 2, n - k + (k - 1) // 2) for n, k in zip(kernel, given, strict=True)],
        "full": [(n - 1, n - 1) for n in kernel],
    }[mode]
    out = lax.conv_general_dilated(
        in1[None, None], jnp.flip(in2)[None, None], (1,) * len(kernel), padding, precision=precision
    )
    return out[0, 0]


def convolve(in1: Any, in2: Any, mode: ModeString = "full", method: str = "auto", precision: Any = None) -> Any:
    """Convolution of arrays with the same number of axes.

    Args:
      mode: as for `fftconvolve`. method: "fft", or "direct" and "auto", which sum products.

    Raises:
      ValueError: the shapes do not match, an array is empty, or the mode or the method is unknown.

    >>> mpijax.scipy.signal.convolve(jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0, 1.0]))
    Array([1., 3., 5., 3.], dtype=float32)
    """
    if method == "fft":
        return fftconvolve(in1, in2, mode=mode)
    if method not in ("direct", "auto"):
        raise ValueError(f"Got {method=}; expected 'auto', 'fft', or 'direct'.")
    return _direct(jnp.asarray(in1), jnp.asarray(in2), mode, precision)


def correlate(in1: Any, in2: Any, mode: ModeString = "full", method: str = "auto", precision: Any = None) -> Any:
    """`convolve` with the reversed conjugates of in2.

    >>> mpijax.scipy.signal.correlate(jnp.array([1.0, 2.0, 3.0]), jnp.array([0.0, 1.0]), mode="valid")
    Array([2., 3.], dtype=float32)
    """
    return convolve(in1, jnp.flip(jnp.asarray(in2).conj()), mode, precision=precision, method=method)


def _check_planes(name: str, in1: Any, in2: Any, boundary: str, fillvalue: float) -> None:
    if boundary != "fill" or fillvalue != 0:
        raise NotImplementedError(
            f"{name}() only supports boundary='fill', fillvalue=0; got {boundary=}, {fillvalue=}"
        )
    if np.ndim(in1) != 2 or np.ndim(in2) != 2:
        raise ValueError(f"{name}() only supports 2-dimensional inputs, got shapes {np.shape(in1)}, {np.shape(in2)}.")


def convolve2d(
    in1: Any, in2: Any, mode: ModeString = "full", boundary: str = "fill", fillvalue: float = 0, precision: Any = None
) -> Any:
    """Convolution of two matrices; outside of the matrices are zeros.

    >>> mpijax.scipy.signal.convolve2d(jnp.ones((2, 2)), jnp.ones((2, 2)), mode="same")
    Array([[1., 2.],
           [2., 4.]], dtype=float32)
    """
    _check_planes("convolve2d", in1, in2, boundary, fillvalue)
    return _direct(jnp.asarray(in1), jnp.asarray(in2), mode, precision)


def correlate2d(
    in1: Any, in2: Any, mode: ModeString = "full", boundary: str = "fill", fillvalue: float = 0, precision: Any = None
) -> Any:
    """Correlation of two matrices; outside of the matrices are zeros.

    >>> mpijax.scipy.signal.correlate2d(jnp.arange(4.0).reshape(2, 2), jnp.eye(2), mode="valid")
    Array([[3.]], dtype=float32)
    """
    _check_planes("correlate2d", in1, in2, boundary, fillvalue)
    in1, in2 = jnp.asarray(in1), jnp.asarray(in2)
    _, smaller = _order(in1, in2)
    if smaller and mode != "same" and not (mode == "valid" and in1.shape == in2.shape):
        out = _direct(jnp.flip(in2), in1.conj(), mode, precision)
        return out if mode == "valid" else out.conj()
    return jnp.flip(_direct(jnp.flip(in1), in2.conj(), mode, precision))
