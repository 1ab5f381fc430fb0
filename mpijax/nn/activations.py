"""Activation functions: elementwise, except `glu`.

Each is a jitted function, so a Jaxpr shows its name. If the derivative at a kink is a matter of choice, the function
has a derivative rule of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.numpy.util import ensure_arraylike, promote_args_inexact
from mpijax.transforms.custom_jvp import custom_jvp
from mpijax.transforms.jit import jit


@jit
def identity(x: Any) -> Any:
    """x

    Of any dtype.

    >>> mpijax.nn.identity(jnp.array([-1, 2]))
    Array([-1,  2], dtype=int32)
    """
    return ensure_arraylike("identity", x)


@custom_jvp
@jit
def relu(x: Any) -> Any:
    """max(x, 0). The derivative at 0 is 0.

    Elementwise; integers stay integers.

    >>> mpijax.nn.relu(jnp.array([-1.0, 0.0, 2.0]))
    Array([0., 0., 2.], dtype=float32)
    """
    return jnp.maximum(x, 0)


relu.defjvps(lambda t, out, x: lax.select(x > 0, t, lax.full_like(t, 0)))


@custom_jvp
@jit
def relu6(x: Any) -> Any:
    """min(max(x, 0), 6). The derivative at 0 and at 6 is 0.

    Elementwise; integers become floats.

    >>> mpijax.nn.relu6(jnp.array([-1.0, 2.0, 9.0]))
    Array([0., 2., 6.], dtype=float32)
    """
    return jnp.minimum(jnp.maximum(x, 0), 6.0)


relu6.defjvps(lambda t, out, x: lax.select((x > 0) & (x < 6), t, lax.full_like(t, 0)))


@jit
def squareplus(x: Any, b: Any = 4) -> Any:
    """(x + sqrt(x² + b)) / 2

    Elementwise; integers become floats.

    >>> mpijax.nn.squareplus(jnp.array([-1.0, 0.0, 1.0])).round(4)
    Array([0.618, 1.   , 1.618], dtype=float32)
    """
    x, b = ensure_arraylike("squareplus", x, b)
    return (x + jnp.sqrt(jnp.square(x) + b)) / 2


@jit
def softplus(x: Any) -> Any:
    """log(1 + eˣ)

    Elementwise; integers become floats.

    >>> mpijax.nn.softplus(jnp.array([-100.0, 0.0, 100.0])).round(4)
    Array([  0.    ,   0.6931, 100.    ], dtype=float32)
    """
    return jnp.logaddexp(x, 0)


@jit
def sparse_plus(x: Any) -> Any:
    """0 for x <= -1, x for x >= 1, and (x + 1)² / 4 between.

    Elementwise; integers become floats.

    >>> mpijax.nn.sparse_plus(jnp.array([-2.0, 0.0, 2.0]))
    Array([0.  , 0.25, 2.  ], dtype=float32)
    """
    x = ensure_arraylike("sparse_plus", x)
    return jnp.where(x <= -1.0, 0.0, jnp.where(x >= 1.0, x, (x + 1.0) ** 2 / 4))


@jit
def soft_sign(x: Any) -> Any:
    """x / (|x| + 1)

    Elementwise; integers become floats.

    >>> mpijax.nn.soft_sign(jnp.array([-1.0, 0.0, 3.0]))
    Array([-0.5 ,  0.  ,  0.75], dtype=float32)
    """
    x = ensure_arraylike("soft_sign", x)
    return x / (jnp.abs(x) + 1)


@jit(inline=True)
def sigmoid(x: Any) -> Any:
    """1 / (1 + e⁻ˣ)

    Elementwise, on floats or complex numbers.

    >>> mpijax.nn.sigmoid(jnp.array([-2.0, 0.0, 2.0])).round(4)
    Array([0.1192, 0.5   , 0.8808], dtype=float32)
    """
    return lax.logistic(x)


@jit
def sparse_sigmoid(x: Any) -> Any:
    """0 for x <= -1, 1 for x >= 1, and (x + 1) / 2 between.

    Elementwise; integers become floats. Raises ValueError for complex numbers.

    >>> mpijax.nn.sparse_sigmoid(jnp.array([-2.0, 0.0, 2.0]))
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    return 0.5 * jnp.clip(x + 1.0, 0.0, 2.0)


@jit
def silu(x: Any) -> Any:
    """x sigmoid(x); also called swish.

    Elementwise, on floats or complex numbers.

    >>> mpijax.nn.silu(jnp.array([-1.0, 0.0, 1.0])).round(4)
    Array([-0.2689,  0.    ,  0.7311], dtype=float32)
    """
    x = ensure_arraylike("silu", x)
    return x * sigmoid(x)


swish = silu


@jit
def mish(x: Any) -> Any:
    """x tanh(softplus(x))

    Elementwise; integers become floats.

    >>> mpijax.nn.mish(jnp.array([-1.0, 0.0, 1.0])).round(4)
    Array([-0.3034,  0.    ,  0.8651], dtype=float32)
    """
    x = ensure_arraylike("mish", x)
    return x * jnp.tanh(softplus(x))


@jit
def log_sigmoid(x: Any) -> Any:
    """log(sigmoid(x)), also accurate for very negative x.

    Elementwise; integers become floats.

    >>> mpijax.nn.log_sigmoid(jnp.array([-100.0, 0.0])).round(4)
    Array([-100.    ,   -0.6931], dtype=float32)
    """
    x = ensure_arraylike("log_sigmoid", x)
    return -softplus(-x)


