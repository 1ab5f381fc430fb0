"""Images resized and moved, in any number of dimensions: each axis is multiplied with a matrix of weights."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.numpy.util import canonical_axis, promote_dtypes_inexact
from mpijax.ops.shapes.moves import canonical_shape
from mpijax.transforms.jit import jit

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


def _weights(size: int, out_size: int, scale: Any, translation: Any, method: ResizeMethod, antialias: bool) -> Any:
    """[size, out_size]: how much of every pixel is in every new one."""
    dtype = jnp.result_type(scale, translation)
    inverse = 1.0 / scale
    width = jnp.maximum(inverse, 1.0) if antialias else 1.0
    at = (jnp.arange(out_size, dtype=dtype) + 0.5) * inverse - translation * inverse - 0.5
    radius, kernel = _KERNELS[method]
    if method is ResizeMethod.CUBIC_PYTORCH:
        return _continued(at, size, radius, _sharper_cubic)
    if kernel is None:
        weights = _overlaps(size, jnp.arange(out_size, dtype=dtype) * inverse - translation * inverse, inverse)
    else:
        weights = kernel(jnp.abs(at[np.newaxis, :] - jnp.arange(size, dtype=dtype)[:, np.newaxis]) / width)
    inside = jnp.logical_and(at >= -0.5, at <= size - 0.5)
    return jnp.where(inside[np.newaxis, :], _divided(weights), 0)


def _overlaps(size: int, begin: Any, width: Any) -> Any:
    """How long pixels [i, i + 1] and [begin, begin + width] overlap."""
    i = jnp.arange(size, dtype=begin.dtype)
    right = jnp.minimum((begin + width)[np.newaxis, :], (i + 1.0)[:, np.newaxis])
    return jnp.maximum(0.0, right - jnp.maximum(begin[np.newaxis, :], i[:, np.newaxis]))


def _continued(at: Any, size: int, radius: int, kernel: Callable[[Any], Any]) -> Any:
    """Weights where the first and last pixel are repeated beyond the ends: their weights are added to them."""
    index = np.arange(-radius, size + radius)
    weights = kernel(jnp.abs(at[np.newaxis, :] - index.astype(at.dtype)[:, np.newaxis]))
    target = np.clip(index, 0, size - 1)
    return _divided(jnp.zeros((size, at.shape[0]), at.dtype).at[target].add(weights))


# ---------------------------------------------------------------- resizing


def _moved(x, shape, axes, scale, translation, method: ResizeMethod, antialias: bool, precision) -> Any:
    if not axes:
        return x
    if method is ResizeMethod.CUBIC_PYTORCH and antialias:
        method = ResizeMethod.CUBIC
    operands: list[Any] = []
    result = list(range(x.ndim))
    for i, axis in enumerate(axes):
        d = canonical_axis(axis, x.ndim)
        weights = _weights(x.shape[d], shape[d], scale[i], translation[i], method, antialias)
        operands += [weights.astype(x.dtype), [d, x.ndim + i]]
        result[d] = x.ndim + i
    return jnp.einsum(x, list(range(x.ndim)), *operands, result, precision=precision)


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
    method = ResizeMethod.from_string(method) if isinstance(method, str) else method
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
    method = ResizeMethod.from_string(method) if isinstance(method, str) else method
    if method is ResizeMethod.NEAREST:
        return _nearest(image, shape)
    (image,) = promote_dtypes_inexact(image)
    axes = [d for d in range(image.ndim) if image.shape[d] != shape[d]]
    scale = [shape[d] / image.shape[d] if shape[d] else 1.0 for d in axes]
    return _moved(image, shape, axes, scale, [0.0] * len(axes), method, antialias, precision)


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
