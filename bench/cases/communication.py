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


@case("ranks/allreduce 4 MB", ranks=2, c_ratio=1.05, c=f"allreduce {1 << 20}")
def allreduce_of_gradients(backend):
    return allreduce(backend, 1 << 20)


def exchange(backend, name, size):
    """`alltoall` or `allgather` of `size` float32 of each rank."""
    comm = backend.comm
    call = getattr(backend.messages, name)
    f = backend.jax.jit(lambda x: call(x, comm=comm))
    x = backend.array(np.full((comm.size, size // comm.size), 1.5, np.float32))
    return lambda: f(x)


@case("ranks/alltoall 64 B", ranks=2, c_ratio=1.0, c="alltoall 16")
def alltoall_latency(backend):
    return exchange(backend, "alltoall", 16)


@case("ranks/alltoall 1 MB", ranks=2, c_ratio=1.1, c=f"alltoall {1 << 18}")
def alltoall_bandwidth(backend):
    return exchange(backend, "alltoall", 1 << 18)


@case("ranks/allgather 1 MB", ranks=2, c_ratio=1.1, c=f"allgather {1 << 18}")
def allgather_bandwidth(backend):
    return exchange(backend, "allgather", 1 << 18)


def halos(backend, n, turns):
    """Exchanges of the halo of a field of n x n cells, in bands of rows; the field is given from call to call."""
    ranks, mpi = backend.comm.size, backend.mpi_grids
    cart = mpi.create_cart(1, True)
    field = backend.array(np.ones((n // ranks + 2, n), np.float32))

    def turn(i, u):
        return mpi.halo_exchange(u, cart, axes=(0,))

    f = backend.jax.jit(lambda u: backend.lax.fori_loop(0, turns, turn, u), donate_argnums=0)

    def call():
        nonlocal field
        field = f(field)
        return field

    return call


@case("ranks/halo of 64x64, 100 exchanges", ranks=2, ratio=1, seconds=60e-6, c="halo 64")
def halo_of_small(backend):
    return halos(backend, 64, 100)


@case("ranks/halo of 1024x1024", ranks=2, seconds=150e-6)
def halo_of_large(backend):
    return halos(backend, 1024, 1)


def beside_computation(backend, overlap):
    """An exchange of 256 kB and as much computation, which does not need it."""
    if not overlap and backend.native_ranks:
        backend.jax.config.update("mpijax_overlap", False)
    f = backend.jax.jit(lambda x, y: (backend.allreduce(x) * 0.5, backend.jnp.sin(y)))
    x, y = (backend.array(np.full(n, 0.5, np.float32)) for n in (1 << 16, 1 << 17))
    return lambda: f(x, y)


@case("ranks/allreduce 256 kB beside computation", ranks=2, ratio=1)
def overlapped(backend):
    return beside_computation(backend, True)


@case("ranks/allreduce 256 kB, then computation", ranks=2, ratio=1)
def one_after_the_other(backend):
    return beside_computation(backend, False)


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
