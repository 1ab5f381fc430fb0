"""Matrix products and the training steps built from them."""

import numpy as np

from bench.case import case

SIZES = (784, 512, 512, 10)


def normal(backend, *shape, seed=0, scale=1.0):
    values = np.random.default_rng([seed, *shape]).normal(scale=scale, size=shape)
    return backend.array(values.astype(np.float32))


def mlp_parameters(backend, sizes):
    zeros = [np.zeros(n, np.float32) for n in sizes[1:]]
    weights = [normal(backend, m, n, scale=m**-0.5) for m, n in zip(sizes[:-1], sizes[1:])]
    return [{"w": w, "b": backend.array(b)} for w, b in zip(weights, zeros)]


def mlp_loss(backend):
    """loss(parameters, images [n, inputs], labels [n, classes]): mean cross entropy of a ReLU network."""
    jnp, nn = backend.jnp, backend.nn

    def loss(parameters, images, labels):
        *hidden, last = parameters
        x = images
        for layer in hidden:
            x = nn.relu(x @ layer["w"] + layer["b"])
        return -jnp.mean(jnp.sum(nn.log_softmax(x @ last["w"] + last["b"]) * labels, axis=-1))

    return loss


def mlp_batch(backend, sizes, batch):
    labels = np.eye(sizes[-1], dtype=np.float32)[np.arange(batch) % sizes[-1]]
    return normal(backend, batch, sizes[0]), backend.array(labels)


@case("networks/matmul 1024", ratio=0.95)
def matmul(backend):
    f = backend.jax.jit(lambda x, y: x @ y)
    x, y = normal(backend, 1024, 1024, seed=0), normal(backend, 1024, 1024, seed=1)
    return lambda: f(x, y)


@case("networks/MLP step 784-512-512-10, batch 128", ratio=1)
def mlp_step(backend):
    jax, loss = backend.jax, mlp_loss(backend)

    def step(parameters, images, labels):
        value, grads = jax.value_and_grad(loss)(parameters, images, labels)
        return jax.tree.map(lambda p, g: p - 0.01 * g, parameters, grads), value

    f = jax.jit(step, donate_argnums=0)
    parameters, batch = mlp_parameters(backend, SIZES), mlp_batch(backend, SIZES, 128)

    def call():
        nonlocal parameters
        parameters, value = f(parameters, *batch)
        return value

    return call


def attention_gradient(backend):
    """Layer norm, self-attention with 8 heads, residual: the gradient by all parameters and the input.

    Returns the jitted function and its arguments.
    """
    jax, jnp, lax, nn = backend.jax, backend.jnp, backend.lax, backend.nn
    width, heads = 256, 8

    def block(parameters, x):
        mean = jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean((x - mean) ** 2, axis=-1, keepdims=True)
        normed = (x - mean) * lax.rsqrt(variance + 1e-5) * parameters["scale"] + parameters["shift"]
        q, k, v = jnp.einsum("btw,wchd->cbhtd", normed, parameters["qkv"])
        scores = jnp.einsum("bhtd,bhsd->bhts", q, k) / np.float32(np.sqrt(width // heads))
        mixed = jnp.einsum("bhts,bhsd->bthd", nn.softmax(scores), v)
        return x + mixed.reshape(x.shape) @ parameters["out"]

    parameters = {
        "scale": backend.array(np.ones(width, np.float32)),
        "shift": backend.array(np.zeros(width, np.float32)),
        "qkv": normal(backend, width, 3, heads, width // heads, scale=width**-0.5),
        "out": normal(backend, width, width, scale=width**-0.5),
    }
    x, target = normal(backend, 8, 128, width, seed=1), normal(backend, 8, 128, width, seed=2)
    f = jax.jit(jax.value_and_grad(lambda p, x: jnp.mean((block(p, x) - target) ** 2), argnums=(0, 1)))
    return f, parameters, x


@case("networks/attention block forward + backward, 8x128x256", ratio=2, c=f"attention {1 << 20}")
def attention_block(backend):
    f, *arguments = attention_gradient(backend)
    return lambda: f(*arguments)


@case("networks/per-example gradients, MLP 64-128-10, batch 256", ratio=1)
def per_example_gradients(backend):
    jax, loss, sizes = backend.jax, mlp_loss(backend), (64, 128, 10)
    gradient = jax.grad(lambda p, image, label: loss(p, image[None], label[None]))
    f = jax.jit(jax.vmap(gradient, in_axes=(None, 0, 0)))
    parameters, batch = mlp_parameters(backend, sizes), mlp_batch(backend, sizes, 256)
    return lambda: f(parameters, *batch)
