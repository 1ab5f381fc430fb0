"""`jax.nn`: functions for neural networks. A name is loaded at its first use."""

from __future__ import annotations

from mpijax import faces as _faces

_MODULES = {
    "nn.activations": """
        celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu log1mexp log_sigmoid mish relu
        relu6 selu sigmoid silu soft_sign softplus sparse_plus sparse_sigmoid squareplus swish""",
    "nn.attention": "dot_product_attention",
    "nn.normalize": "log_softmax logmeanexp logsumexp softmax standardize",
    "nn.scaled": "get_scaled_dot_general_config scaled_dot_general scaled_matmul",
    "numpy.creation.one_hot": "one_hot",
    "numpy.ufuncs.elementwise": "tanh",
}

_HOME = _faces.homes_of(_MODULES)

_SUBMODULES = frozenset({"initializers"})

__all__ = sorted({*_HOME, *_SUBMODULES})  # noqa: PLE0605

__getattr__, __dir__ = _faces.on_demand(__name__, _HOME, _SUBMODULES)
