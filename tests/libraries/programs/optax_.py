"""Optax: Adam with clipping, a schedule and weight decay fits a small network."""

import jax
import jax.numpy as jnp
import optax

jax.config.update("jax_enable_x64", True)


def run():
    x = jnp.linspace(-2, 2, 128)[:, None]
    y = jnp.sin(3 * x) + 0.5 * x
    keys = jax.random.split(jax.random.key(0), 2)
    params = {
        "w1": jax.random.normal(keys[0], (1, 32)), "b1": jnp.zeros(32),
        "w2": jax.random.normal(keys[1], (32, 1)) / 6, "b2": jnp.zeros(1),
    }  # fmt: skip

    def loss(p):
        return optax.l2_loss(jnp.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"], y).mean()

    schedule = optax.warmup_cosine_decay_schedule(0.0, 0.03, 10, 40)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-4))

    @jax.jit
    def step(carry, _):
        p, state = carry
        value, grads = jax.value_and_grad(loss)(p)
        updates, state = optimizer.update(grads, state, p)
        return (optax.apply_updates(p, updates), state), value

    others = {}  # before training, which amplifies the rounding of the schedule, a float32
    for name in ("sgd", "lion", "adafactor", "lamb", "rmsprop", "adabelief", "lbfgs"):
        tx = getattr(optax, name)(*(() if name == "lbfgs" else (0.01,)))
        grads = jax.grad(loss)(params)
        extra = {"value": loss(params), "grad": grads, "value_fn": loss} if name == "lbfgs" else {}
        updates, _ = tx.update(grads, tx.init(params), params, **extra)
        others[name] = optax.global_norm(updates)
    (params, _), losses = jax.lax.scan(step, (params, optimizer.init(params)), length=40)
    return {"losses": losses[::8], "norm": optax.global_norm(params), **others}