@jit
def elu(x: Any, alpha: Any = 1.0) -> Any:
    """x for x > 0, else alpha (eˣ - 1).

    Elementwise; integers become floats.

    >>> mpijax.nn.elu(jnp.array([-1.0, 0.0, 2.0])).round(4)
    Array([-0.6321,  0.    ,  2.    ], dtype=float32)
    """
    x = ensure_arraylike("elu", x)
    # The inner `where` keeps eˣ finite where it is not used, because its derivative is computed there, too.
    return jnp.where(x > 0, x, alpha * jnp.expm1(jnp.where(x > 0, 0.0, x)))


@jit
def leaky_relu(x: Any, negative_slope: Any = 0.01) -> Any:
    """x for x >= 0, else negative_slope x.

    Elementwise; integers become floats.

    >>> mpijax.nn.leaky_relu(jnp.array([-1.0, 2.0]))
    Array([-0.01,  2.  ], dtype=float32)
    """
    x = ensure_arraylike("leaky_relu", x)
    return jnp.where(x >= 0, x, negative_slope * x)


@jit
def hard_tanh(x: Any) -> Any:
    """x limited to [-1, 1].

    Elementwise; integers stay integers.

    >>> mpijax.nn.hard_tanh(jnp.array([-4.0, 0.5, 4.0]))
    Array([-1. ,  0.5,  1. ], dtype=float32)
    """
    x = ensure_arraylike("hard_tanh", x)
    return jnp.where(x > 1, 1, jnp.where(x < -1, -1, x))


@jit
def celu(x: Any, alpha: Any = 1.0) -> Any:
    """x for x > 0, else alpha (exp(x / alpha) - 1).

    Elementwise; integers become floats.

    >>> mpijax.nn.celu(jnp.array([-1.0, 0.0, 2.0])).round(4)
    Array([-0.6321,  0.    ,  2.    ], dtype=float32)
    """
    return jnp.maximum(x, 0.0) + alpha * jnp.expm1(jnp.minimum(x, 0.0) / alpha)


@jit
def selu(x: Any) -> Any:
    """scale · elu(x, alpha), with constants that preserve mean 0 and variance 1 from layer to layer.

    Klambauer et al., Self-Normalizing Neural Networks (2017), equation 14.

    Elementwise; integers become floats.

    >>> mpijax.nn.selu(jnp.array([-1.0, 0.0, 1.0])).round(4)
    Array([-1.1113,  0.    ,  1.0507], dtype=float32)
    """
    return 1.0507009873554804934193349852946 * elu(x, 1.6732632423543772848170429916717)


def gelu(x: Any, approximate: bool = True) -> Any:
    """x Φ(x), with Φ the normal distribution function.

    Args:
      x: array.
      approximate: use the tanh formula of Hendrycks and Gimpel, Gaussian Error Linear Units (2016).

    >>> mpijax.nn.gelu(jnp.array([-1.0, 0.0, 1.0])).round(4)
    Array([-0.1588,  0.    ,  0.8412], dtype=float32)
    """
    (x,) = promote_args_inexact("gelu", x)
    if approximate:
        slope = np.sqrt(2 / np.pi).astype(x.dtype)
        return x * (0.5 * (1.0 + jnp.tanh(slope * (x + 0.044715 * x**3))))
    root_half = np.sqrt(0.5).astype(x.dtype)
    return jnp.array(0.5 * x * lax.erfc(-x * root_half), dtype=x.dtype)


@jit(static_argnames=("axis",))
def glu(x: Any, axis: int = -1) -> Any:
    """The first half of x along `axis`, times the sigmoid of the second half.

    >>> mpijax.nn.glu(jnp.array([1.0, 2.0, 0.0, 0.0]))
    Array([0.5, 1. ], dtype=float32)
    """
    x = ensure_arraylike("glu", x)
    size = x.shape[axis]
    if size % 2:
        raise AssertionError(f"axis size must be divisible by 2; got shape {x.shape} and axis={axis}")
    values, gates = jnp.split(x, 2, axis)
    return values * sigmoid(gates)


@jit
def hard_sigmoid(x: Any) -> Any:
    """relu6(x + 3) / 6

    Elementwise; integers become floats.

    >>> mpijax.nn.hard_sigmoid(jnp.array([-4.0, 0.0, 4.0]))
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    return relu6(x + 3.0) / 6.0


@jit
def hard_silu(x: Any) -> Any:
    """x hard_sigmoid(x); also called hard_swish.

    Elementwise; integers become floats.

    >>> mpijax.nn.hard_silu(jnp.array([-4.0, 0.0, 4.0]))
    Array([-0.,  0.,  4.], dtype=float32)
    """
    x = ensure_arraylike("hard_silu", x)
    return x * hard_sigmoid(x)


hard_swish = hard_silu


@custom_jvp
@jit
def log1mexp(x: Any) -> Any:
    """log(1 - e⁻ˣ) for x > 0.

    Uses expm1 below log 2 and log1p above: Mächler, Accurately Computing log(1 - exp(-|a|)) (2012).

    Elementwise; integers become floats.

    >>> mpijax.nn.log1mexp(jnp.array([0.5, 5.0])).round(4)
    Array([-0.9328, -0.0068], dtype=float32)
    """
    x = ensure_arraylike("log1mexp", x)
    return jnp.where(x < jnp.log(2.0), jnp.log(-jnp.expm1(-x)), jnp.log1p(-jnp.exp(-x)))


log1mexp.defjvps(lambda t, out, x: t / jnp.expm1(x))
