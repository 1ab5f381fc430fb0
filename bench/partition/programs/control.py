"""Loops and branches."""

from bench.partition.modules import jax, jnp, lax
from bench.partition.program import columns, program, rows, whole


@program("control/fori_loop", rows(256, 64))
def fori(x):
    return lax.fori_loop(0, 10, lambda k, x: jnp.sin(x) + k, x)


@program("control/while_loop", rows(256, 64))
def while_loop(x):
    return lax.while_loop(lambda x: x.max() > 1e-2, lambda x: x * 0.5, x)


@program("control/cond", rows(256, 64))
def cond(x):
    return lax.cond(x.sum() > 0, jnp.sin, lambda x: x * 2, x)


@program("control/switch", rows(256, 64), whole(drawn=3))
def switch(x, k):
    return lax.switch(k, [jnp.sin, jnp.cos, lambda x: x.sum(0) + x], x)


@program("control/scan over another axis", rows(64, 32, 16))
def scan_other(x):
    carry, out = lax.scan(lambda c, row: (jnp.tanh(c + row), c * 2), jnp.zeros((64, 16)), x.swapaxes(0, 1))
    return carry, out


@program("control/scan over the split axis", rows(128, 64))
def scan_split(x):
    return lax.scan(lambda c, row: (0.9 * c + row, c), jnp.zeros(64), x)


@program("control/reversed scan of 127 rows", rows(128, 64))
def reversed_scan(x):
    return lax.scan(lambda c, row: (0.9 * c + row, c), jnp.zeros(64), x[1:], reverse=True)


@program("control/RNN, batch split", rows(64, 32, 16), whole(16, 32), whole(32, 32))
def rnn(x, v, w):
    def step(h, row):
        h = jnp.tanh(row @ v / 4 + h @ w / 8)  # small enough that rounding does not grow
        return h, h.mean(axis=1)

    return lax.scan(step, jnp.zeros((64, 32)), x.swapaxes(0, 1))


@program("control/map", rows(64, 256))
def mapped(x):
    return lax.map(lambda row: jnp.sort(row), x)


@program("control/Newton in fori_loop", rows(4096, drawn="uniform"))
def newton(a):
    return lax.fori_loop(0, 8, lambda _, x: 0.5 * (x + (a + 1) / x), jnp.ones_like(a))


@program("control/conjugate gradients", rows(128, 128, drawn="definite"), rows(128))
def conjugate_gradients(a, b):
    def step(_, state):
        x, r, p, rs = state
        ap = a @ p
        alpha = rs / (p @ ap)
        x, r = x + alpha * p, r - alpha * ap
        new = r @ r
        return x, r, r + new / rs * p, new

    return lax.fori_loop(0, 5, step, (jnp.zeros_like(b), b, b, b @ b))[0]


@program("control/nested jit", rows(256, 64), whole(64, 32))
def nested(x, w):
    layer = jax.jit(lambda x, w: jax.nn.relu(x @ w))
    return jax.jit(lambda x: layer(x, w).sum(axis=0))(x)


@program("control/checkpoint", rows(64, 64), whole(64, 64))
def checkpointed(x, w):
    layer = jax.checkpoint(lambda x, w: jnp.tanh(x @ w))
    return jax.grad(lambda w: layer(layer(x, w), w).sum())(w)


@program("control/columns in fori_loop", columns(64, 256))
def columns_loop(x):
    return lax.fori_loop(0, 5, lambda _, x: x - x.mean(axis=1, keepdims=True), x)
