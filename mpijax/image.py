"""Images resized and moved, in any number of dimensions.

Each axis is multiplied by a matrix of weights. A large axis is resized without one: each new pixel is the sum over the
few pixels that have a weight in it.
"""

from __future__ import annotations

import enum
import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.numpy.util import canonical_axis, promote_dtypes_inexact
from mpijax.ops.shapes.moves import canonical_shape
from mpijax.transforms.jit import jit
from mpijax.transforms.linear_call import linear_call

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]

# Weights of which the sum is smaller than this count as none.
_NOTHING = 1000.0 * float(np.finfo(np.float32).eps)


class ResizeMethod(enum.Enum):
    """How values between pixels are made.

    >>> mpijax.image.resize(jnp.array([0.0, 10.0]), (4,), mpijax.image.ResizeMethod.LINEAR)
    Array([ 0. ,  2.5,  7.5, 10. ], dtype=float32)
    """

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5
    AREA = 6

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """The method with a name. Raises ValueError for an unknown one."""
        if s not in _NAMES:
            raise ValueError(f'Unknown resize method "{s}". The methods are {", ".join(_NAMES)}.')
        return _NAMES[s]


_NAMES = {
    "nearest": ResizeMethod.NEAREST,
    **dict.fromkeys(("linear", "bilinear", "trilinear", "triangle"), ResizeMethod.LINEAR),
    "lanczos3": ResizeMethod.LANCZOS3, "lanczos5": ResizeMethod.LANCZOS5,
    **dict.fromkeys(("cubic", "bicubic", "tricubic"), ResizeMethod.CUBIC),
    **dict.fromkeys(("cubic-pytorch", "bicubic-pytorch"), ResizeMethod.CUBIC_PYTORCH),
    "area": ResizeMethod.AREA,
}  # fmt: skip

# ---------------------------------------------------------------- weights by distance


def _lanczos(radius: float) -> Callable[[Any], Any]:
    def kernel(x):
        y = radius * jnp.sin(np.pi * x) * jnp.sin(np.pi * x / radius)
        out = jnp.where(x > 0.001, jnp.divide(y, jnp.where(x != 0, np.pi**2 * x**2, 1)), 1)
        return jnp.where(x > radius, 0.0, out)

    return kernel


def _keys_cubic(x: Any) -> Any:
    """Keys (1981), with a = -0.5."""
    out = (1.5 * x - 2.5) * x * x + 1.0
    out = jnp.where(x >= 1.0, ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0, out)
    return jnp.where(x >= 2.0, 0.0, out)


def _sharper_cubic(x: Any) -> Any:
    """The same with a = -0.75, as OpenCV and PyTorch have it."""
    a = -0.75
    out = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    out = jnp.where(x >= 1.0, ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a, out)
    return jnp.where(x >= 2.0, 0.0, out)


def _triangle(x: Any) -> Any:
    return jnp.maximum(0, 1 - jnp.abs(x))


# By method: how far a pixel reaches, and its weight by distance; areas are no function of it.
_KERNELS: dict[ResizeMethod, tuple[int, Callable | None]] = {
    ResizeMethod.LINEAR: (1, _triangle),
    ResizeMethod.LANCZOS3: (3, _lanczos(3.0)),
    ResizeMethod.LANCZOS5: (5, _lanczos(5.0)),
    ResizeMethod.CUBIC: (2, _keys_cubic),
    ResizeMethod.CUBIC_PYTORCH: (2, _sharper_cubic),
    ResizeMethod.AREA: (1, None),
}


def _divided(weights: Any) -> Any:
    """Weights [in, out] by their sums."""
    total = jnp.sum(weights, axis=0, keepdims=True)
    return jnp.where(jnp.abs(total) > _NOTHING, jnp.divide(weights, jnp.where(total != 0, total, 1)), 0)


def _weights(
    pixels: Any, size: int, out_size: int, scale: Any, translation: Any, method: ResizeMethod, antialias: bool
) -> Any:
    """[n, out_size]: how much of some pixels of an axis is in every new one.

    Args:
      pixels: [n, 1], the same for all new pixels, or [n, out_size]. The others must have no weight.
      size: of the axis.
    """
    dtype = jnp.result_type(scale, translation)
    inverse = 1.0 / scale
    at = (jnp.arange(out_size, dtype=dtype) + 0.5) * inverse - translation * inverse - 0.5
    radius, kernel = _KERNELS[method]
    pixels = pixels.astype(dtype)
    if method is ResizeMethod.CUBIC_PYTORCH:
        return _divided(_continued(pixels, at, size, radius, _sharper_cubic))
    if kernel is None:
        begin = jnp.arange(out_size, dtype=dtype) * inverse - translation * inverse
        weights = jnp.maximum(0.0, jnp.minimum(begin + inverse, pixels + 1.0) - jnp.maximum(begin, pixels))
    else:
        width = jnp.maximum(inverse, 1.0) if antialias else 1.0
        weights = kernel(jnp.abs(at - pixels) / width)
    inside = jnp.logical_and(at >= -0.5, at <= size - 0.5)
    return jnp.where(inside[np.newaxis, :], _divided(weights), 0)


