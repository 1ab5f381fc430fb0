"""Lowers Fourier transforms to native code, which uses the loops of NumPy's pocketfft for sizes with large prime
factors, or to SciPy."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from mpijax.core.base import config
from mpijax.core.base.errors import JaxRuntimeError
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules.lowering import HostCall, Native
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof

_NAMES = ("fft", "ifft", "rfft_n_even", "irfft", "rfft_n_odd")
_INNER = Unsupported("only the compiler makes this primitive, after all transformations")


@functools.cache
def _ufuncs() -> tuple[np.ufunc, ...] | None:
    """NumPy's transforms as ufuncs, which are private; None if NumPy does not have them."""
    try:
        loops = importlib.import_module("numpy.fft._pocketfft_umath")  # deferred: few programs use transforms
        return tuple(getattr(loops, name) for name in _NAMES)
    except (ImportError, AttributeError):
        return None


@functools.cache
def _address() -> int:
    from mpijax._ext import fft  # deferred: an upper layer, which few programs need

    loops = _ufuncs()
    assert loops is not None  # without them, transforms are host calls
    fft.install(loops)
    return fft.address()


@dataclass(frozen=True)
class FftCode:
    """A call of the kernel in `mpijax._ext`, which is imported at the first call."""

    words: tuple[int, ...]
    label: str = "fft"

    def address(self) -> int:
        return _address()

    def failed(self, *_arrays: np.ndarray) -> NoReturn:
        raise JaxRuntimeError("RESOURCE_EXHAUSTED: fft: not enough memory for a copy of the operand or a workspace")


def transform(x: Any, out: ShapedArray, fft_type: int, fft_lengths: tuple[int, ...]) -> Any:
    """The transform of kind `fft_type`, as a number of `FftType`, with a result of type `out`."""
    some = 0 not in (*typeof(x).shape, *out.shape)
    primitive = fft_native_p if some and _ufuncs() is not None else fft_hosted_p
    return primitive.bind(x, fft_type=int(fft_type), fft_lengths=fft_lengths, shape=out.shape, dtype=out.dtype)


def by_scipy(
    x: np.ndarray, *, fft_type: int, fft_lengths: tuple[int, ...], shape: tuple[int, ...], dtype: Any
) -> np.ndarray:
    """Transforms with SciPy's pocketfft; without elements the result is empty or zeros."""
    if 0 in x.shape or 0 in shape:
        return np.zeros(shape, dtype)
    from scipy import fft as scipy_fft  # deferred: importing takes a tenth of a second

    axes = tuple(range(-len(fft_lengths), 0))
    if fft_type == 3:
        return scipy_fft.irfftn(x, s=fft_lengths, axes=axes)
    return (scipy_fft.fftn, scipy_fft.ifftn, scipy_fft.rfftn)[fft_type](x, axes=axes)


def _code(
    in_types: Sequence[ShapedArray], out_types: Sequence[ShapedArray], *, fft_type: int, fft_lengths: Any, **_: Any
) -> FftCode:
    [x], [out] = in_types, out_types
    axes = len(fft_lengths)
    real = 4 if x.dtype in (np.float32, np.complex64) else 8
    stack = math.prod(x.shape[:-axes])
    is_real = int(x.dtype.kind == "f")
    same = int(config.values.mpijax_same_bits)
    return FftCode((fft_type, is_real, real, same, stack, axes, *x.shape[-axes:], *out.shape[-axes:]))


def _has_reals_for_complex(params: dict[str, Any]) -> bool:
    """Whether the transform is FFT or IFFT, which have code for reals. RFFT has only reals, IRFFT none.

    With `mpijax_same_bits` it is not: ranks that exchange the complex numbers cannot use the code.
    """
    return params["fft_type"] in (0, 1) and not config.values.mpijax_same_bits


def _inner(key: str, lower: Any) -> Primitive:
    return Primitive(
        "fft",
        key=key,
        type_rule=lambda x, *, shape, dtype, **_: ShapedArray(shape, dtype),
        reference=by_scipy,
        lower=lower,
        jvp=_INNER,
        transpose=_INNER,
        batch=_INNER,
        inner=True,
    )


fft_native_p = _inner("fft_native", Native(_code, foreign=False, takes_reals=_has_reals_for_complex))
fft_hosted_p = _inner("fft_hosted", HostCall(by_scipy))
