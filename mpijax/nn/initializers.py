"""Initial values of the weights of neural networks.

An initializer is a function `(key, shape, dtype=...) -> array`. `zeros` and `ones` are initializers; the other
functions return one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

import mpijax.numpy as jnp
from mpijax import random
from mpijax.core import dtypes
from mpijax.core.tracing.out_sharding import with_out_sharding
from mpijax.ops.shapes.moves import canonical_shape

__all__ = [
    "Initializer", "constant", "delta_orthogonal", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform",
    "kaiming_normal", "kaiming_uniform", "lecun_normal", "lecun_uniform", "normal", "ones", "orthogonal",
    "truncated_normal", "uniform", "variance_scaling", "xavier_normal", "xavier_uniform", "zeros",
]  # fmt: skip


Axes = int | Sequence[int]


@runtime_checkable
class Initializer(Protocol):
    """A function that makes the initial value of an array.

    >>> isinstance(mpijax.nn.initializers.normal(), mpijax.nn.initializers.Initializer)
    True
    """

    def __call__(self, key: Any, shape: Sequence[int], dtype: Any = None, out_sharding: Any = None) -> Any:
        """Array of the given shape and dtype (default float), made with the PRNG key `key`."""


def _initializer(make: Callable, dtype: Any) -> Initializer:
    """An initializer from `make(key, shape, dtype)`, with `dtype` as the default dtype."""

    def init(key: Any, shape: Sequence[int], dtype: Any = dtype, out_sharding: Any = None) -> Any:
        out = make(key, shape, dtypes.default_float_dtype() if dtype is None else dtype)
        return with_out_sharding(out, out_sharding, "initializer")

    return init


def zeros(key: Any, shape: Sequence[int], dtype: Any = None, out_sharding: Any = None) -> Any:
    """An array of zeros of the given shape and dtype (default float). The key is not used.

    >>> mpijax.nn.initializers.zeros(mpijax.random.key(0), (2,))
    Array([0., 0.], dtype=float32)
    """
    return constant(0)(key, shape, dtype, out_sharding)


def ones(key: Any, shape: Sequence[int], dtype: Any = None, out_sharding: Any = None) -> Any:
    """An array of ones of the given shape and dtype (default float). The key is not used.

    >>> mpijax.nn.initializers.ones(mpijax.random.key(0), (2,))
    Array([1., 1.], dtype=float32)
    """
    return constant(1)(key, shape, dtype, out_sharding)


def constant(value: Any, dtype: Any = None) -> Initializer:
    """An initializer: all elements are `value`.

    >>> mpijax.nn.initializers.constant(7.0)(mpijax.random.key(0), (2,))
    Array([7., 7.], dtype=float32)
    """
    return _initializer(lambda key, shape, dtype: jnp.full(shape, value, dtype=dtype), dtype)


def uniform(scale: Any = 1e-2, dtype: Any = None) -> Initializer:
    """An initializer: uniform in [0, scale).

    >>> w = mpijax.nn.initializers.uniform(scale=0.1)(mpijax.random.key(0), (2, 3))
    >>> w.shape, bool(jnp.all((0 <= w) & (w < 0.1)))
    ((2, 3), True)
    """
    return _initializer(lambda key, shape, dtype: random.uniform(key, shape, dtype) * jnp.array(scale, dtype), dtype)


def normal(stddev: Any = 1e-2, dtype: Any = None) -> Initializer:
    """An initializer: normal with mean 0 and standard deviation `stddev`.

    >>> mpijax.nn.initializers.normal(stddev=2.0)(mpijax.random.key(0), (2, 3)).shape
    (2, 3)
    """
    return _initializer(lambda key, shape, dtype: random.normal(key, shape, dtype) * jnp.array(stddev, dtype), dtype)


def truncated_normal(stddev: Any = 1e-2, dtype: Any = None, lower: Any = -2.0, upper: Any = 2.0) -> Initializer:
    """An initializer: standard normal truncated to [lower, upper], times `stddev`.

    >>> w = mpijax.nn.initializers.truncated_normal(stddev=1.0)(mpijax.random.key(0), (100,))
    >>> bool(jnp.all(jnp.abs(w) < 2))
    True
    """
    return _initializer(
        lambda key, shape, dtype: random.truncated_normal(key, lower, upper, shape, dtype) * jnp.array(stddev, dtype),
        dtype,
    )


def _size(shape: Sequence[int], axes: Axes) -> int:
    return shape[axes] if isinstance(axes, int) else math.prod(shape[i] for i in axes)


def _compute_fans(
    shape: Sequence[int], in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = ()
) -> tuple[float, float]:
    """The number of inputs of an output element, and the number of outputs of an input element."""
    if isinstance(in_axis, int) and in_axis == -2 and len(shape) <= 1:
        raise ValueError(
            f"Can't compute input and output sizes of a {len(shape)}-dimensional weights tensor with "
            "default in_axis. "
            "Must be at least 2D or specify in_axis explicitly."
        )
    fan_in, fan_out = _size(shape, in_axis), _size(shape, out_axis)
    field = math.prod(shape) / fan_in / fan_out / _size(shape, batch_axis)
    return fan_in * field, fan_out * field


_MODES: dict[str, Callable[[float, float], float]] = {
    "fan_in": lambda fan_in, fan_out: fan_in,
    "fan_out": lambda fan_in, fan_out: fan_out,
    "fan_avg": lambda fan_in, fan_out: (fan_in + fan_out) / 2,
    "fan_geo_avg": lambda fan_in, fan_out: (fan_in * fan_out) ** 0.5,
}

# Standard deviations of a normal cut off at ±2, and of a complex one cut off at absolute value 2.
_CUT_STDDEV = 0.87962566103423978
_CUT_STDDEV_COMPLEX = 0.95311164380491208


def variance_scaling(
    scale: Any,
    mode: str,
    distribution: str,
    in_axis: Axes = -2,
    out_axis: Axes = -1,
    batch_axis: Axes = (),
    dtype: Any = None,
) -> Initializer:
    """An initializer with the variance `scale / n`, where n depends on the shape.

    Args:
      scale: positive number.
      mode: the choice of n: "fan_in" is the number of inputs of an output, "fan_out" the number of outputs of an input,
        "fan_avg" their mean, "fan_geo_avg" their geometric mean.
      distribution: "truncated_normal" (at two standard deviations), "normal" or "uniform".
      in_axis, out_axis, batch_axis: axes of the inputs and of the outputs; batch axes belong to neither.
      dtype: default dtype of the initializer; may be complex.

    >>> make = mpijax.nn.initializers.variance_scaling(1.0, "fan_in", "normal")
    >>> w = make(mpijax.random.key(0), (100, 200))
    >>> jnp.allclose(jnp.var(w), 1 / 100, rtol=0.05)
    Array(True, dtype=bool)
    """

    def make(key, shape, dtype):
        shape = canonical_shape(shape)
        fans = _compute_fans(shape, in_axis, out_axis, batch_axis)
        if mode not in _MODES:
            raise ValueError(f"invalid mode for variance scaling initializer: {mode}")
        variance = jnp.array(scale / _MODES[mode](*fans), dtype=dtype)
        is_real = dtypes.issubdtype(dtype, np.floating)
        if distribution == "truncated_normal":
            stddev = jnp.sqrt(variance) / jnp.array(_CUT_STDDEV if is_real else _CUT_STDDEV_COMPLEX, dtype)
            if is_real:
                return random.truncated_normal(key, -2, 2, shape, dtype) * stddev
            return _complex_truncated_normal(key, 2, shape, dtype) * stddev
        if distribution == "normal":
            return random.normal(key, shape, dtype) * jnp.sqrt(variance)
        if distribution == "uniform":
            if is_real:
                return random.uniform(key, shape, dtype, -1) * jnp.sqrt(3 * variance)
            return _complex_uniform(key, shape, dtype) * jnp.sqrt(variance)
        raise ValueError(f"invalid distribution for variance scaling initializer: {distribution}")

    return _initializer(make, dtype)


def _on_circles(radius: Any, key: Any, shape: Sequence[int], dtype: Any, real: Any) -> Any:
    """Complex numbers of the given absolute values and uniform angles."""
    angle = 2 * np.pi * random.uniform(key, shape, real).astype(dtype)
    return radius * jnp.exp(1j * angle)


def _complex_uniform(key: Any, shape: Sequence[int], dtype: Any) -> Any:
    """Uniform on the unit disk: the square of the absolute value is uniform."""
    key_radius, key_angle = random.split(key)
    real = np.array(0, dtype).real.dtype
    dtype = dtypes.to_complex_dtype(real)
    radius = jnp.sqrt(2 * random.uniform(key_radius, shape, real)).astype(dtype)
    return _on_circles(radius, key_angle, shape, dtype, real)


def _complex_truncated_normal(key: Any, upper: Any, shape: Sequence[int], dtype: Any) -> Any:
    """Complex normal truncated to absolute values of at most `upper`, by inversion of the distribution of the absolute
    values."""
    key_radius, key_angle = random.split(key)
    real = np.array(0, dtype).real.dtype
    dtype = dtypes.to_complex_dtype(real)
    reached = (1 - jnp.exp(jnp.array(-(upper**2), dtype))) * random.uniform(key_radius, shape, real).astype(dtype)
    return _on_circles(jnp.sqrt(-jnp.log(1 - reached)), key_angle, shape, dtype, real)


def _scaling(name: str, source: str, variance: str, scale: float, mode: str, distribution: str) -> Callable:
    def make(in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None) -> Initializer:
        return variance_scaling(
            scale, mode, distribution, in_axis=in_axis, out_axis=out_axis, batch_axis=batch_axis, dtype=dtype
        )

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"""Variance {variance}: {source}. See `variance_scaling` for the arguments.

    >>> fan_in, fan_out = 100, 200
    >>> w = mpijax.nn.initializers.{name}()(mpijax.random.key(0), (fan_in, fan_out))
    >>> jnp.allclose(jnp.var(w), {variance}, rtol=0.05)
    Array(True, dtype=bool)
    """
    return make


_GLOROT = "Glorot and Bengio (2010)", "2 / (fan_in + fan_out)", 1.0, "fan_avg"
_LECUN = "LeCun et al. (1998)", "1 / fan_in", 1.0, "fan_in"
_HE = "He et al. (2015)", "2 / fan_in", 2.0, "fan_in"
glorot_uniform = xavier_uniform = _scaling("glorot_uniform", *_GLOROT, "uniform")
glorot_normal = xavier_normal = _scaling("glorot_normal", *_GLOROT, "truncated_normal")
lecun_uniform = _scaling("lecun_uniform", *_LECUN, "uniform")
lecun_normal = _scaling("lecun_normal", *_LECUN, "truncated_normal")
he_uniform = kaiming_uniform = _scaling("he_uniform", *_HE, "uniform")
he_normal = kaiming_normal = _scaling("he_normal", *_HE, "truncated_normal")


def orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """An initializer: matrices with orthonormal rows or columns (whichever are fewer), times `scale`.

    Args:
      scale: number.
      column_axis: the axis of the columns; all other axes together are the rows.
      dtype: default dtype of the initializer.

    >>> q = mpijax.nn.initializers.orthogonal()(mpijax.random.key(0), (3, 2))
    >>> jnp.allclose(q.T @ q, jnp.eye(2), atol=1e-5)
    Array(True, dtype=bool)
    """

    def make(key, shape, dtype):
        if len(shape) < 2:
            raise ValueError("orthogonal initializer requires at least a 2D shape")
        if 0 in shape:
            return jnp.zeros(shape, dtype=dtype)
        columns = shape[column_axis]
        q = random.orthogonal(key, math.prod(shape) // columns, (), dtype, columns)
        q = jnp.reshape(q, (*np.delete(shape, column_axis), columns))
        return jnp.array(scale, dtype) * jnp.moveaxis(q, -1, column_axis)

    return _initializer(make, dtype)


def delta_orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """An initializer for convolutions: an orthogonal matrix in the middle of the window, zeros around it. Xiao et al.
    (2018).

    Shapes have one to three window axes, then the inputs, then the outputs. There must be at least as many outputs as
    inputs.

    >>> w = mpijax.nn.initializers.delta_orthogonal()(mpijax.random.key(0), (3, 2, 4))
    >>> jnp.sum(w**2, axis=(1, 2)).round(4)
    Array([0., 2., 0.], dtype=float32)
    """

    def make(key, shape, dtype):
        if len(shape) not in (3, 4, 5):
            raise ValueError("Delta orthogonal initializer requires a 3D, 4D or 5D shape.")
        if shape[-1] < shape[-2]:
            raise ValueError("`fan_in` must be less or equal than `fan_out`.")
        matrix = orthogonal(scale=scale, column_axis=column_axis, dtype=dtype)(key, shape[-2:])
        middle = tuple((size - 1) // 2 for size in shape[:-2])
        return jnp.zeros(shape, dtype=dtype).at[(*middle, ...)].set(matrix)

    return _initializer(make, dtype)