def _continued(pixels: Any, at: Any, size: int, radius: int, kernel: Callable[[Any], Any]) -> Any:
    """Weights where the first and last pixel are repeated beyond the ends: their weights are added to them."""
    weights = kernel(jnp.abs(at - pixels))
    for end, step in ((0, -1), (size - 1, 1)):
        beyond = sum(kernel(jnp.abs(at - (end + step * k))) for k in range(1, radius + 1))
        weights += jnp.where(pixels == end, beyond, 0)
    return weights


# ---------------------------------------------------------------- resizing


def _moved(x, shape, axes, scale, translation, method: ResizeMethod, antialias: bool, precision) -> Any:
    operands: list[Any] = []
    result = list(range(x.ndim))
    for i, axis in enumerate(axes):
        d = canonical_axis(axis, x.ndim)
        pixels = np.arange(x.shape[d])[:, np.newaxis]
        weights = _weights(pixels, x.shape[d], shape[d], scale[i], translation[i], method, antialias)
        operands += [weights.astype(x.dtype), [d, x.ndim + i]]
        result[d] = x.ndim + i
    return jnp.einsum(x, list(range(x.ndim)), *operands, result, precision=precision) if operands else x


def _resized(x: Any, shape: tuple[int, ...], method: ResizeMethod, antialias: bool, precision: Any) -> Any:
    """The image by windows along the axes where that is faster, then by matrices along the others."""
    axes = [d for d in range(x.ndim) if x.shape[d] != shape[d]]
    for d in sorted(axes, key=lambda d: shape[d] / x.shape[d] if x.shape[d] else 0.0):
        window = _window(x.shape, d, shape[d], method, antialias)
        if window is not None:
            x = _windowed(x, d, window, method, antialias)
            axes.remove(d)
    scale = [shape[d] / x.shape[d] if shape[d] else 1.0 for d in axes]
    return _moved(x, shape, axes, scale, [0.0] * len(axes), method, antialias, precision)


# A sum over a window is faster than a product with a matrix if it has this many times fewer terms. Rows of at least
# `_LONG` elements are added by vectors, shorter ones element by element.
_FEWER_TERMS, _FEWER_TERMS_OF_ROWS, _LONG = 24, 6, 16
# A program contains every term.
_MOST_TERMS = 32


