"""``jax.example_libraries.stax``: networks from layers, which are pairs of functions.

A layer is `(init_fun, apply_fun)`: `init_fun(key, input_shape) -> (output_shape, params)` and
`apply_fun(params, inputs, rng=key) -> outputs`. `serial` and `parallel` make layers of layers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import mpijax.numpy as jnp
from mpijax import lax, random
from mpijax.nn.activations import elu, gelu, leaky_relu, relu, selu, sigmoid, softplus
from mpijax.nn.initializers import glorot_normal, normal, ones, zeros
from mpijax.nn.normalize import log_softmax, softmax, standardize

Layer = tuple[Callable, Callable]

# Older names.
glorot = glorot_normal
randn = normal
logsoftmax = log_softmax


def Dense(out_dim: int, W_init: Callable = glorot_normal(), b_init: Callable = normal()) -> Layer:  # noqa: B008
    """Inputs (..., n) times a matrix (n, out_dim), plus a vector.

    >>> init, apply = mpijax.example_libraries.stax.Dense(3)
    >>> shape, params = init(mpijax.random.key(0), (-1, 2))
    >>> shape, apply(params, jnp.ones((5, 2))).shape
    ((-1, 3), (5, 3))
    """

    def init_fun(rng: Any, input_shape: tuple[int, ...]) -> Any:
        k1, k2 = random.split(rng)
        params = W_init(k1, (input_shape[-1], out_dim)), b_init(k2, (out_dim,))
        return (*input_shape[:-1], out_dim), params

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        W, b = params
        return jnp.dot(inputs, W) + b

    return init_fun, apply_fun


def _convolution(shape_of_result: Callable, convolve: Callable, dimension_numbers, out_chan, filter_shape, strides,
                 padding, W_init, b_init) -> Layer:  # fmt: skip
    """A convolution layer: `convolve(inputs, kernel, strides, padding)` has the shape `shape_of_result(...)`."""
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    strides = strides or (1,) * len(filter_shape)
    W_init = W_init or glorot_normal(rhs_spec.index("I"), rhs_spec.index("O"))

    def init_fun(rng: Any, input_shape: tuple[int, ...]) -> Any:
        sizes = iter(filter_shape)
        channels = {"O": out_chan, "I": input_shape[lhs_spec.index("C")]}
        kernel_shape = [channels[c] if c in channels else next(sizes) for c in rhs_spec]
        output_shape = shape_of_result(input_shape, kernel_shape, strides, padding, dimension_numbers)
        k1, k2 = random.split(rng)
        bias_shape = [out_chan if c == "C" else 1 for c in out_spec]
        return output_shape, (W_init(k1, kernel_shape), b_init(k2, bias_shape))

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        W, b = params
        return convolve(inputs, W, strides, padding, dimension_numbers=dimension_numbers) + b

    return init_fun, apply_fun


def GeneralConv(
    dimension_numbers: Any,
    out_chan: int,
    filter_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Any = "VALID",
    W_init: Callable | None = None,
    b_init: Callable = normal(1e-6),  # noqa: B008
) -> Layer:
    """A convolution with a kernel of `filter_shape`, in any layout.

    >>> init, apply = mpijax.example_libraries.stax.GeneralConv(("NHWC", "HWIO", "NHWC"), 4, (3, 3))
    >>> init(mpijax.random.key(0), (-1, 8, 8, 3))[0]
    (-1, 6, 6, 4)
    """
    return _convolution(
        lax.conv_general_shape_tuple, lax.conv_general_dilated, dimension_numbers, out_chan, filter_shape, strides,
        padding, W_init, b_init,
    )  # fmt: skip


def GeneralConvTranspose(
    dimension_numbers: Any,
    out_chan: int,
    filter_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Any = "VALID",
    W_init: Callable | None = None,
    b_init: Callable = normal(1e-6),  # noqa: B008
) -> Layer:
    """A transposed convolution, in any layout.

    >>> init, apply = mpijax.example_libraries.stax.GeneralConvTranspose(("NHWC", "HWIO", "NHWC"), 4, (2, 2), (2, 2))
    >>> init(mpijax.random.key(0), (-1, 8, 8, 3))[0]
    (-1, 16, 16, 4)
    """
    return _convolution(
        lax.conv_transpose_shape_tuple, lax.conv_transpose, dimension_numbers, out_chan, filter_shape, strides,
        padding, W_init, b_init,
    )  # fmt: skip


Conv = functools.partial(GeneralConv, ("NHWC", "HWIO", "NHWC"))
Conv1DTranspose = functools.partial(GeneralConvTranspose, ("NHC", "HIO", "NHC"))
ConvTranspose = functools.partial(GeneralConvTranspose, ("NHWC", "HWIO", "NHWC"))


def BatchNorm(
    axis: Any = (0, 1, 2),
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    beta_init: Callable = zeros,
    gamma_init: Callable = ones,
) -> Layer:
    """Inputs minus their mean over `axis`, divided by their standard deviation; then scaled and shifted.

    >>> init, apply = mpijax.example_libraries.stax.BatchNorm(axis=0)
    >>> shape, params = init(mpijax.random.key(0), (2, 1))
    >>> apply(params, jnp.array([[1.0], [3.0]])).round(3)
    Array([[-1.],
           [ 1.]], dtype=float32)
    """
    axes = (axis,) if jnp.isscalar(axis) else tuple(axis)

    def init_fun(rng: Any, input_shape: tuple[int, ...]) -> Any:
        shape = tuple(n for i, n in enumerate(input_shape) if i not in axes)
        k1, k2 = random.split(rng)
        return input_shape, (beta_init(k1, shape) if center else (), gamma_init(k2, shape) if scale else ())

    def apply_fun(params: Any, x: Any, **kwargs: Any) -> Any:
        beta, gamma = params
        z = standardize(x, axes, epsilon=epsilon)
        z = jnp.expand_dims(gamma, axes) * z if scale else z
        return z + jnp.expand_dims(beta, axes) if center else z

    return init_fun, apply_fun


def elementwise(fun: Callable, **fun_kwargs: Any) -> Layer:
    """A layer that applies a function that keeps the shape.

    >>> init, apply = mpijax.example_libraries.stax.elementwise(jnp.square)
    >>> apply((), jnp.array([2, 3]))
    Array([4, 9], dtype=int32)
    """
    return lambda rng, input_shape: (input_shape, ()), lambda params, inputs, **kwargs: fun(inputs, **fun_kwargs)


Tanh = elementwise(jnp.tanh)
Relu = elementwise(relu)
Exp = elementwise(jnp.exp)
LogSoftmax = elementwise(log_softmax, axis=-1)
Softmax = elementwise(softmax, axis=-1)
Softplus = elementwise(softplus)
Sigmoid = elementwise(sigmoid)
Elu = elementwise(elu)
LeakyRelu = elementwise(leaky_relu)
Selu = elementwise(selu)
Gelu = elementwise(gelu)


def _pooling(name: str, shown: str, reducer: Callable, start: float, mean: bool = False) -> Callable[..., Layer]:
    def layer(
        window_shape: Sequence[int],
        strides: Sequence[int] | None = None,
        padding: Any = "VALID",
        spec: str | None = None,
    ) -> Layer:
        ndim = len(window_shape) + 2
        apart = sorted((spec.index("N"), spec.index("C")) if spec else (0, ndim - 1))
        sizes, strided = list(window_shape), list(strides or (1,) * len(window_shape))
        for i in apart:
            sizes.insert(i, 1)
            strided.insert(i, 1)
        window, steps = tuple(sizes), tuple(strided)

        def init_fun(rng: Any, input_shape: tuple[int, ...]) -> Any:
            pads = lax.padtype_to_pads(input_shape, window, steps, padding)
            one = (1,) * ndim
            return lax.reduce_window_shape_tuple(input_shape, window, steps, pads, one, one), ()

        def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
            out = lax.reduce_window(inputs, start, reducer, window, steps, padding)
            if not mean:
                return out
            shape = tuple(1 if i in apart else n for i, n in enumerate(inputs.shape))
            return out / lax.reduce_window(jnp.ones(shape, inputs.dtype), 0.0, lax.add, window, steps, padding)

        return init_fun, apply_fun

    layer.__name__ = layer.__qualname__ = name
    layer.__doc__ = f"""Reduces each window of an image to one value. `spec` is the layout, "NHWC" if None.

    >>> init, apply = mpijax.example_libraries.stax.{name}((1, 2))
    >>> apply((), jnp.array([1.0, 2.0, 6.0]).reshape(1, 1, 3, 1))[0, 0, :, 0]
    Array({shown}, dtype=float32)
    """
    return layer


MaxPool = _pooling("MaxPool", "[2., 6.]", lax.max, -jnp.inf)
SumPool = _pooling("SumPool", "[3., 8.]", lax.add, 0.0)
AvgPool = _pooling("AvgPool", "[1.5, 4. ]", lax.add, 0.0, mean=True)

# All axes after the first as one.
Flatten: Layer = (
    lambda rng, input_shape: ((input_shape[0], math.prod(input_shape[1:])), ()),
    lambda params, inputs, **kwargs: jnp.reshape(inputs, (inputs.shape[0], -1)),
)
Identity: Layer = elementwise(lambda x: x)
# The sum of a list of inputs.
FanInSum: Layer = (
    lambda rng, input_shape: (input_shape[0], ()),
    lambda params, inputs, **kwargs: sum(inputs),
)


def FanOut(num: int) -> Layer:
    """A list with `num` copies of the input.

    >>> init, apply = mpijax.example_libraries.stax.FanOut(2)
    >>> apply((), jnp.array([1, 2]))
    [Array([1, 2], dtype=int32), Array([1, 2], dtype=int32)]
    """
    return lambda rng, input_shape: ([input_shape] * num, ()), lambda params, inputs, **kwargs: [inputs] * num


def FanInConcat(axis: int = -1) -> Layer:
    """A list of inputs, joined along an axis.

    >>> init, apply = mpijax.example_libraries.stax.FanInConcat()
    >>> apply((), [jnp.array([1, 2]), jnp.array([3])])
    Array([1, 2, 3], dtype=int32)
    """

    def init_fun(rng: Any, input_shape: Any) -> Any:
        at = axis % len(input_shape[0])
        joined = list(input_shape[0])
        joined[at] = sum(shape[at] for shape in input_shape)
        return tuple(joined), ()

    return init_fun, lambda params, inputs, **kwargs: jnp.concatenate(inputs, axis)


def Dropout(rate: float, mode: str = "train") -> Layer:
    """In mode "train", keeps each input with probability `rate`, divided by `rate`, and replaces the others by 0.

    >>> init, apply = mpijax.example_libraries.stax.Dropout(0.5, mode="test")
    >>> apply((), jnp.array([1.0, 2.0]), rng=mpijax.random.key(0))
    Array([1., 2.], dtype=float32)
    """

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        rng = kwargs.get("rng")
        if rng is None:
            raise ValueError(
                "Dropout layer requires apply_fun to be called with a PRNG key: apply_fun(params, inputs, rng=key) "
                "with a key of jax.random.key."
            )
        if mode != "train":
            return inputs
        return jnp.where(random.bernoulli(rng, rate, inputs.shape), inputs / rate, 0)

    return lambda rng, input_shape: (input_shape, ()), apply_fun


# ---------------------------------------------------------------- layers of layers


def _keys(rng: Any, count: int) -> Any:
    return (None,) * count if rng is None else random.split(rng, count)


def serial(*layers: Layer) -> Layer:
    """Applies the layers one after the other; `params` is the list of their parameters.

    >>> from mpijax.example_libraries import stax
    >>> init, apply = stax.serial(stax.Dense(8), stax.Relu, stax.Dense(2))
    >>> shape, params = init(mpijax.random.key(0), (-1, 4))
    >>> apply(params, jnp.ones((5, 4))).shape
    (5, 2)
    """

    def init_fun(rng: Any, input_shape: Any) -> Any:
        params = []
        for init, _ in layers:
            rng, layer_rng = random.split(rng)
            input_shape, param = init(layer_rng, input_shape)
            params.append(param)
        return input_shape, params

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        rngs = _keys(kwargs.pop("rng", None), len(layers))
        for (_, apply), param, rng in zip(layers, params, rngs):
            inputs = apply(param, inputs, rng=rng, **kwargs)
        return inputs

    return init_fun, apply_fun


def parallel(*layers: Layer) -> Layer:
    """Applies one layer to each input of a list, for instance between `FanOut` and `FanInSum`.

    >>> from mpijax.example_libraries import stax
    >>> init, apply = stax.serial(stax.FanOut(2), stax.parallel(stax.Identity, stax.Relu), stax.FanInSum)
    >>> apply(init(mpijax.random.key(0), (2,))[1], jnp.array([-1.0, 2.0]))
    Array([-1.,  4.], dtype=float32)
    """

    def init_fun(rng: Any, input_shape: Any) -> Any:
        rngs = random.split(rng, len(layers))
        made = [init(key, shape) for (init, _), key, shape in zip(layers, rngs, input_shape)]
        return tuple(shape for shape, _ in made), tuple(params for _, params in made)

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        rngs = _keys(kwargs.pop("rng", None), len(layers))
        return [apply(p, x, rng=r, **kwargs) for (_, apply), p, x, r in zip(layers, params, inputs, rngs)]

    return init_fun, apply_fun


def shape_dependent(make_layer: Callable[[Any], Layer]) -> Layer:
    """The layer that `make_layer(input_shape)` returns.

    >>> from mpijax.example_libraries import stax
    >>> init, apply = stax.shape_dependent(lambda shape: stax.Dense(2 * shape[-1]))
    >>> init(mpijax.random.key(0), (-1, 3))[0]
    (-1, 6)
    """
    return (
        lambda rng, input_shape: make_layer(input_shape)[0](rng, input_shape),
        lambda params, inputs, **kwargs: make_layer(inputs.shape)[1](params, inputs, **kwargs),
    )
