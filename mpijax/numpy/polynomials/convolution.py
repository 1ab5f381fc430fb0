"""`convolve` and `correlate` for one-dimensional arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax import lax
from mpijax.numpy.shapes.rearrange import flip
from mpijax.numpy.ufuncs.complexes import conj
from mpijax.numpy.util import ensure_arraylike, promote_dtypes, promote_dtypes_inexact
from mpijax.transforms.jit import jit


@jit(static_argnames=("mode", "precision", "preferred_element_type"))
def convolve(a: Any, v: Any, mode: str = "full", *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """The convolution of two arrays: sums of products of `a` with the reversed `v`, at each offset.

    Args:
      a, v: one-dimensional arrays, not empty.
      mode: "full": all offsets at which they overlap. "valid": offsets at which the shorter array lies inside the
        longer one. "same": the middle of "full", with the size of the longer array.
      preferred_element_type: dtype of the sums and the result; None: the promoted dtype, at least a float.

    Raises:
      ValueError: an array does not have one axis or is empty, or the mode is unknown.

    >>> jnp.convolve(jnp.array([1, 2, 3]), jnp.array([1, 10]))
    Array([ 1., 12., 23., 30.], dtype=float32)
    """
    a, v = ensure_arraylike("convolve", a, v)
    return _conv(a, v, mode, "convolve", precision, preferred_element_type)


@jit(static_argnames=("mode", "precision", "preferred_element_type"))
def correlate(a: Any, v: Any, mode: str = "valid", *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """The correlation of two arrays: sums of products of `a` with the conjugate of `v`, at each offset. Arguments and
    errors are those of `convolve`.

    >>> jnp.correlate(jnp.array([1, 2, 3, 4]), jnp.array([1, 10]))
    Array([21., 32., 43.], dtype=float32)
    """
    a, v = ensure_arraylike("correlate", a, v)
    return _conv(a, v, mode, "correlate", precision, preferred_element_type)


@jit(static_argnames=("mode", "op", "precision", "preferred_element_type"))
def _conv(x: Any, y: Any, mode: str, op: str, precision: Any, preferred_element_type: Any = None) -> Any:
    if np.ndim(x) != 1 or np.ndim(y) != 1:
        raise ValueError(f"{op}() only support 1-dimensional inputs, got shapes {np.shape(x)} and {np.shape(y)}.")
    x, y = promote_dtypes_inexact(x, y) if preferred_element_type is None else promote_dtypes(x, y)
    if len(x) == 0 or len(y) == 0:
        raise ValueError(f"{op}: inputs cannot be empty, got shapes {x.shape} and {y.shape}.")
    order = slice(None)
    if op == "correlate":
        y = conj(y)
        if len(x) < len(y):
            x, y = y, x
            order = slice(None, None, -1)
    else:
        if len(x) < len(y):
            x, y = y, x
        y = flip(y)
    n = y.shape[0]
    padding = {"valid": (0, 0), "same": (n // 2, n - n // 2 - 1), "full": (n - 1, n - 1)}.get(mode)
    if padding is None:
        raise ValueError(f"mode must be one of ['full', 'same', 'valid'], got {mode!r}")
    out = lax.conv_general_dilated(
        x[None, None, :], y[None, None, :], (1,), [padding], precision=precision,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip
    return out[0, 0, order]
