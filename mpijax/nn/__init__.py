"""Functions that neural networks are made of."""

from mpijax.nn import initializers
from mpijax.nn.activations import (
    celu,
    elu,
    gelu,
    glu,
    hard_sigmoid,
    hard_silu,
    hard_swish,
    hard_tanh,
    identity,
    leaky_relu,
    log1mexp,
    log_sigmoid,
    mish,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    soft_sign,
    softplus,
    sparse_plus,
    sparse_sigmoid,
    squareplus,
    swish,
)
from mpijax.nn.attention import dot_product_attention
from mpijax.nn.normalize import (
    log_softmax,
    logmeanexp,
    logsumexp,
    softmax,
    standardize,
)
from mpijax.nn.scaled import get_scaled_dot_general_config, scaled_dot_general, scaled_matmul
from mpijax.numpy import tanh
from mpijax.numpy.one_hot import one_hot

__all__ = [
    "celu", "dot_product_attention", "elu", "gelu", "get_scaled_dot_general_config", "glu", "hard_sigmoid",
    "hard_silu", "hard_swish", "hard_tanh", "identity", "initializers", "leaky_relu", "log1mexp", "log_sigmoid",
    "log_softmax", "logmeanexp", "logsumexp", "mish", "one_hot", "relu", "relu6", "scaled_dot_general",
    "scaled_matmul", "selu", "sigmoid", "silu", "soft_sign", "softmax", "softplus", "sparse_plus",
    "sparse_sigmoid", "squareplus", "standardize", "swish", "tanh",
]  # fmt: skip
