"""Haiku: a residual network with state and an LSTM, trained by hand."""

import haiku as hk
import jax
import jax.numpy as jnp
import optax


def forward(x, train):
    x = hk.Conv2D(8, 3)(x)
    x = jax.nn.relu(hk.BatchNorm(True, True, 0.9)(x, train))
    x = x + hk.Sequential([hk.Conv2D(8, 3), jax.nn.relu, hk.Conv2D(8, 3)])(x)
    if train:
        x = hk.dropout(hk.next_rng_key(), 0.1, x)
    sequence = x.reshape(x.shape[0], 8, -1)
    out, _ = hk.dynamic_unroll(hk.LSTM(12), sequence, hk.LSTM(12).initial_state(x.shape[0]), time_major=False)
    return hk.Linear(3)(out[:, -1])


def run():
    net = hk.transform_with_state(forward)
    x = jax.random.normal(jax.random.PRNGKey(0), (16, 8, 8, 1))
    y = jnp.arange(16) % 3
    params, state = net.init(jax.random.PRNGKey(1), x, True)
    optimizer = optax.sgd(0.1, momentum=0.9)

    @jax.jit
    def step(params, state, opt, key):
        def loss(params):
            logits, new = net.apply(params, state, key, x, True)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), new

        (value, state_), grads = jax.value_and_grad(loss, has_aux=True)(params)
        updates, opt_ = optimizer.update(grads, opt)
        return optax.apply_updates(params, updates), state_, opt_, value

    opt, losses = optimizer.init(params), []
    keys = hk.PRNGSequence(2)
    for _ in range(10):
        params, state, opt, value = step(params, state, opt, next(keys))
        losses.append(value)
    logits, _ = net.apply(params, state, None, x, False)
    return {"losses": jnp.stack(losses), "logits": logits.mean(0), "parameters": hk.data_structures.tree_size(params)}
