"""Flax linen: a convolutional network with batch norm and dropout, trained by a TrainState."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training import train_state


class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool):
        x = nn.relu(nn.BatchNorm(use_running_average=not train)(nn.Conv(8, (3, 3))(x)))
        x = nn.avg_pool(x, (2, 2), (2, 2)).reshape(x.shape[0], -1)
        x = nn.Dropout(0.2, deterministic=not train)(nn.gelu(nn.Dense(32)(x)))
        return nn.Dense(4)(nn.LayerNorm()(x))


class State(train_state.TrainState):
    stats: dict


def run():
    images = jax.random.normal(jax.random.key(1), (32, 8, 8, 1))
    labels = jnp.argmax(images.mean((1, 2, 3))[:, None] * jnp.arange(-2.0, 2.0), -1)
    net = Net()
    variables = net.init({"params": jax.random.key(0), "dropout": jax.random.key(2)}, images, True)
    state = State.create(
        apply_fn=net.apply, params=variables["params"], tx=optax.adam(1e-2), stats=variables["batch_stats"]
    )

    @jax.jit
    def step(state, key):
        def loss(params):
            logits, new = state.apply_fn(
                {"params": params, "batch_stats": state.stats}, images, True,
                mutable=["batch_stats"], rngs={"dropout": key},
            )  # fmt: skip
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), new["batch_stats"]

        (value, stats), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
        return state.apply_gradients(grads=grads, stats=stats), value

    losses = []
    for key in jax.random.split(jax.random.key(3), 20):
        state, value = step(state, key)
        losses.append(value)
    rnn = nn.RNN(nn.LSTMCell(6))
    sequence = images.reshape(32, 8, 8)
    attention = nn.MultiHeadDotProductAttention(2)
    outs = [m.init_with_output(jax.random.key(5), sequence)[0].sum((0, 1)) for m in (rnn, attention)]
    return {"losses": jnp.stack(losses)[::4], "lstm": outs[0], "attention": outs[1]}
