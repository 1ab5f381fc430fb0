"""Quax: arrays with units, low-rank updates of a layer, and a type of one's own, under jit, grad, vmap and loops."""

import equinox as eqx
import jax
import jax.numpy as jnp
import quax
from jaxtyping import Array
from quax.examples import lora, unitful


class Log(quax.ArrayValue):
    """A positive array by its logarithm."""

    log: Array

    def materialise(self):
        return jnp.exp(self.log)

    def aval(self):
        return jax.core.ShapedArray(self.log.shape, self.log.dtype)


@quax.register(jax.lax.mul_p)
def _(x: Log, y: Log, **_):
    return Log(x.log + y.log)


@quax.register(jax.lax.integer_pow_p)
def _(x: Log, *, y: int):
    return Log(x.log * y)


def loop(x):
    return jax.lax.scan(lambda c, _: (c * x, None), x, None, length=3)[0]


def run():
    key = jax.random.key(0)
    layer = eqx.nn.Linear(6, 5, key=key)
    low_rank = lora.loraify(layer, rank=2, scale=0.5, key=key)
    xs = jax.random.normal(key, (7, 6))

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def loss(model, xs):
        return jnp.sum(jax.vmap(quax.quaxify(model))(xs) ** 2)

    value, grads = loss(low_rank, xs)
    metres = unitful.Unitful(jnp.arange(1.0, 4.0), {unitful.meters: 1})
    area = quax.quaxify(lambda a: a * a + a * a)(metres)
    tiny = Log(jnp.array([-60.0, 2.0]))
    return {
        "value": value,
        "gradient": jnp.concatenate([x.ravel() for x in jax.tree.leaves(eqx.filter(grads, eqx.is_array))]),
        "area": area.array,
        "square": jax.jit(quax.quaxify(lambda x: (x * x) ** 2))(tiny).log,
        "loop": quax.quaxify(loop)(tiny).log,
        "sum": quax.quaxify(lambda x: jnp.sum(x * x))(Log(jnp.array([0.5, 2.0]))),
    }