def _window(shape: tuple[int, ...], axis: int, new: int, method: ResizeMethod, antialias: bool) -> np.ndarray | None:
    """[n, new]: the pixels that have a weight in each new pixel; `None` if a matrix is faster."""
    size = shape[axis]
    if not size or not new:
        return None
    inverse = size / new
    if method is ResizeMethod.AREA:
        reach = (inverse + 1) / 2
    else:
        reach = _KERNELS[method][0] * (max(inverse, 1.0) if antialias else 1.0)
    length = 2 * math.ceil(reach)
    fewer = _FEWER_TERMS_OF_ROWS if math.prod(shape[axis + 1 :]) >= _LONG else _FEWER_TERMS
    if length * fewer > size or length * max(1.0, new / size) > _MOST_TERMS:
        return None
    first = np.floor((np.arange(new, dtype=np.float32) + 0.5) * np.float32(inverse) - 0.5).astype(np.int32)
    first = np.clip(first - length // 2 + 1, 0, size - length)
    return first + np.arange(length, dtype=np.int32)[:, np.newaxis]


def _windowed(x: Any, axis: int, window: np.ndarray, method: ResizeMethod, antialias: bool) -> Any:
    """An axis resized by sums over windows. The transpose is such a sum as well, not a scatter."""
    size, new = x.shape[axis], window.shape[1]
    weights = _weights(window, size, new, new / size, 0.0, method, antialias).astype(x.dtype)
    uses, rows, used = _transposed(window, size)
    return linear_call(
        lambda weights, image: _summed(image, axis, window, weights),
        lambda weights, ct: _summed(ct, axis, uses, jnp.where(used, weights[rows, uses], 0)),
        weights,
        x,
    )


def _summed(x: Any, axis: int, window: np.ndarray, weights: Any) -> Any:
    """The sum over a window's rows, in at least 32 bits."""
    along = (-1, *[1] * (x.ndim - 1 - axis))
    image = x.astype(jnp.promote_types(x.dtype, np.float32))
    terms = (
        jnp.take(image, pixels, axis=axis, mode="clip") * w.reshape(along)
        for pixels, w in zip(window, weights.astype(image.dtype), strict=True)
    )
    return functools.reduce(operator.add, terms).astype(x.dtype)


def _transposed(window: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each [n, size]: the new pixels that use a pixel, the row of it in their windows, and whether they use it."""
    pixels = np.arange(size, dtype=np.int32)
    first = np.searchsorted(window[-1], pixels).astype(np.int32)
    end = np.searchsorted(window[0], pixels, "right").astype(np.int32)
    uses = first + np.arange((end - first).max(), dtype=np.int32)[:, np.newaxis]
    used = uses < end
    uses = np.minimum(uses, window.shape[1] - 1)
    return uses, np.where(used, pixels - window[0][uses], 0), used


def _method(method: str | ResizeMethod, antialias: bool) -> ResizeMethod:
    method = ResizeMethod.from_string(method) if isinstance(method, str) else method
    return ResizeMethod.CUBIC if method is ResizeMethod.CUBIC_PYTORCH and antialias else method


def _check_shape(image: Any, shape: Sequence[int]) -> None:
    if len(shape) != image.ndim:
        raise ValueError(
            f"shape must have length equal to the number of dimensions of x;  {shape} vs {image.shape}"
        )


def scale_and_translate(
    image: Any,
    shape: Sequence[int],
    spatial_dims: Sequence[int],
    scale: Any,
    translation: Any,
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: Any = lax.Precision.HIGHEST,
) -> Any:
    """An image stretched and moved along axes; what comes from outside of it is 0.

    Args:
      image: array of any dtype. shape: of the result.
      spatial_dims: axes. scale, translation: for each of them, in pixels of the result: position p goes to
        `p * scale + translation`. They can be differentiated.
      method: a `ResizeMethod` or its name; not nearest.
      antialias: make the image smooth first where it shrinks.

    Raises:
      ValueError: a shape with other axes than the image, an unknown method.

    >>> scale, translation = jnp.array([1.0]), jnp.array([1.0])
    >>> mpijax.image.scale_and_translate(jnp.array([1.0, 2.0, 3.0]), (3,), (0,), scale, translation, "linear")
    Array([0., 1., 2.], dtype=float32)
    """
    shape = canonical_shape(shape)
    _check_shape(image, shape)
    method = _method(method, antialias)
    if method is ResizeMethod.NEAREST:
        raise ValueError("Nearest neighbor resampling is not currently supported for scale_and_translate.")
    (image,) = promote_dtypes_inexact(image)
    scale, translation = promote_dtypes_inexact(scale, translation)
    return _moved(image, shape, spatial_dims, scale, translation, method, antialias, precision)


def _nearest(x: Any, shape: tuple[int, ...]) -> Any:
    for d, (size, new) in enumerate(zip(x.shape, shape, strict=True)):
        if size != new:
            offsets = (jnp.arange(new, dtype=np.float32) + 0.5) * size / new
            x = x[(slice(None),) * d + (jnp.floor(offsets).astype(np.int32),)]
    return x


@jit(static_argnums=(1, 2, 3, 4))
def _resize(image: Any, shape: tuple[int, ...], method: str | ResizeMethod, antialias: bool, precision: Any) -> Any:
    _check_shape(image, shape)
    method = _method(method, antialias)
    if method is ResizeMethod.NEAREST:
        return _nearest(image, shape)
    (image,) = promote_dtypes_inexact(image)
    return _resized(image, shape, method, antialias, precision)


def resize(
    image: Any,
    shape: Sequence[int],
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: Any = lax.Precision.HIGHEST,
) -> Any:
    """An image of another size.

    Args:
      image: array of any dtype. shape: of the result; axes of equal size are left alone.
      method: a `ResizeMethod`, or its name: "nearest", "linear", "cubic", "cubic-pytorch", "lanczos3", "lanczos5",
        "area".
      antialias: make the image smooth first where it shrinks; nearest ignores it.

    Returns:
      Array of floats, of the image's dtype for "nearest".

    Raises:
      ValueError: a shape with other axes than the image, an unknown method.

    >>> mpijax.image.resize(jnp.array([0.0, 10.0]), (4,), "nearest")
    Array([ 0.,  0., 10., 10.], dtype=float32)
    """
    return _resize(image, canonical_shape(shape), method, antialias, precision)
