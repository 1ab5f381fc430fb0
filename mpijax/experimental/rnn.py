"""``mpijax.experimental.rnn``: LSTM layers with all weights in one vector, as in cuDNN.

For each direction of each layer, the vector has the weights of the inputs (`4 * hidden_size` rows), then the weights of
the state. After all weights come the two biases of each direction. Rows are those of the gates i, f, g and o. The
equations are those of torch.nn.LSTM.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from mpijax import lax, nn
from mpijax import numpy as jnp
from mpijax.random import uniform
from mpijax.transforms.jit import jit

__all__ = ["get_num_params_in_lstm", "init_lstm_weight", "lstm", "lstm_ref", "swap_lstm_gates", "unpack_lstm_weights"]


def _shapes(input_size: int, hidden_size: int, num_layers: int, bidirectional: bool) -> list[tuple[int, ...]]:
    """The shapes of the parts of the vector of weights, in order."""
    directions = 1 + bidirectional
    gates = 4 * hidden_size
    weights: list[tuple[int, ...]] = []
    for layer in range(num_layers):
        inputs = hidden_size * directions if layer else input_size
        weights += [(gates, inputs), (gates, hidden_size)] * directions
    return weights + [(gates,)] * len(weights)


def _parts(weights: Any, shapes: list[tuple[int, ...]]) -> list[Any]:
    if weights.shape != (sum(map(math.prod, shapes)),):
        raise ValueError(
            f"the weights of this LSTM must be a vector of {sum(map(math.prod, shapes))} elements, got shape "
            f"{weights.shape}"
        )
    parts, begin = [], 0
    for shape in shapes:
        end = begin + math.prod(shape)
        parts.append(weights[begin:end].reshape(shape))
        begin = end
    return parts


def get_num_params_in_lstm(input_size: int, hidden_size: int, num_layers: int, bidirectional: bool) -> int:
    """The length of the vector of weights.

    >>> from mpijax.experimental import rnn
    >>> rnn.get_num_params_in_lstm(input_size=3, hidden_size=4, num_layers=1, bidirectional=False)
    144
    """
    return sum(map(math.prod, _shapes(input_size, hidden_size, num_layers, bidirectional)))


def init_lstm_weight(rng: Any, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool) -> Any:
    """Random weights, uniform in [-k, k] with k = sqrt(1 / hidden_size): a float32 vector.

    >>> from mpijax.experimental import rnn
    >>> rnn.init_lstm_weight(mpijax.random.key(0), 3, 4, 1, False).shape
    (144,)
    """
    k = math.sqrt(1.0 / hidden_size)
    number = get_num_params_in_lstm(input_size, hidden_size, num_layers, bidirectional)
    return uniform(rng, (number,), jnp.float32, -k, k)


def swap_lstm_gates(weights: Any, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool) -> Any:
    """The vector of weights with the gates g and o exchanged.

    >>> from mpijax.experimental import rnn
    >>> rnn.swap_lstm_gates(jnp.arange(16.0), 1, 1, 1, False)
    Array([ 0.,  1.,  3.,  2.,  4.,  5.,  7.,  6.,  8.,  9., 11., 10., 12.,
           13., 15., 14.], dtype=float32)
    """
    shapes = _shapes(input_size, hidden_size, num_layers, bidirectional)
    order = jnp.array([0, 1, 3, 2])
    parts = _parts(jnp.asarray(weights), shapes)
    return jnp.concatenate([p.reshape(4, hidden_size, -1)[order].ravel() for p in parts])


def unpack_lstm_weights(
    weights: Any, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool
) -> tuple[dict[int, Any], dict[int, Any], dict[int, Any], dict[int, Any]]:
    """W_ih, W_hh, b_ih and b_hh by layer. A bidirectional layer counts twice, first the forward direction.

    Raises ValueError if the vector has another length.

    >>> from mpijax.experimental import rnn
    >>> w_ih, w_hh, b_ih, b_hh = rnn.unpack_lstm_weights(jnp.zeros(144), 3, 4, 1, False)
    >>> w_ih[0].shape, w_hh[0].shape, b_ih[0].shape
    ((16, 3), (16, 4), (16,))
    """
    parts = _parts(weights, _shapes(input_size, hidden_size, num_layers, bidirectional))
    matrices, biases = parts[: len(parts) // 2], parts[len(parts) // 2 :]
    w_ih, w_hh, b_ih, b_hh = (dict(enumerate(x)) for x in (matrices[::2], matrices[1::2], biases[::2], biases[1::2]))
    return w_ih, w_hh, b_ih, b_hh


def lstm(
    x: Any,
    h_0: Any,
    c_0: Any,
    weights: Any,
    seq_lengths: Any,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    dropout: float,
    bidirectional: bool,
    precision: Any = None,
) -> tuple[Any, Any, Any]:
    """LSTM layers over a batch of sequences. It runs on CPUs (JAX's needs a GPU), and has derivatives.

    Args:
      x: inputs, of shape (batch, steps, input_size).
      h_0, c_0: initial states, of shape (layers * directions, batch, hidden_size).
      weights: a vector as `init_lstm_weight` returns it.
      seq_lengths: number of steps of each sequence, int32 of shape (batch,). Later outputs are zeros.
      dropout: must be 0.
      precision: precision of products. bfloat16 raises an error, as in JAX.

    Returns:
      (y, h_n, c_n): y has the shape (batch, steps, hidden_size * directions); h_n and c_n are the states after the last
      step of each sequence.

    Raises:
      NotImplementedError: `dropout` is not 0, the lengths are not int32, or the precision is `Precision.DEFAULT`.

    >>> from mpijax.experimental import rnn
    >>> weights = rnn.init_lstm_weight(mpijax.random.key(0), 3, 4, 2, True)
    >>> x, state, lengths = jnp.ones((5, 7, 3)), jnp.zeros((4, 5, 4)), jnp.array([7, 7, 2, 1, 3])
    >>> y, h, c = rnn.lstm(x, state, state, weights, lengths, 3, 4, 2, 0.0, True)
    >>> y.shape, h.shape
    ((5, 7, 8), (4, 5, 4))
    """
    if precision in (lax.Precision.DEFAULT, "default", "bfloat16", "fastest"):
        raise NotImplementedError("bfloat16 support not implemented for LSTM")
    w_ih, w_hh, b_ih, b_hh = unpack_lstm_weights(weights, input_size, hidden_size, num_layers, bidirectional)
    return lstm_ref(
        x, h_0, c_0, w_ih, w_hh, b_ih, b_hh, seq_lengths, input_size, hidden_size, num_layers, dropout, bidirectional
    )


@partial(jit, static_argnums=(8, 9, 10, 11, 12))
def lstm_ref(
    x: Any,
    h_0: Any,
    c_0: Any,
    W_ih: dict[int, Any],
    W_hh: dict[int, Any],
    b_ih: dict[int, Any],
    b_hh: dict[int, Any],
    seq_lengths: Any,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    dropout: float,
    bidirectional: bool,
) -> tuple[Any, Any, Any]:
    """`lstm`, with weights and biases as `unpack_lstm_weights` returns them.

    >>> from mpijax.experimental import rnn
    >>> parts = rnn.unpack_lstm_weights(rnn.init_lstm_weight(mpijax.random.key(0), 3, 4, 1, False), 3, 4, 1, False)
    >>> state = jnp.zeros((1, 5, 4))
    >>> rnn.lstm_ref(jnp.ones((5, 7, 3)), state, state, *parts, jnp.full(5, 7), 3, 4, 1, 0.0, False)[0].shape
    (5, 7, 4)
    """
    if seq_lengths.dtype != jnp.int32:
        raise NotImplementedError(f"`seq_lengths` can only be int32, got {seq_lengths.dtype}.")
    if dropout != 0.0:
        raise NotImplementedError(
            f"Dropout is not supported in LSTM layers, got {dropout}. Apply it to the outputs of each layer."
        )
    step, batch, lengths = jnp.arange(x.shape[1])[:, None], jnp.arange(x.shape[0]), seq_lengths[None]
    inside = step < lengths
    # Reverses each sequence; padding after its last step stays there. The permutation is its own inverse.
    turned = (jnp.where(inside, lengths - 1 - step, step), batch[None])

    def cell(weights, bias, state, given):
        h, c = state
        gates = given + h @ weights.T + bias[None]
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
        h = nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), (h, c)

    y, last_h, last_c = jnp.swapaxes(x, 0, 1), [], []
    directions = 1 + bidirectional
    for layer in range(num_layers):
        outputs = []
        for k in range(layer * directions, (layer + 1) * directions):
            backward = k % directions
            # One product covers the inputs of all steps.
            given = (y[turned] if backward else y) @ W_ih[k].T + b_ih[k][None, None]
            _, (h, c) = lax.scan(partial(cell, W_hh[k], b_hh[k]), (h_0[k], c_0[k]), given)
            last_h.append(h[seq_lengths - 1, batch])
            last_c.append(c[seq_lengths - 1, batch])
            outputs.append(jnp.where(inside[..., None], h[turned] if backward else h, 0))
        y = jnp.concatenate(outputs, axis=-1)
    return jnp.swapaxes(y, 0, 1), jnp.stack(last_h), jnp.stack(last_c)
