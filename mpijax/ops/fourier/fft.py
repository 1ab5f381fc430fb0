"""Defines fft: discrete Fourier transforms over the last axes."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.rules.factors import batched
from mpijax.core.rules.lowering import Decompose
from mpijax.core.rules.primitive import Primitive
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise import binary
from mpijax.ops.elementwise.convert import convert_element_type
from mpijax.ops.elementwise.unary import conj
from mpijax.ops.families import ATTACHED, LINEAR
from mpijax.ops.fourier import over_ranks as fft_over_ranks
from mpijax.ops.fourier.lowering import by_scipy, transform
from mpijax.ops.indexing.dynamic import dynamic_update_slice
from mpijax.ops.rules import const_like
from mpijax.ops.shapes.creation import full
from mpijax.ops.shapes.reshape import expand_dims
from mpijax.transforms.batching import move_dim
from mpijax.transforms.jit import jit


class FftType(enum.IntEnum):
    """Kinds of Fourier transforms.

    >>> lax.fft(jnp.ones(4), lax.FftType.RFFT, (4,))
    Array([4.+0.j, 0.+0.j, 0.+0.j], dtype=complex64)
    """

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


def _type_of(fft_type: Any) -> FftType:
    if isinstance(fft_type, FftType):
        return fft_type
    if not isinstance(fft_type, str):
        raise TypeError(f"Unknown FFT type value '{fft_type}'")
    if fft_type not in ("fft", "FFT", "ifft", "IFFT", "rfft", "RFFT", "irfft", "IRFFT"):
        raise ValueError(f"Unknown FFT type '{fft_type}'")
    return FftType[fft_type.upper()]


@jit(static_argnums=(1, 2))
def fft(x: Any, fft_type: FftType | str, fft_lengths: Sequence[int]) -> Any:
    """Fourier transform over the last axes of an array.

    Args:
      x: real array for RFFT, else an array that becomes complex.
      fft_type: FFT; IFFT, its inverse; RFFT, the FFT of reals, which keeps the first half of the last axis; IRFFT,
        its inverse. Or one of these names as a string.
      fft_lengths: sizes of the transformed axes; for IRFFT those of the result.

    Raises:
      ValueError: for complex input of RFFT, or sizes that do not match. TypeError: for an unknown kind of transform.

    >>> lax.fft(jnp.array([1.0, 2.0, 3.0, 4.0]), "RFFT", (4,))
    Array([10.+0.j, -2.+2.j, -2.+0.j], dtype=complex64)
    """
    kind = _type_of(fft_type)
    dtype = typeof(x).dtype
    if kind == FftType.RFFT:
        if dtypes.issubdtype(dtype, np.complexfloating):
            raise ValueError("only real valued inputs supported for rfft")
        x = convert_element_type(x, dtypes.to_inexact_dtype(dtype))
    else:
        x = convert_element_type(x, dtypes.to_complex_dtype(dtype))
    if len(fft_lengths) == 0:
        return x
    return fft_p.bind(x, fft_type=kind, fft_lengths=tuple(fft_lengths))


# ---------------------------------------------------------------- rules


def _fft_type(x: ShapedArray, *, fft_type: FftType, fft_lengths: tuple[int, ...]) -> ShapedArray:
    if len(fft_lengths) > x.ndim:
        raise ValueError(
            f"FFT input shape {x.shape} must have at least as many input dimensions as fft_lengths {fft_lengths}."
        )
    batch, own = x.shape[: -len(fft_lengths)], x.shape[-len(fft_lengths) :]
    if fft_type == FftType.RFFT:
        if x.dtype not in (np.float32, np.float64):
            raise ValueError(f"RFFT input must be float32 or float64, got {x.dtype}")
        _check_sizes("RFFT", x.shape, own, fft_lengths)
        return ShapedArray((*batch, *fft_lengths[:-1], fft_lengths[-1] // 2 + 1), dtypes.to_complex_dtype(x.dtype))
    if not dtypes.issubdtype(x.dtype, np.complexfloating):
        name = "IRFFT" if fft_type == FftType.IRFFT else "FFT"
        raise ValueError(f"{name} input must be complex64 or complex128, got {x.dtype}")
    if fft_type == FftType.IRFFT:
        if own[:-1] != fft_lengths[:-1]:
            raise ValueError(
                f"IRFFT input shape {x.shape} minor dimensions must be equal to all except the last fft_length, got "
                f"fft_lengths={fft_lengths}"
            )
        return ShapedArray(batch + fft_lengths, dtypes.finfo(x.dtype).dtype)
    _check_sizes("FFT", x.shape, own, fft_lengths)
    return ShapedArray(x.shape, x.dtype, x.weak_type)


def _check_sizes(name: str, shape, own, lengths) -> None:
    if own != lengths:
        raise ValueError(f"{name} input shape {shape} minor dimensions must be equal to fft_lengths {lengths}")


def _reference(x: np.ndarray, *, fft_type: FftType, fft_lengths: tuple[int, ...]) -> np.ndarray:
    out = _fft_type(ShapedArray(x.shape, x.dtype), fft_type=fft_type, fft_lengths=fft_lengths)
    return by_scipy(x, fft_type=fft_type, fft_lengths=fft_lengths, shape=out.shape, dtype=out.dtype)


def _by_size(x: Any, *, fft_type: FftType, fft_lengths: tuple[int, ...]) -> Any:
    return transform(x, _fft_type(typeof(x), fft_type=fft_type, fft_lengths=fft_lengths), fft_type, fft_lengths)


def _fft_transpose(ct, x, *, fft_type: FftType, fft_lengths: tuple[int, ...]):
    if fft_type == FftType.RFFT:
        return [_rfft_transpose(ct, fft_lengths)]
    if fft_type == FftType.IRFFT:
        return [_irfft_transpose(ct, fft_lengths)]
    return [fft(ct, fft_type, fft_lengths)]


def _halves(dtype: Any, count: int, whole: int) -> Any:
    """How often each of `count` kept coefficients occurs in the spectrum of a real signal of `whole` elements: twice,
    except the mean and, for an even size, the highest frequency."""
    weights = full((count,), 2, dtype)
    for at in (0,) if whole % 2 else (0, count - 1):
        weights = dynamic_update_slice(weights, full((1,), 1, dtype), (at,))
    return weights


@jit(static_argnums=1)
def _rfft_transpose(ct: Any, fft_lengths: tuple[int, ...]) -> Any:
    aval = typeof(ct)
    weights = _halves(aval.dtype, aval.shape[-1], fft_lengths[-1])
    weights = expand_dims(weights, range(aval.ndim - 1))
    out = fft(binary.div(conj(ct), weights), FftType.IRFFT, fft_lengths)
    return binary.mul(const_like(out, math.prod(fft_lengths)), out)


def _irfft_transpose(ct: Any, fft_lengths: tuple[int, ...]) -> Any:
    out = fft(ct, FftType.RFFT, fft_lengths)
    aval = typeof(out)
    weights = expand_dims(_halves(aval.dtype, aval.shape[-1], fft_lengths[-1]), range(aval.ndim - 1))
    weights = binary.mul(const_like(out, 1 / math.prod(fft_lengths)), weights)
    return conj(binary.mul(weights, out))


def _fft_batch(_axis, args, dims, *, fft_type, fft_lengths):
    return fft(move_dim(args[0], dims[0], 0), fft_type, fft_lengths), 0


fft_p = Primitive(
    "fft",
    type_rule=_fft_type,
    reference=_reference,
    lower=Decompose(_by_size),
    jvp=ATTACHED,
    transpose=_fft_transpose,
    batch=_fft_batch,
    sharding=batched(lambda params: [len(params["fft_lengths"])], better=fft_over_ranks.plan, in_place=True),
)
fft_p.jvp = LINEAR.attach(fft_p)
