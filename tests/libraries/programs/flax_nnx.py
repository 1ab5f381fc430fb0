"""Flax nnx: a recurrent network and a small transformer block, trained by nnx.Optimizer."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx


class Block(nnx.Module):
    def __init__(self, width, rngs):
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, width, decode=False, rngs=rngs)
        self.up = nnx.Linear(width, 2 * width, rngs=rngs)
        self.down = nnx.Linear(2 * width, width, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.dropout(self.down(nnx.gelu(self.up(x))))


class Model(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(11, 16, rngs=rngs)
        self.blocks = nnx.List([Block(16, rngs) for _ in range(2)])
        self.out = nnx.Linear(16, 11, rngs=rngs)

    def __call__(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def run():
    model = Model(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(3e-3), wrt=nnx.Param)
    tokens = jax.random.randint(jax.random.key(1), (16, 12), 0, 11)

    @nnx.jit
    def step(model, optimizer):
        def loss(model):
            logits = model(tokens[:, :-1])
            return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

        value, grads = nnx.value_and_grad(loss)(model)
        optimizer.update(model, grads)
        return value

    losses = jnp.stack([step(model, optimizer) for _ in range(15)])
    graph, state = nnx.split(model)
    again = nnx.merge(graph, state)
    again.eval()
    ensemble = nnx.vmap(lambda key: nnx.Linear(3, 2, rngs=nnx.Rngs(key)))(jax.random.split(jax.random.key(4), 3))
    return {"losses": losses, "logits": again(tokens[:1]).sum(-1), "ensemble": ensemble.kernel[...]}
