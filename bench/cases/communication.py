"""Two ranks: collectives inside jitted programs, and the main job, the training of `examples/digits.py`."""

import numpy as np

from bench.case import case


def allreduce(backend, size):
    f = backend.jax.jit(backend.allreduce)
    x = backend.array(np.full(size, 1.5, np.float32))
    return lambda: f(x)


@case("ranks/allreduce 4 B", ranks=2, seconds=3e-6, c="allreduce 1")
def allreduce_latency(backend):
    return allreduce(backend, 1)


@case("ranks/allreduce 16 MB", ranks=2, c_ratio=1.1, c=f"allreduce {4 << 20}")
def allreduce_bandwidth(backend):
    return allreduce(backend, 4 << 20)


def explicit_step(backend, digits, model, flat):
    """The step of the example for a library where each rank is a world of its own: gradients by allreduce.

    `flat`: one message with all gradients instead of one for each parameter, as a patient user would do.
    """
    jax, jnp, ranks = backend.jax, backend.jnp, backend.comm.size

    def average(tree):
        leaves, structure = jax.tree.flatten(tree)
        if flat:
            message = backend.allreduce(jnp.concatenate([jnp.ravel(leaf) for leaf in leaves])) / ranks
            ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
            leaves = [part.reshape(leaf.shape) for part, leaf in zip(jnp.split(message, ends), leaves)]
        else:
            leaves = [backend.allreduce(leaf) / ranks for leaf in leaves]
        return jax.tree.unflatten(structure, leaves)

    def step(state, images, labels):
        value_and_grad = jax.value_and_grad(digits.cross_entropy, argnums=1)
        loss, grads = average(value_and_grad(model, state["params"], images, labels))
        return digits.adam(state, grads), loss

    return jax.jit(step, donate_argnums=0)


def training(backend, name, batch=64, flat=False):
    """One training step of the example on the next batch."""
    digits = backend.example("digits")
    init, model = digits.MODELS[name]
    images, labels, _, _ = digits.load_digits()
    batches = list(digits.batches(images, labels, batch, epochs=1))
    comm = backend.comm
    if backend.native_ranks:
        step = digits.make_step(model, digits.Mesh(np.array(backend.jax.devices()), ("data",)))
    else:
        step = explicit_step(backend, digits, model, flat)
        share = batch // comm.size
        mine = slice(comm.rank * share, (comm.rank + 1) * share)
        batches = [(images[mine], labels[mine]) for images, labels in batches]
    state = digits.init_state(init(backend.random.key(0)))
    turn = 0

    def call():
        nonlocal state, turn
        state, loss = step(state, *batches[turn % len(batches)])
        turn += 1
        return loss

    return call


@case("ranks/digits MLP step", ranks=2, ratio=5)
def digits_mlp(backend):
    return training(backend, "mlp")


@case("ranks/digits MLP step, JAX with one message", ranks=2)
def digits_mlp_flat(backend):
    return training(backend, "mlp", flat=True)


@case("ranks/digits attention step", ranks=2, ratio=5)
def digits_attention(backend):
    return training(backend, "attention")


@case("ranks/digits attention step, JAX with one message", ranks=2)
def digits_attention_flat(backend):
    return training(backend, "attention", flat=True)
